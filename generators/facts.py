"""What people ask of a model before they run it: its licence, what it writes by itself."""

from __future__ import annotations

from typing import NamedTuple


class ModelFacts(NamedTuple):
    """Declared beside a preset; None where nobody states it."""

    licence: str | None = None
    """Of the weights, as its authors state it."""
    interleaves: bool | None = None
    """Whether the model itself writes text and images in turn."""
    images: str | None = None
    """How many images a document of it holds, where the system has no limit of its own."""
    compared: str | None = None
    """With what its numbers were compared, on tiny weights: `PROGRAM (FILE)`."""
    params_b: float | None = None
    """Billions of parameters, where the settings do not hold them."""


NO_FACTS = ModelFacts()
"""Of a model of which nobody has stated anything."""
