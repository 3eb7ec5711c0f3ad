"""A whole system in one process: its stages one after another, many samples abreast."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from generators.base import Job, Outcome, Result, StageSpec, imported
from generators.document import Blob, Document, Sample, with_blobs
from generators.pictures import Drawing
from generators.system import Prompter, Repetition, System, answer


class Stages:
    """Loaded stages by their spec; each is loaded when it is first asked."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def stage(self, spec: StageSpec) -> Any:
        """The loaded stage."""
        if spec.digest not in self._loaded:
            settings = {**spec.settings, **spec.options}
            self._loaded[spec.digest] = imported(spec.target)(**settings)
        return self._loaded[spec.digest]

    def outcomes(self, jobs: Sequence[Job]) -> list[Outcome[Any]]:
        """The outcomes of jobs of one stage, in one call, as a worker would store them."""
        inputs = [with_blobs(job.input, at_hand) for job in jobs]
        return [_stored(outcome) for outcome in self.stage(jobs[0].spec)(inputs)]


class Whole:
    """Answers samples with a system: the walks of all samples advance together."""

    def __init__(self, system: System, prompt: Prompter) -> None:
        self._system, self._repetition = system, Repetition(prompt)
        self._stages = Stages()

    def __call__(self, samples: Sequence[Sample]) -> list[Outcome[Document]]:
        """One document per sample; its usage is that of all its stages."""
        walks = [answer(self._system, sample, self._repetition) for sample in samples]
        used: list[Counter[str]] = [Counter() for _ in samples]
        ended: dict[int, Outcome[Document]] = {}
        replies: dict[int, list[Outcome[Any]] | None] = dict.fromkeys(range(len(walks)))
        while replies:
            asked: dict[int, list[Job]] = {}
            for i, reply in replies.items():
                try:
                    asked[i] = walks[i].send(reply)  # type: ignore[arg-type]
                except StopIteration as stop:
                    ended[i] = stop.value
            replies = {**self._answers(asked)}
            for i, reply in replies.items():
                for outcome in reply or ():
                    used[i].update(getattr(outcome, "usage", {}))
        return [_with_usage(ended[i], used[i]) for i in range(len(samples))]

    def _answers(self, asked: dict[int, list[Job]]) -> dict[int, list[Outcome[Any]]]:
        """Every walk's outcomes; jobs of one stage go to it in one call."""
        by_stage: dict[str, list[tuple[int, Job]]] = defaultdict(list)
        for i, jobs in asked.items():
            for job in jobs:
                by_stage[job.spec.digest].append((i, job))
        answers: dict[int, list[Outcome[Any]]] = {i: [] for i in asked}
        for pairs in by_stage.values():
            outcomes = self._stages.outcomes([job for _, job in pairs])
            for (i, _), outcome in zip(pairs, outcomes, strict=True):
                answers[i].append(outcome)
        return answers


def at_hand(blob: Blob) -> Blob:
    """The blob with its bytes, read from its file where they are still there."""
    if blob.data is not None:
        return blob
    return replace(blob, data=Path(str(blob.place)).read_bytes())


def _stored(outcome: Outcome[Any]) -> Outcome[Any]:
    if isinstance(outcome, Result) and isinstance(outcome.value, Drawing):
        return replace(outcome, value=outcome.value.encoded())
    return outcome


def _with_usage(outcome: Outcome[Document], used: Counter[str]) -> Outcome[Document]:
    if not isinstance(outcome, Result):
        return outcome
    # A native draft counts the pictures it asks for, and the renderer counts them again.
    return replace(outcome, usage={**used, "images": len(outcome.value.images)})
