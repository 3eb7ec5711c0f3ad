"""Answers of every way to the same queries, in this process: no Ray and no store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.fidelity.ways import ResolvedWay
from cluster.local import LocalStages, drive, stop_servers
from cluster.stage_errors import release_memory
from cluster.store import read_blob
from cluster.walks import together
from generators.base import Failure, Fault, Job, Outcome
from generators.document import Document, Sample
from generators.system import Prompter, Repetition

Documents = tuple[Outcome[Document], ...]
"""One outcome per sample."""


@dataclass(frozen=True, kw_only=True)
class WayAnswers:
    """What a way answered, as often as it was run."""

    way: ResolvedWay
    rounds: tuple[Documents, ...] = ()
    seconds: tuple[float, ...] = ()
    """Of every round, without loading."""
    problem: str = ""
    """Why the way could not be run at all."""

    @property
    def first(self) -> Documents:
        """The answers that are compared with other ways."""
        return self.rounds[0]


class FaultTolerantStages(LocalStages):
    """Stages of which a batch that raises becomes failures that say why."""

    def _batch(self, jobs: Sequence[Job]) -> list[Outcome[object]]:
        try:
            return super()._batch(jobs)
        except Exception as error:
            # Not tried again in smaller batches: the batch is part of the way.
            reason = f"{type(error).__name__}: {error}"
            return [Failure(reason, Fault.ERROR) for _ in jobs]


def answers_of(
    way: ResolvedWay,
    samples: Sequence[Sample],
    prompt: Prompter,
    *,
    seed: int = 0,
    repeats: int = 1,
    on_round: Callable[[int], None] = lambda _: None,
) -> WayAnswers:
    """Run one way `repeats` times over the same queries with the same seeds.

    Its models are loaded once and released at the end. A way that cannot be loaded has no
    rounds and a `problem`. `on_round` is called with the number of each round, from 1.
    """
    stages = FaultTolerantStages(read_blob, in_batches=True)
    repetition = Repetition(prompt, seed)
    try:
        for spec in way.stages:
            stages.stage(spec)
    except Exception as error:
        # Whatever a library raises while it loads, the other ways are still measured.
        release(stages)
        return WayAnswers(way=way, problem=f"{type(error).__name__}: {error}")
    rounds, seconds = [], []
    try:
        for number in range(1, repeats + 1):
            on_round(number)
            began = time.perf_counter()
            walks = [way.walk(sample, repetition) for sample in samples]
            rounds.append(tuple(drive(together(walks), stages.outcomes)))
            seconds.append(time.perf_counter() - began)
    finally:
        release(stages)
    return WayAnswers(way=way, rounds=tuple(rounds), seconds=tuple(seconds))


def release(stages: LocalStages) -> None:
    """Close the stages, end their servers, and give their memory back."""
    stages.close()
    stop_servers()
    release_memory()
