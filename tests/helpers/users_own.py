"""What a user might bring: scorers and a task set, named as `module:attribute`."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.tasks.task_set import TaskSet, load


class Errors:
    kind = "score"
    scale = "0-10"
    direction = "lower"


class Plain:
    kind = "score"


class Sideways:
    kind = "score"
    direction = "sideways"


def three() -> TaskSet:
    """A task set of the user's."""
    task = load("sample")
    return replace(task, name="three", samples=task.samples[:3])
