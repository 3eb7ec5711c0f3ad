"""One call of a stage: what it takes, and an outcome for each input, whatever it returned.

A stage may be a user's own and return what is no outcome. Each such value becomes a
`Failure` of its record, with words that say what the stage should return.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from plait.cluster.energy import EnergyMeter
from plait.cluster.loading import error_text, stage_fault
from plait.cluster.tracing.journal import SpanList
from plait.generators.base import (
    Failure,
    Fault,
    Kind,
    Outcome,
    Result,
    StageInput,
    StageSpec,
)
from plait.generators.images import ImageError
from plait.generators.returned import VALID, outcome_of
from plait.generators.secrets import without_keys_in
from plait.generators.source import place_of


@dataclass
class StageCall:
    """Calls a stage with a batch of inputs, in whichever thread it is called itself."""

    spec: StageSpec
    stage: Any
    inputs: list[StageInput]
    spans: SpanList
    """To which the time of computing is added."""
    tell: Callable[[Exception], None]
    """Prints an error that a record failed by."""
    meter: EnergyMeter | None = None
    """Counts the energy that the records of the batch share."""
    started: threading.Event = field(default_factory=threading.Event)
    """Set when its thread has come to it: it may have waited for other calls."""
    busy_s: float = 0.0
    """How long the stage took, once it has returned."""

    def __call__(self) -> list[Outcome[Any]]:
        """Return the stage's outcomes, one per input."""
        self.started.set()
        joules_before = self.meter.joules() if self.meter else None
        returned = self._compute()
        outcomes = without_keys_in(self._one_for_each(returned))
        joules_after = self.meter.joules() if self.meter else None
        if joules_before is None or joules_after is None:
            return outcomes
        return _with_joules(outcomes, joules_after - joules_before)

    def _compute(self) -> Any:
        """What the stage returns, as it is."""
        began = time.perf_counter()
        with self.spans.phase("compute"):
            returned = self.stage(self.inputs)
            if self.spec.kind is Kind.SCORE:
                # Only here: a worker that only answers imports no scorers.
                from plait.scorers.own_parts import with_scores

                returned = with_scores(self.stage, returned)
        self.busy_s = time.perf_counter() - began
        return returned

    def _one_for_each(self, returned: Any) -> list[Outcome[Any]]:
        """What the stage returned as an outcome for each input; a Failure for what is none.

        Where their numbers differ, nobody knows which outcome is of which input, and a
        failure stands for each. The batch is not bisected: of one input alone, a stage that
        looks at the first only would seem to be right.
        """
        count = len(self.inputs)
        is_list = isinstance(returned, list | tuple)
        if is_list and len(returned) == count:
            return [self._outcome(one) for one in returned]
        given = len(returned) if is_list else type(returned).__name__
        many = "1 input" if count == 1 else f"{count} inputs"
        reason = (
            f"{self._name} returned {given} for {many}; it must return a list with one "
            "outcome for each, in order"
        )
        return [Failure(reason, Fault.ERROR) for _ in self.inputs]

    def _outcome(self, returned: Any) -> Outcome[Any]:
        """One of what the stage returned; an exception in its place fails it alone."""
        if isinstance(returned, Exception):
            if stage_fault(returned) != "raised":
                raise returned  # it is about the whole process, not about this record
            self.tell(returned)
            return Failure(error_text(returned), Fault.ERROR)
        kind = self.spec.kind
        try:
            return outcome_of(kind, returned)
        except ImageError as error:
            reason = f"{self._name} returned an image that cannot be used: {error}"
        except TypeError as error:
            reason = f"{self._name} {error}; valid: {VALID[kind]}"
        return Failure(reason, Fault.ERROR)

    @property
    def _name(self) -> str:
        """The name of what computes, and where its code is."""
        place = place_of(self.stage)
        return f"{self.spec.target} ({place})" if place else self.spec.target


def _with_joules(outcomes: list[Outcome[Any]], joules: float) -> list[Outcome[Any]]:
    """The outcomes, of which those that were computed share the energy of their batch.

    What was skipped was not computed.
    """
    computed = [o for o in outcomes if isinstance(o, Result | Failure)]
    share = {"joules": joules / max(1, len(computed))}
    shared: list[Outcome[Any]] = []
    for outcome in outcomes:
        if isinstance(outcome, Result | Failure):
            outcome = replace(outcome, usage={**outcome.usage, **share})
        shared.append(outcome)
    return shared
