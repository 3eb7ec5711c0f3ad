"""Published checkpoints of native models: files, layouts, strict filling."""
