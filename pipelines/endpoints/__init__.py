"""Parts of the endpoint stage: messages, retries, replies, budget."""
