"""Where commands print."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """The terminal, or a file or pipe in which tables are not cut."""
    from rich.console import Console

    # A file or a pipe has no width of its own, and 80 columns would cut tables.
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=160 if piped else None)
