"""Names of scorers of single turns: `turns:SCORER` and `looking-back:SCORER`."""

from __future__ import annotations

EACH = "turns"
LOOKING_BACK = "looking-back"
PREFIXES = (EACH, LOOKING_BACK)


def name_of_turn_scorer(name: str) -> str:
    """Return the scorer that `turns:SCORER` and its kin ask; any other name as it is."""
    prefix, colon, rest = name.partition(":")
    return rest if colon and prefix in PREFIXES else name
