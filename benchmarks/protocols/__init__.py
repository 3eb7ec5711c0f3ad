"""Pinned protocols: the settings that published figures were made with, and the figures."""
