"""Results of a run in the formats of experiment trackers, model pages and a commons."""
