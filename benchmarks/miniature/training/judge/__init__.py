"""The mini judge: damaged answers, their verdicts, its tokenizer, and its training."""
