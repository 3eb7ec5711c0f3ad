"""`python -m benchmarks.miniature.training NAME --out FOLDER` trains a mini model."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping

MODELS: Mapping[str, str] = {
    "anole": "anole.train",
    "artist": "artist.train",
    "clip": "clip.train",
    "judge": "judge.train",
    "sdxl": "artist.sdxl",
    "vae": "artist.vae",
    "writer": "writer.train",
}
"""Names on the command line and the modules of this package, each with a `main`."""


def main(arguments: list[str]) -> None:
    """Train the model that the first argument names; SystemExit lists the names."""
    name = arguments[0] if arguments else ""
    if name not in MODELS:
        valid = ", ".join(MODELS)
        raise SystemExit(f"{name!r} is not the name of a mini model; valid: {valid}")
    importlib.import_module(f"{__package__}.{MODELS[name]}").main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
