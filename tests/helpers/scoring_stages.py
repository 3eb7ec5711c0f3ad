"""Scorers and judges without models for `POST /score`; texts say what they should do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from comparing_helpers import MUTE, said, text_of

from plait.generators.base import (
    Failure,
    Fault,
    NotApplicable,
    Outcome,
    Placement,
    Result,
    Unread,
    Unscored,
)
from plait.generators.document import Candidate, Document, Draft, Request, Score
from plait.generators.images import decode


class Letters:
    """The letters of an answer and its images; what the answer says decides otherwise."""

    kind = "score"
    scale = "0-100"
    placement = Placement(num_cpus=0.1, batch_size=4)
    before: ClassVar[Callable[[], object]] = lambda: None
    """Called before each batch."""
    order: ClassVar[list[str]] = []
    """The texts of the answers, as they were scored."""
    guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        type(self).before()
        with self.guard:
            self.order.extend(candidate.document.text for candidate in inputs)
        return [self._score(candidate) for candidate in inputs]

    def _score(self, candidate: Candidate) -> Outcome[Score]:
        text = candidate.document.text
        images = len(candidate.document.images)
        if text == "!raise":
            raise RuntimeError("cannot score this")
        special: dict[str, Outcome[Score]] = {
            "!refuse": Failure("will not score this", Fault.REFUSED),
            "!unscored": Unscored("nothing to score"),
            "!unread": Unread("half a verdict", {"style": 3}),
            "!else": NotApplicable("of other queries"),
            "!beyond": Result(Score(101.0)),
            "!nan": Result(Score(float("nan"))),
            "!odd": Result(Score(1.0, {"ratio": float("inf"), "rows": (1, 2)})),
        }
        usual = Result(Score(len(text) + images / 10, {"letters": len(text)}))
        return special.get(text, usual)


class One(Letters):
    """The same, one at a time."""

    placement = Placement(num_cpus=0.1, batch_size=1)


class ShyJudge:
    """A chat model that gives its score when it is asked again; mute where told to be."""

    kind = "draft"
    seeded = True
    placement = Placement(num_cpus=0.1, batch_size=8)

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [self._reply(request) for request in inputs]

    def _reply(self, request: Request) -> Outcome[Draft]:
        if len(request.turns) == 1 or "!mute" in text_of(request):
            return said(MUTE)
        return said(f"### Score\n{(request.seed or 0) % 7}")


class Reds:
    """The red of an image's first pixel; nothing where the question says `!skip`."""

    kind = "score"
    scale = "0-255"
    channel = 0

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        return [self._score(candidate) for candidate in inputs]

    def _score(self, candidate: Candidate) -> Outcome[Score]:
        if "!skip" in Document(candidate.question).text:
            return Unscored("told to skip")
        (image,) = candidate.document.images
        return Result(Score(float(decode(image).getpixel((0, 0))[self.channel])))


class Blues(Reds):
    """The blue, of which less is better."""

    direction = "lower"
    channel = 2
