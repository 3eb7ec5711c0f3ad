"""Parts of the text-to-image stage: loading, random weights, prompts, attention."""
