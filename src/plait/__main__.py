"""`python -m plait`: the command line, as the program `plait` has it."""

from __future__ import annotations

import sys

if not sys.flags.safe_path and sys.path:
    # Python puts the current folder first, where a user's file would hide a package.
    sys.path.append(sys.path.pop(0))

from plait.cli import main

if __name__ == "__main__":
    main()
