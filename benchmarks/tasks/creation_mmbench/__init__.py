"""Creation-MMBench as a task set: 765 creative requests about pictures, 51 tasks."""
