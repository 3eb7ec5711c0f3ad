"""The mini Anole: a Chameleon of 64 codes a picture that writes and draws answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.miniature.training.anole.data import (
    POOL,
    AnoleData,
    coded,
    pictures_in,
    pooled,
)
from benchmarks.miniature.training.anole.lm import LM_PLAN, AnoleLearner, chameleon
from benchmarks.miniature.training.anole.marks import AnoleExaminer, rules
from benchmarks.miniature.training.anole.saved import save_anole
from benchmarks.miniature.training.anole.tokens import mini_tokenizer
from benchmarks.miniature.training.anole.vq import (
    VQ,
    VQ_PLAN,
    VqLearner,
    codes_of,
    drawn_pictures,
    pictures_of,
)
from benchmarks.miniature.training.loop import Trainer, TrainingPlan
from benchmarks.miniature.training.options import training_parser
from benchmarks.miniature.training.saved import write_measured
from benchmarks.miniature.training.sheets import Pictures, sheet
from benchmarks.tasks.miniature.queries import Category, queries

VQ_PICTURES = 8_000
EXAM = 24
"""Test queries asked at each look."""


def trained_vq(
    folder: Path, plan: TrainingPlan = VQ_PLAN, pictures: int = VQ_PICTURES
) -> Any:
    """The VQ model with averaged weights in half precision, trained now or before."""
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
    # As it will be stored, so that the language model learns the codes it will meet.
    return learner.model.half().float().eval().requires_grad_(False)


def trained_anole(
    vq_model: Any,
    folder: Path,
    plan: TrainingPlan = LM_PLAN,
    pool: Mapping[Category, int] = POOL,
    exam_size: int = EXAM,
) -> Any:
    """Train, or go on with, the model; write it to `folder`/anole and return it."""
    tokenizer = mini_tokenizer(VQ["num_embeddings"])
    state = folder / "state" / "anole"
    state.mkdir(parents=True, exist_ok=True)
    learned = pooled(pool)
    shown = pictures_in(q for some in learned.values() for q in some)
    asked = queries(exam_size, 5, "test")
    began = time.monotonic()
    codes = coded(vq_model, shown, state / "codes.npy")
    print(f"{len(shown)} pictures coded in {time.monotonic() - began:.0f} s", flush=True)
    codes |= coded(vq_model, pictures_in(asked))
    data = AnoleData(tokenizer, learned, codes)
    torch.manual_seed(plan.seed)
    model = chameleon(tokenizer.get_vocab(with_added_tokens=True))
    learner = AnoleLearner(model, data, plan)
    modules = {"language": model, "reader": learner.reader}
    trainer = Trainer(modules, learner.loss, state, plan)
    exam = AnoleExaminer(data, tokenizer, asked)

    def look(step: int) -> str:
        def keep(drawn: Pictures) -> None:
            sheet([drawn[first : first + 8] for first in (0, 8)], state / f"{step}.png")

        marks = exam(model, vq_model, rules(), keep)
        save_anole(model, vq_model, tokenizer, folder / "anole")
        write_measured(state, {**marks.facts(), **trainer.progress()})
        return marks.line()

    trainer.run(every=200, look=look)
    with trainer:
        print(look(trainer.step), flush=True)
    return model


def main(arguments: Sequence[str] | None = None) -> None:
    """The command `python -m benchmarks.miniature.training anole`."""
    given = training_parser("anole", __doc__, LM_PLAN.steps).parse_args(arguments)
    plan = replace(LM_PLAN, steps=given.steps)
    trained_anole(trained_vq(given.out), given.out, plan)
