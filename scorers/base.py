"""What a scorer is: a pure description of which stage judges what, and of its scale."""

from __future__ import annotations

from typing import Protocol

from generators.base import StageSpec, Walk
from generators.document import Document, Sample, Score


class Scorer(Protocol):
    """Scores documents against the samples that asked for them."""

    @property
    def name(self) -> str:
        """As the user names it: `clipscore`, `judge:mmie-score`."""
        ...

    @property
    def scale(self) -> str:
        """The values' range, for the heading of a table: `0-100`."""
        ...

    @property
    def manner(self) -> str:
        """How it judges, where the user has a choice: `our rubrics, corrected mode`."""
        ...

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages its walks may use, in chain order."""
        ...

    @property
    def rounds(self) -> int:
        """How often a walk may go through the stages.

        More than once where a judge is asked again after a reply that cannot be read.
        """
        ...

    def judge(self, sample: Sample, document: Document) -> Walk[Score]:
        """Walk to the score of one document: pure functions around the stages' jobs."""
        ...


class OneStage:
    """What scorers with one stage have in common."""

    __slots__ = ()
    stage: StageSpec

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stage alone."""
        return (self.stage,)

    @property
    def manner(self) -> str:
        """There is one way."""
        return ""

    @property
    def rounds(self) -> int:
        """Asked once."""
        return 1
