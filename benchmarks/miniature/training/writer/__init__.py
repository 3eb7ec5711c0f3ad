"""The mini writer: a small Qwen2-VL, what it learns from, and how well it answers."""
