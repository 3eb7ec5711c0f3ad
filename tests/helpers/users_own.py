"""What a user might bring: scorers and a task set, named as `module:attribute`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.tasks.task_set import TaskSet, load
from generators.base import Outcome, Result
from generators.document import Draft, Request, Text


class Errors:
    kind = "score"
    scale = "0-10"
    direction = "lower"


class Plain:
    kind = "score"


class Sideways:
    kind = "score"
    direction = "sideways"


class Poet:
    """A user's LVLM."""

    kind = "draft"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        contents = [request.turns[-1].content for request in inputs]
        texts = ["".join(s.text for s in c if isinstance(s, Text)) for c in contents]
        return [Result(Draft((Text(f"a poem about {text}"),))) for text in texts]


def three() -> TaskSet:
    """A task set of the user's."""
    task = load("sample")
    return replace(task, name="three", samples=task.samples[:3])
