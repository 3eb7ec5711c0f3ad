"""What was measured, in standard words: as tables, files and plots."""
