"""Agreement of judges with people: scores, pairwise preferences, votes."""
