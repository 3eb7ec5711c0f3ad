"""MLLM-Bench as a task set: 420 questions about a picture, on six levels."""
