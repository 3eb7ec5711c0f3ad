"""Stages without models whose answers differ by a known amount."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.tasks.published import as_asked
from benchmarks.tasks.task_set import TaskSet
from generators.base import Failure, Fault, Outcome, Result
from generators.custom import drawn
from generators.document import (
    Candidate,
    Draft,
    ImageRequest,
    Request,
    Sample,
    Score,
    Text,
    Turn,
)
from generators.pictures import Drawing, decode, encode

SIDE = 16


def words(request: Request) -> str:
    return " ".join(s.text for s in request.turns[-1].content if isinstance(s, Text))


def numbers() -> TaskSet:
    """Eight queries, `query 0` to `query 7`."""
    samples = tuple(
        Sample(id=str(i), category="c", field="f", turns=(_asks(f"query {i}"),))
        for i in range(8)
    )
    return TaskSet(
        name="numbers",
        samples=samples,
        prompt=as_asked,
        categories={},
        fields=("f",),
        about={},
    )


def _asks(text: str) -> Turn:
    return Turn("user", (Text(text),))


class Planted:
    """Writes `the answer to query N`; with faults in the queries that are named."""

    kind = "draft"
    seeded = False

    def __init__(
        self,
        changed: Sequence[int] = (),
        at: int = 4,
        failing: Sequence[int] = (),
        unsteady: bool = False,
        broken: bool = False,
        raising: Sequence[int] = (),
        dying: int | None = None,
        **_: Any,
    ) -> None:
        self.dying = dying
        if broken:
            raise FileNotFoundError("no weights")
        self.changed, self.at, self.failing = changed, at, failing
        self.unsteady, self.raising, self.calls = unsteady, raising, itertools.count()

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [self._one(words(request)) for request in inputs]

    def _one(self, asked: str) -> Outcome[Draft]:
        number = int(asked.split()[-1])
        if number in self.raising:
            raise RuntimeError(f"cannot answer {number}")
        if self.dying is not None and next(self.calls) >= self.dying:
            return Failure("the server is gone", Fault.ENDPOINT)
        if number in self.failing:
            return Failure("refused", Fault.REFUSED)
        text = f"the answer to {asked}"
        if number in self.changed:
            text = text[: self.at] + "X" + text[self.at + 1 :]
        if self.unsteady:
            text += f" {next(self.calls)}"
        return Result(Draft((Text(text),)))


class PlantedPainter:
    """Draws grey pictures; `spots` pixels have one channel that is `by` lighter."""

    kind = "render"
    version = 1

    def __init__(
        self,
        spots: int = 0,
        by: int = 10,
        side: int = SIDE,
        unsteady: bool = False,
        **_: Any,
    ) -> None:
        self.spots, self.by, self.side = spots, by, side
        self.unsteady, self.calls = unsteady, itertools.count()

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        return [Result(self._one(request)) for request in inputs]

    def _one(self, request: ImageRequest) -> Drawing:
        # The seed of a record decides its grey, so that other seeds would be seen.
        grey = 50 + (request.seed or 0) % 100
        pixels = np.full((self.side, self.side, 3), grey, np.uint8)
        pixels.reshape(-1, 3)[: self.spots, 1] += self.by
        if self.unsteady:
            pixels[-1, -1, 2] += next(self.calls)
        return Drawing(pixels)


class Illustrated(Planted):
    """A whole answer: text, then a picture that it has drawn."""

    def __init__(self, spots: int = 0, alone: Sequence[int] = (), **options: Any) -> None:
        super().__init__(**options)
        self.painter, self.alone = PlantedPainter(spots), alone

    def _one(self, asked: str) -> Outcome[Draft]:
        made = super()._one(asked)
        if not isinstance(made, Result) or int(asked.split()[-1]) in self.alone:
            return made
        picture = decode(self.painter._one(ImageRequest(prompt=asked, seed=1)).encoded())
        return Result(Draft((*made.value.segments, drawn(picture))))


class CountX:
    """A scorer: 1 for an answer with an X, and the greenness of its pictures."""

    kind = "score"
    scale = "0-1000"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        return [Result(Score(float(c.document.text.count("X")))) for c in inputs]


def png(pixels: np.ndarray) -> Any:
    from PIL import Image as Pillow

    return encode(Pillow.fromarray(pixels))
