"""The loops of the original programs, in our words and around our loaded weights.

Each answers one record at a time and keeps, rebuilds or lacks a cache as its original
does. They are what speed is measured against, and say the same as the stages do.
"""
