"""The options that the trainings have in common."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path


def training_parser(
    name: str, about: str | None, steps: int | None = None
) -> ArgumentParser:
    """`--out FOLDER`, and `--steps` where a plan has so many by default."""
    parser = ArgumentParser(prog=name, description=about)
    parser.add_argument("--out", type=Path, required=True, help="folder of all models")
    if steps is not None:
        parser.add_argument("--steps", type=int, default=steps, help="length of the plan")
    return parser
