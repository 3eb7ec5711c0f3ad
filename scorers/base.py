"""What a scorer is: a pure description of which stage judges what, and of its scale."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self

from generators.base import (
    Failure,
    Fault,
    Outcome,
    Result,
    StageSpec,
    Unread,
    Walk,
    Weights,
)
from generators.document import Document, Sample, Score
from generators.names import with_overrides
from generators.settings import StageSettings

Direction = Literal["higher", "lower"]
"""Which values are better."""
DIRECTIONS: tuple[Direction, ...] = ("higher", "lower")
UNBOUNDED = "unbounded"
"""The scale of a scorer that declares none."""
_ENDS = re.compile(r"(-?\d+(?:\.\d+)?)-(-?\d+(?:\.\d+)?)")
_ROUNDING = 1e-6
"""Part of a scale by which a value may exceed its ends: cosines in float32 do."""


class Scorer(Protocol):
    """Scores documents against their samples."""

    @property
    def name(self) -> str:
        """As the user names it: `clipscore`, `judge:mmie-score`."""
        ...

    @property
    def scale(self) -> str:
        """The values' range as `LOW-HIGH`, such as `0-100`; any other text if unbounded.

        A value beyond it is not counted: see `admitted`.
        """
        ...

    @property
    def direction(self) -> Direction:
        """Whether `higher` or `lower` values are better."""
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
        """Walk to the score of one document: pure functions between the stages' jobs."""
        ...


@dataclass(frozen=True, slots=True)
class OneStage:
    """What scorers with one stage have in common."""

    name: str
    stage: StageSpec
    settings: ClassVar[type[StageSettings]]
    """Those of the stage."""

    @classmethod
    def of(
        cls,
        name: str,
        weights: Weights,
        overrides: Mapping[str, Any],
        gpu_gib: float = 80.0,
    ) -> Self:
        """Return the scorer with the default settings of its stage, but for `overrides`."""
        settings = with_overrides(cls.settings(), overrides, name)
        return cls(name, settings.spec(settings.stage, weights, gpu_gib))

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stage alone."""
        return (self.stage,)

    @property
    def manner(self) -> str:
        """Empty: there is only one way."""
        return ""

    @property
    def rounds(self) -> int:
        """One."""
        return 1


def with_stage(scorer: Scorer, change: Callable[[StageSpec], StageSpec]) -> Scorer:
    """Return `scorer` with its stage replaced by `change(stage)`."""
    if not isinstance(scorer, OneStage):
        return scorer
    return replace(scorer, stage=change(scorer.stage))


def bounds(scale: str) -> tuple[float, float] | None:
    """Return the ends of a scale written `LOW-HIGH`; None for any other wording."""
    ends = _ENDS.fullmatch(scale)
    return (float(ends[1]), float(ends[2])) if ends else None


def admitted(outcome: Outcome[Score], scale: str) -> Outcome[Score]:
    """`outcome`, or why its value is not a valid score on `scale`.

    A value that is not a finite number is Unread; a finite one beyond the scale is a
    Failure of the scorer, which declared the scale. The record that holds the value stays
    as it is. Rounding may exceed the ends by a millionth of the scale.
    """
    if not isinstance(outcome, Result):
        return outcome
    value = outcome.value.value
    if not math.isfinite(value):
        return Unread(f"the score {value} is not a finite number")
    ends = bounds(scale)
    if ends is None:
        return outcome
    low, high = ends
    slack = _ROUNDING * (high - low)
    if not low - slack <= value <= high + slack:
        reason = f"the score {value:g} is beyond the declared scale {scale}"
        return Failure(reason, Fault.ERROR)
    return outcome


class ItemOutcome(Protocol):
    """The outcome of a plan item."""

    @property
    def subject(self) -> Outcome[Any]:
        """What is judged, or why there is nothing to judge."""
        ...

    @property
    def verdicts(self) -> tuple[Outcome[Any], ...]:
        """The judge's verdicts; empty where there was nothing to judge."""
        ...


class PlanItem(Protocol):
    """A comparison of several answers to one query: an item of a plan."""

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages its walk may use, in chain order."""
        ...

    @property
    def rounds(self) -> int:
        """How often its walk may go through the stages."""
        ...

    def walk(self) -> Walk[Any]:
        """Walk to an `ItemOutcome`, also where something is missing."""
        ...
