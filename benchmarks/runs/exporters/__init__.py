"""Results of a whole run in the formats of experiment trackers and model pages."""
