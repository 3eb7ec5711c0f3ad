"""Scorers that ask an LVLM, mostly about images: how likely is the right answer?

A scorer is `PREFIX:LVLM`. All use the records of one stage, the log-probabilities of the
possible answers to one question behind what is shown.
"""

from __future__ import annotations

from plait.generators.catalogue import Named, find


def is_vqa(name: str) -> bool:
    """Return whether `name` is that of such a scorer."""
    match = find(name, Named.SCORER)
    return match is not None and match.entry.asks == "probabilities"
