"""A small job three ways: a careful script, a naive one and `plait run`."""
