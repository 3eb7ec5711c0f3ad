"""Vectors of single images and texts, which many metrics share."""
