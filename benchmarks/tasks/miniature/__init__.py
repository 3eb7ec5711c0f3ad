"""Queries of the miniature world, whose truth is known exactly."""
