"""Walks side by side. Standard library only."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import chain, islice
from typing import Any

from plait.generators.base import Job, Outcome, Walk


def together(
    walks: Sequence[Walk[Any]],
) -> Generator[list[Job], list[Outcome[Any]], list[Outcome[Any]]]:
    """Run several walks side by side; the outcomes of all, in order."""
    if len(walks) == 1:
        return [(yield from walks[0])]
    ended: dict[int, Outcome[Any]] = {}
    requests: dict[int, list[Job]] = {}
    # None for a walk that has not begun, which is sent nothing.
    answers: dict[int, list[Outcome[Any]] | None] = dict.fromkeys(range(len(walks)))
    while len(ended) < len(walks):
        for i, answer in answers.items():
            try:
                step = next(walks[i]) if answer is None else walks[i].send(answer)
                requests[i] = step
            except StopIteration as stop:
                ended[i] = stop.value
                requests.pop(i, None)
        answers = {}
        if requests:
            outcomes = iter((yield list(chain.from_iterable(requests.values()))))
            answers = {i: list(islice(outcomes, len(jobs))) for i, jobs in requests.items()}
    return [ended[i] for i in range(len(walks))]
