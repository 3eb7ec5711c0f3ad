"""What a run will take: rates and their sources, the simulated run, the forecast."""
