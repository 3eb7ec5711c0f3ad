"""The mini Anole: a Chameleon of 64 codes a picture that writes and draws answers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.miniature.training.anole_vq import (
    VQ,
    VQ_PLAN,
    Pictures,
    VqLearner,
    codes_of,
    drawn_pictures,
    pictures_of,
)
from benchmarks.miniature.training.loop import Plan, Trainer

VQ_PICTURES = 16_000


def trained_vq(folder: Path, plan: Plan = VQ_PLAN, pictures: int = VQ_PICTURES) -> Any:
    """The VQ model with averaged weights, trained now or before."""
    learner = VqLearner(VQ, drawn_pictures(pictures, seed=21), plan)
    state = folder / "state" / "anole-vq"
    trainer = Trainer({"vq": learner.model}, learner.loss, state, plan)
    samples = drawn_pictures(16, seed=22)

    def look(step: int) -> str:
        codes = codes_of(learner.model, samples)
        again = pictures_of(learner.model, codes)
        sheet([samples, again], state / f"sheet-{step}.png")
        wrong = np.abs(again.astype(int) - samples.astype(int)).mean()
        return f"{len(np.unique(codes))} codes in use, {wrong:.2f} of 255 wrong"

    trainer.run(every=200, look=look)
    trainer.__enter__()
    return learner.model


def sheet(rows: Sequence[Pictures], place: Path) -> None:
    """Pictures in rows as one PNG, twice as large."""
    whole = Image.fromarray(np.concatenate([np.concatenate([*r], axis=1) for r in rows]))
    place.parent.mkdir(parents=True, exist_ok=True)
    whole.resize((2 * whole.width, 2 * whole.height)).save(place)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command `python -m benchmarks.miniature.training anole`."""
    parser = argparse.ArgumentParser(prog="anole", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of all models")
    given = parser.parse_args(arguments)
    trained_vq(given.out)
