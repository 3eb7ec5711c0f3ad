"""Trains the mini judge: `python -m benchmarks.miniature.training judge --out FOLDER`."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.miniature.training.judge.batches import (
    JudgementBatch,
    JudgementWriter,
    LearnedJudgement,
    batched,
)
from benchmarks.miniature.training.judge.corruptions import Damaged, damaged
from benchmarks.miniature.training.judge.measuring import measured
from benchmarks.miniature.training.judge.model import new_judge, save
from benchmarks.miniature.training.loop import Trainer, TrainingPlan
from benchmarks.miniature.training.options import training_parser
from benchmarks.miniature.training.saved import write_measured
from scorers.internvl.models import JudgeModel, normalised
from scorers.internvl.tokenizer import END, IMAGE_TOKEN

NAME = "mmie-score"
PLAN = TrainingPlan(steps=4200, rate=2e-3, warmup=100, average=0.995, save_every=100)
CAPTIONS_FIRST = 250
"""Steps of captions alone, which teach the vision model cheaply."""
DOUBLED_UNTIL = 300
"""The first judgements come in batches of twice the size."""
GROUPS = {"SA": 8, "PBL": 6, "MSR": 6}
"""Judgements of each category in a step."""
CAPTIONS, CAPTIONS_ALONE = 4, 48
HELD_OUT = 200
"""Damaged answers to queries of the test split that the judge is measured on."""


class JudgeTraining:
    """The loss of a step, and the measurement between steps."""

    def __init__(self, judge: JudgeModel, folder: Path, plan: TrainingPlan = PLAN) -> None:
        """Measurements are written into `folder`."""
        self.judge, self.folder, self.plan = judge, folder, plan
        self._writer = JudgementWriter(judge.tokenizer, judge.tile_tokens)
        self._image = judge.tokenizer.id(IMAGE_TOKEN)
        self._end = judge.tokenizer.id(END)

    def loss(self, step: int) -> Tensor:
        """Mean over the tokens of replies, in groups of like length."""
        rng = random.Random(f"judge {self.plan.seed} {step}")
        losses = [self._group_loss(group) for group in self._groups(rng, step)]
        return torch.stack(losses).sum() / len(losses)

    def _groups(self, rng: random.Random, step: int) -> list[list[LearnedJudgement]]:
        write = self._writer
        if step < CAPTIONS_FIRST:
            return [[write.captioned(rng, "train") for _ in range(CAPTIONS_ALONE)]]
        times = 2 if step < DOUBLED_UNTIL else 1
        groups = [
            [write.judged(rng, damaged(rng, "train", name)) for _ in range(n * times)]
            for name, n in GROUPS.items()
        ]
        groups[-1] += [write.captioned(rng, "train") for _ in range(CAPTIONS * times)]
        return groups

    def _group_loss(self, group: Sequence[LearnedJudgement]) -> Tensor:
        batch = batched(group, self._end)
        with torch.autocast("cpu", torch.bfloat16):
            logits = self._logits(batch)
        targets = batch.ids.roll(-1, 1)[batch.asked]
        return F.cross_entropy(logits.float(), targets)

    def _logits(self, batch: JudgementBatch) -> Tensor:
        """Of the replies' tokens: (tokens, vocabulary)."""
        model, decoder = self.judge.model, self.judge.decoder
        features = model.get_image_features(
            normalised(batch.tiles), return_dict=True
        ).pooler_output
        inputs = decoder.get_input_embeddings()(batch.ids)
        places = (batch.ids == self._image)[..., None].expand_as(inputs)
        inputs = inputs.masked_scatter(places, features.to(inputs.dtype))
        hidden = decoder(inputs_embeds=inputs, use_cache=False).last_hidden_state
        scores: Tensor = model.lm_head(hidden[batch.asked])
        return scores

    def look(self, step: int) -> str:
        """Judge the held-out answers, and add the agreement to `measured.json`."""
        values = measured(self.judge, self._writer, held_out(HELD_OUT))
        place = self.folder / "measured.json"
        rows = json.loads(place.read_text()) if place.exists() else []
        rows.append({"step": step, **values})
        write_measured(self.folder, rows)
        return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


def held_out(n: int, seed: int = 0) -> list[Damaged]:
    """Damaged answers to queries of the test split, which training never meets."""
    rng = random.Random(f"held-out judgements {seed}")
    return [damaged(rng, "test") for _ in range(n)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or only write the checkpoint of what is trained so far."""
    parser = training_parser("judge", __doc__, PLAN.steps)
    parser.add_argument("--look", type=int, default=400, help="steps between measurements")
    parser.add_argument(
        "--export", action="store_true", help="write the checkpoint of the last state"
    )
    options = parser.parse_args(arguments)
    train(options.out, 0 if options.export else options.steps, options.look)


def train(out: Path, steps: int, look: int) -> None:
    """From the last state on to `steps`; the checkpoint is then in `out`/mmie-score.

    Without steps left this only writes the checkpoint.
    """
    plan = replace(PLAN, steps=steps)
    judge, proto = new_judge(plan.seed)
    judge.model.requires_grad_(True).train()
    training = JudgeTraining(judge, out / "state" / NAME, plan)
    trainer = Trainer({"judge": judge.model}, training.loss, training.folder, plan)
    trainer.run(look, training.look)
    with trainer:
        save(judge, proto, out / NAME)


if __name__ == "__main__":
    main()
