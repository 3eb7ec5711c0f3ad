"""Commands, task sets, runs, results, studies, serving and speed measurements."""
