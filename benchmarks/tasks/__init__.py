"""Task sets: benchmarks' queries, their published answers, and controls made from them."""
