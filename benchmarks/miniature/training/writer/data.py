"""What the mini writer learns from: the very prompts that its stage sends, and answers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor
from transformers import Qwen2VLProcessor

from benchmarks.miniature.training.writer.model import CAPTION_PROMPT, MARKS
from benchmarks.tasks.miniature.queries import MiniatureQuery, ScenePicture, query
from benchmarks.tasks.mmie.prompts import prompts
from generators.document import Content, Image, Request, Sample, Text, Turn
from generators.pictures import encode
from generators.system import Repetition, System, answer
from pipelines.chat.settings import ChatSettings
from pipelines.systems import Models, resolve
from pipelines.vlm.prompts import ChatPrompt, ChatPromptWriter
from scorers.truth.drawing import draw
from scorers.truth.language import LEADS, description
from scorers.truth.scene import Scene, random_scene

Kind = Literal["SA", "PBL", "MSR", "SA@outline", "PBL@outline", "caption"]
EARLY: dict[Kind, int] = {"SA": 2, "PBL": 2, "MSR": 12, "caption": 16}
"""Rows of each kind in the first batches, which teach the vision tower to see."""
EARLY_STEPS = 400
LATE: dict[Kind, int] = {
    "SA": 8,
    "PBL": 8,
    "MSR": 11,
    "SA@outline": 1,
    "PBL@outline": 2,
    "caption": 2,
}
"""Rows of each kind in later batches."""
CHUNK = 8
"""Rows that are padded to one length."""
_SYSTEMS: dict[str, System] = {
    rule: resolve(f"qwen2-vl-7b+openjourney@{rule}", Models(weights="tiny"))
    for rule in ("mmie", "outline")
}
_PLACEHOLDER = encode(Pillow.new("RGB", (1, 1)))
"""Stands for a picture where only the wording of a prompt matters."""


@dataclass(frozen=True, slots=True)
class WriterRow:
    """One conversation as text, its answer, and the picture it shows."""

    kind: Kind
    prompt: str
    """The chat template, filled in, with one token for the picture."""
    answer: str
    picture: ScenePicture


@dataclass(frozen=True, slots=True)
class WriterChunk:
    """Rows as tensors, padded on the right."""

    ids: Tensor
    """(rows, length)"""
    answers: Tensor
    """(rows, length), true where a token of the answer, or its end, stands."""
    pixels: Tensor
    """(rows x 64, 1176) patches, as the processor makes them"""
    grid: Tensor
    """(rows, 3)"""
    scenes: tuple[Scene, ...]


class WriterData:
    """Batches of training rows, which depend on the step alone."""

    def __init__(self, processor: Qwen2VLProcessor, seed: int = 0) -> None:
        self._processor, self._seed = processor, seed
        self._prompts = ChatPromptWriter(processor, ChatSettings(model="mini"))

    def chunks(self, step: int) -> list[WriterChunk]:
        """The batch of a step: 32 rows, those of like length together."""
        rows = self.rows(step)
        encoded = sorted(
            ((self._encoded(row), row.picture) for row in rows), key=lambda e: len(e[0][0])
        )
        parts = [encoded[i : i + CHUNK] for i in range(0, len(encoded), CHUNK)]
        return [
            self._chunk([e for e, _ in p], [picture for _, picture in p]) for p in parts
        ]

    def rows(self, step: int) -> list[WriterRow]:
        """The same batch as texts."""
        shares = EARLY if step < EARLY_STEPS else LATE
        kinds = [k for k, share in shares.items() for _ in range(share)]
        first = step * len(kinds)
        return [self._row(kind, first + i) for i, kind in enumerate(kinds)]

    def _row(self, kind: Kind, index: int) -> WriterRow:
        if kind == "caption":
            return self._caption(index)
        category, _, rule = kind.partition("@")
        example = query(index, self._seed, "train", category)  # type: ignore[arg-type]
        return self.row(example, rule or "mmie")

    def row(self, example: MiniatureQuery, rule: str) -> WriterRow:
        """The query as a writer under the protocol `rule` is asked it, and its answer."""
        sample = Sample(
            id=example.id,
            category=example.category,
            field=example.field,
            turns=(Turn("user", _without_pictures(example.question)),),
            wants_images=example.wants_images,
        )
        (picture,) = [p for p in example.question if isinstance(p, ScenePicture)]
        kind: Kind = example.category
        if rule == "outline" and example.category != "MSR":
            kind = "SA@outline" if example.category == "SA" else "PBL@outline"
        text = written(example, rule)
        return WriterRow(kind, self._prompt(asked(sample, rule)), text, picture)

    def _caption(self, index: int) -> WriterRow:
        rng = random.Random(f"caption {self._seed} {index}")
        scene = random_scene(rng, "train")
        request = Request((Turn("user", (_PLACEHOLDER, Text(CAPTION_PROMPT))),))
        text = f"{LEADS[0]} {description(scene)}."
        picture = ScenePicture(scene, rng.randrange(2**31))
        return WriterRow("caption", self._prompt(request), text, picture)

    def _prompt(self, request: Request) -> str:
        prompt = self._prompts(request)
        if not isinstance(prompt, ChatPrompt):
            raise ValueError(f"the stage takes no such request: {prompt}")
        return prompt.text

    def _encoded(self, row: WriterRow) -> tuple[list[int], int]:
        """The ids of a row, and where its answer begins."""
        tokenizer, image = self._processor.tokenizer, self._processor.image_token
        prompt = tokenizer(row.prompt.replace(image, image * 16)).input_ids
        ids = tokenizer(row.answer).input_ids
        return [*prompt, *ids, tokenizer.eos_token_id], len(prompt)

    def _chunk(
        self, encoded: Sequence[tuple[list[int], int]], pictures: Sequence[ScenePicture]
    ) -> WriterChunk:
        length = max(len(ids) for ids, _ in encoded)
        padding = self._processor.tokenizer.pad_token_id
        ids = torch.full((len(encoded), length), padding)
        answers = torch.zeros(len(encoded), length, dtype=torch.bool)
        for i, (row, start) in enumerate(encoded):
            ids[i, : len(row)] = torch.tensor(row)
            answers[i, start : len(row)] = True
        pixels, grid = patches(self._processor, pictures)
        return WriterChunk(ids, answers, pixels, grid, tuple(p.scene for p in pictures))


def asked(sample: Sample, rule: str) -> Request:
    """What the writer of a composite is sent for `sample` under a protocol."""
    (job,) = next(answer(_SYSTEMS[rule], sample, Repetition(prompts())))
    assert isinstance(job.input, Request)
    return job.input


def written(example: MiniatureQuery, rule: str) -> str:
    """The right answer as a writer gives it: text, with marks for pictures in outlines."""
    lines = []
    for part in example.answer:
        if isinstance(part, str):
            lines.append(part)
        elif rule == "outline":
            lines.append(f"{MARKS[0]}{description(part.scene)}{MARKS[1]}")
    return "\n".join(lines)


def patches(
    processor: Qwen2VLProcessor, pictures: Sequence[ScenePicture]
) -> tuple[Tensor, Tensor]:
    """The pictures drawn: patches (pictures x 64, 1176) and grids (pictures, 3)."""
    drawn = [np.asarray(draw(p.scene, p.seed)) for p in pictures]
    planes = [torch.from_numpy(a.copy()).permute(2, 0, 1) for a in drawn]
    made = processor.image_processor(planes, return_tensors="pt")
    return made["pixel_values"], made["image_grid_thw"]


def _without_pictures(parts: Sequence[str | ScenePicture]) -> Content:
    content: list[Text | Image] = []
    for part in parts:
        content.append(Text(part) if isinstance(part, str) else _PLACEHOLDER)
    return tuple(content)
