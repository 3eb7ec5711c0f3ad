"""Parts of the vision-language stage: loading, random weights, prompts, decoding."""
