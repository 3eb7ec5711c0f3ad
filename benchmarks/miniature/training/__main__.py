"""`python -m benchmarks.miniature.training NAME --out FOLDER`: train one mini model."""

from __future__ import annotations

import importlib
import sys

MODULES = {
    "anole": "anole",
    "clip": "clip",
}
"""Name of a model -> the module of this package whose `main` trains it."""


def main(arguments: list[str]) -> None:
    """Run the training that the first argument names; SystemExit lists the names."""
    if not arguments or arguments[0] not in MODULES:
        given = (
            f"{arguments[0]!r} is not a mini model" if arguments else "name a mini model"
        )
        raise SystemExit(f"{given}; there are {', '.join(MODULES)}")
    name = f"{__package__}.{MODULES[arguments[0]]}"
    importlib.import_module(name).main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
