"""What a user might bring: scorers and a task set, named as `module:attribute`."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from plait.benchmarks.tasks.task_set import TaskSet, load
from plait.generators.base import Failure, Fault, Outcome, Result
from plait.generators.document import (
    Candidate,
    Document,
    Draft,
    Image,
    ImageRequest,
    Query,
    Request,
    Score,
    Text,
    Turn,
)


class Constant:
    """A scorer to which all answers are alike."""

    kind = "score"

    def __call__(self, inputs: Sequence[Candidate]) -> list[float]:
        return [1.0 for _ in inputs]


class Errors(Constant):
    scale = "0-10"
    direction = "lower"


class Plain(Constant):
    pass


class Sideways(Constant):
    direction = "sideways"


class Upside(Constant):
    scale = "10-0"


class Poet:
    """A user's LVLM."""

    kind = "draft"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        contents = [request.turns[-1].content for request in inputs]
        texts = ["".join(s.text for s in c if isinstance(s, Text)) for c in contents]
        return [Result(Draft((Text(f"a poem about {text}"),))) for text in texts]


class Thinker:
    """A user's LVLM that thinks aloud, or does not any more; then one query fails."""

    kind = "draft"
    thinks: ClassVar[bool] = True

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [self._draft(request) for request in inputs]

    def _draft(self, request: Request) -> Outcome[Draft]:
        if self.thinks:
            return Result(Draft((Text("<think>Is it A?</think>It is B."),)))
        if any("!refuse" in getattr(s, "text", "") for s in request.turns[-1].content):
            return Failure("the reply is empty", Fault.ENDPOINT)
        return Result(Draft((Text("It is C."),)))


class Seedless:
    """A user's text-to-image model that draws the same whatever the seed."""

    kind = "render"
    seeded = False

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Image]]:
        raise NotImplementedError


class Careless:
    """An LVLM that says its key, and where it cannot log in."""

    kind = "draft"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        print("logging in with", os.environ["OPENAI_API_KEY"], file=sys.stderr)
        raise ConnectionError(f"cannot log in with {os.environ['OPENAI_API_KEY']}")


def halves() -> TaskSet:
    """A task set in which half a character stands in each of the places there are."""
    task, half = load("sample"), "half \ud83d"
    first, *_ = (s for s in task.samples if isinstance(s, Query))
    wrong = [
        {"turns": (*first.turns, Turn("user", (Text(half),)))},
        {"reference": Document((Text("whole"), Text(half)))},
        {"criteria": half},
        {"metadata": {"a": half}},
        {"id": half, "category": half},
    ]
    broken = (replace(first, **({"id": f"q{i}"} | w)) for i, w in enumerate(wrong))
    return replace(task, name="halves", samples=(first, *broken))


def three() -> TaskSet:
    """A task set of the user's."""
    task = load("sample")
    return replace(task, name="three", samples=task.samples[:3])


class Looker:
    """A user's LVLM that says which pictures it was shown, by their content."""

    kind = "draft"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        seen = ([hashlib.sha256(i.read()).hexdigest() for i in r.images] for r in inputs)
        return [Result(Draft((Text(f"I saw {', '.join(s) or 'none'}"),))) for s in seen]


class Lengths:
    """A scorer whose value tells what it was given: letters of criteria and of truth."""

    kind = "score"
    scale = "0-100000"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        return [Result(Score(self._value(candidate))) for candidate in inputs]

    def _value(self, candidate: Candidate) -> float:
        truth = candidate.reference.text if candidate.reference else ""
        return 1000.0 * len(candidate.criteria or "") + len(truth)


class Others(Lengths):
    """The same as another scorer."""


class Layout:
    """Returns its parts in place of a score; the answer's text says what is wrong."""

    kind = "score"
    parts: ClassVar[dict[str, Any]] = {
        "layout": "0-10",
        "style": {"scale": "0-10", "weight": 3},
    }

    def __init__(self, **settings: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Candidate]) -> list[Any]:
        return [self._parts(len(one.document.text)) for one in inputs]

    def _parts(self, length: int) -> Any:
        return {
            0: {"layout": 7},
            1: {"layout": 7, "style": 11},
            2: Result({"layout": 7, "style": 9}),
        }.get(length, {"layout": 1, "style": True})


class Harsh(Layout):
    """The same, whose score is the lesser part."""

    scale = "0-10"

    def score_of(self, parts: dict[str, float]) -> float:
        return min(parts.values())
