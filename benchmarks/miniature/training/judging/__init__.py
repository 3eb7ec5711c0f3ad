"""What the mini judge is trained on: damaged answers, their verdicts, and its tokenizer."""
