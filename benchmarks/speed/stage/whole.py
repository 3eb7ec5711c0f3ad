"""A whole system in one process: its stages one after another, many samples abreast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cluster.local import LocalStages, drive, metered
from cluster.walks import together
from generators.base import Outcome, Result
from generators.document import Document, Sample
from generators.system import Prompter, Repetition, System, answer


class Whole:
    """Answers samples with a system: the walks of all samples advance together."""

    def __init__(self, system: System, prompt: Prompter) -> None:
        self._system, self._repetition = system, Repetition(prompt)
        self._stages = LocalStages()

    def __call__(self, samples: Sequence[Sample]) -> list[Outcome[Document]]:
        """One document per sample; its usage is that of all its stages."""
        used: list[dict[str, float]] = [{} for _ in samples]
        walks = [
            metered(answer(self._system, sample, self._repetition), usage)
            for sample, usage in zip(samples, used, strict=True)
        ]
        outcomes = drive(together(walks), self._stages.outcomes)
        return [_with_usage(o, u) for o, u in zip(outcomes, used, strict=True)]


def _with_usage(outcome: Outcome[Document], used: dict[str, float]) -> Outcome[Document]:
    if not isinstance(outcome, Result):
        return outcome
    # A native draft counts the pictures it asks for, and the renderer counts them again.
    return replace(outcome, usage={**used, "images": len(outcome.value.images)})
