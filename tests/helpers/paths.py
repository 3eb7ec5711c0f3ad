"""Where tests find the checkout and the data that they compare with."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCE = CHECKOUT / "src"
TESTS = CHECKOUT / "tests"
DATA = TESTS / "data"
HELPERS = TESTS / "helpers"
PYTHON_PATH = os.pathsep.join(map(str, (SOURCE, HELPERS)))
"""Of a process that uses this checkout, and stages of `helpers`."""
