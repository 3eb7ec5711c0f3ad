"""What a scorer is: a pure description of which stage judges what, and of its scale."""

from __future__ import annotations

from typing import Any, Protocol

from generators.base import Outcome, StageSpec, Walk
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


class ItemOutcome(Protocol):
    """What became of a comparison."""

    @property
    def subject(self) -> Outcome[Any]:
        """What is judged, or why there is nothing to judge."""
        ...

    @property
    def verdicts(self) -> tuple[Outcome[Any], ...]:
        """What the judge made of it; none where there was nothing to judge."""
        ...


class PlanItem(Protocol):
    """Answers to one query that a judge sets beside one another: an item of a plan."""

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages its walk may use, in chain order."""
        ...

    @property
    def rounds(self) -> int:
        """How often its walk may go through the stages."""
        ...

    def walk(self) -> Walk[Any]:
        """Walk to a result that is `ItemOutcome`, whatever was missing."""
        ...
