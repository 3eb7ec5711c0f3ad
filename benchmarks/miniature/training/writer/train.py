"""Trains the mini writer: a small Qwen2-VL that answers the miniature queries in words.

`python -m benchmarks.miniature.training writer --out FOLDER` trains, or goes on where it
stopped, and writes FOLDER/qwen2-vl; `--export` writes it from the latest checkpoint.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen2VLForConditionalGeneration, Qwen2VLProcessor

from benchmarks.miniature.training.loop import Trainer, TrainingPlan
from benchmarks.miniature.training.options import training_parser
from benchmarks.miniature.training.saved import parameter_count, write_measured
from benchmarks.miniature.training.writer.check import all_answers, exact_share
from benchmarks.miniature.training.writer.data import WriterData
from benchmarks.miniature.training.writer.loss import PlaceReader, writer_loss
from benchmarks.miniature.training.writer.model import (
    writer_model,
    writer_processor,
    writer_tokenizer,
)
from benchmarks.miniature.training.writer.sheet import sheet

CHECKPOINT = "qwen2-vl"
STEPS = 4000
RATE = 1.5e-3
_LOOK_EVERY = 300
_LOOK_QUERIES = 16
_FINAL_QUERIES = 60


class WriterTraining:
    """The model, what it learns from, and the loop that trains it."""

    def __init__(self, out: Path, plan: TrainingPlan) -> None:
        tokenizer = writer_tokenizer()
        self.out = out
        self.processor: Qwen2VLProcessor = writer_processor(tokenizer)
        self.model: Qwen2VLForConditionalGeneration = writer_model(tokenizer, plan.seed)
        # On a CPU in half precision, plain attention is several times faster to learn.
        self.model.set_attn_implementation({"text_config": "eager"})
        self.model.train()
        self._data = WriterData(self.processor, plan.seed)
        with torch.random.fork_rng():
            torch.manual_seed(plan.seed)
            self._places = PlaceReader(self.model.config.get_text_config().hidden_size)
        modules = {"writer": self.model, "places": self._places}
        self.trainer = Trainer(modules, self._loss, out / "state" / "writer", plan)

    def _loss(self, step: int) -> torch.Tensor:
        return writer_loss(self.model, self._places, self._data.chunks(step))

    def look(self, step: int, n: int = _LOOK_QUERIES) -> str:
        """Export the averaged weights, which are in the model, and measure them.

        The figures are in measured.json, some of the answers in sheet.png.
        """
        self.export()
        with torch.no_grad():
            given = all_answers(self.model, self.processor, n)
        shares = {kind: exact_share(answers) for kind, answers in given.items()}
        sheet(given).save(self.trainer.folder / "sheet.png")
        measured = {
            "step": step,
            "seconds": round(self.trainer.seconds, 1),
            "parameters": parameter_count(self.model),
            "queries": n,
            "exact": shares,
        }
        write_measured(self.trainer.folder, measured)
        return "exact " + ", ".join(f"{k} {share:.0%}" for k, share in shares.items())

    def export(self) -> Path:
        """Write the model as it is now in the published layout, in half precision."""
        folder = self.out / CHECKPOINT
        copy.deepcopy(self.model).half().save_pretrained(folder)
        self.processor.save_pretrained(folder)
        # The library lets only its user read them.
        (folder / "model.safetensors").chmod(0o644)
        return folder


def main(arguments: Sequence[str]) -> None:
    """Train, or export what has been trained so far."""
    parser = training_parser("writer", __doc__, STEPS)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--export", action="store_true", help="from the latest checkpoint")
    given = parser.parse_args(arguments)
    steps = 0 if given.export else given.steps
    plan = TrainingPlan(
        steps=steps, rate=given.rate, warmup=200, save_every=100, seed=given.seed
    )
    training = WriterTraining(given.out, plan)
    training.trainer.run(every=_LOOK_EVERY, look=training.look)
    with training.trainer:
        if given.export:
            print(f"step {training.trainer.step}: {training.export()}")
        else:
            print(training.look(training.trainer.step, _FINAL_QUERIES))
