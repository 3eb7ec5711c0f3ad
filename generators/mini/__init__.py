"""Mini weights: small checkpoints in the published layouts, of a world of shapes."""
