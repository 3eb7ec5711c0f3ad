"""`python -m benchmarks.miniature.training NAME --out FOLDER` trains a mini model."""

from __future__ import annotations

import importlib
import sys

MODELS = ("anole", "artist", "clip", "judge", "sdxl", "vae", "writer")
"""Names on the command line: modules of this package, each with a `main`."""


def main(arguments: list[str]) -> None:
    """Train the model that the first argument names; SystemExit lists the names."""
    name = arguments[0] if arguments else ""
    if name not in MODELS:
        valid = ", ".join(MODELS)
        raise SystemExit(f"{name!r} is not the name of a mini model; valid: {valid}")
    importlib.import_module(f"{__package__}.{name}").main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
