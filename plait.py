"""plait: run and judge models that answer with interleaved text and images."""
