"""What a run will take: wall time, GPU-hours, tokens, money and disk, before it starts.

Rates come, in this order, from the records of the run itself, from runs in folders beside
it, from files that `plait bench stage` wrote, and from published figures; each is marked
with its origin. What no source knows is named and not guessed: then a total is a lower
bound. Imports neither torch, nor Ray, nor any SDK.
"""
