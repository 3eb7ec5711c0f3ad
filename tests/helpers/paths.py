"""Where tests find the checkout and the data that they compare with."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = CHECKOUT / "tests"
DATA = TESTS / "data"
HELPERS = TESTS / "helpers"
