"""What is noted while a stage computes: times, tokens, steps, requests, memory."""
