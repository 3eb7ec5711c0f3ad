"""The files of a run's results: `results/`, from which alone a run is read."""
