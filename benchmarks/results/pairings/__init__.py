"""LVLM x text-to-image model: what each adds, what pairings cost, in files and page."""
