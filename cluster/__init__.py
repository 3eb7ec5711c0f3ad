"""The engine: plan, store, workers and scheduling on Ray."""
