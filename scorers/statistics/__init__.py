"""Ratings of systems from pairwise games: Bradley-Terry, Elo, intervals by question."""
