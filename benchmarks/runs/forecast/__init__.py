"""What a run will take: wall time, GPU-hours, tokens, money and disk, before it starts.

What no source of rates knows is named and not guessed: then a total is a lower bound.
Imports neither torch, nor Ray, nor any SDK.
"""
