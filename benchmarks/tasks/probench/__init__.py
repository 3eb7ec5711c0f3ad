"""ProBench as a task set: experts' requests on three tracks."""
