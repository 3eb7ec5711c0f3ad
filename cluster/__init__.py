"""The engine: plan, store, scheduling, and the executors that host workers."""
