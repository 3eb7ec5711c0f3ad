"""`python -m benchmarks.miniature.training NAME --out FOLDER` trains a mini model."""

from __future__ import annotations

import importlib
import sys

MODELS = {
    "judge": "judge",
}
"""Name on the command line -> module of this package with a `main`."""


def main() -> None:
    """Train the model that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in MODELS:
        valid = ", ".join(MODELS)
        raise SystemExit(f"{name!r} is not the name of a mini model; valid: {valid}")
    importlib.import_module(f"{__package__}.{MODELS[name]}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
