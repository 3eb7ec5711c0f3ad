"""One call of a stage inside a worker: when it ran, how long, and with what energy."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cluster.energy import EnergyMeter
from cluster.tracing.spans import SpanList
from generators.base import Failure, Fault, Outcome, Placement, Result, StageInput
from generators.secrets import without_keys_in


class OverdueBatch(Exception):
    """A batch is still computing; not a TimeoutError, which a stage may raise itself."""


class ServerEnded(Exception):
    """The stage's own server has ended while it was asked."""


def is_unanswered(outcome: Outcome[Any]) -> bool:
    """Whether a server gave no answer to this request."""
    return isinstance(outcome, Failure) and outcome.fault is Fault.ENDPOINT


class TimedCall:
    """One call of the stage, which says when it began and how long it took."""

    def __init__(
        self,
        stage: Any,
        inputs: list[StageInput],
        spans: SpanList,
        meter: EnergyMeter | None = None,
    ) -> None:
        """With a `meter`, the records of the batch share the energy it counts."""
        self.stage = stage
        self.inputs = inputs
        self.spans = spans
        self.meter = meter
        self.started = threading.Event()
        self.busy_s = 0.0

    def __call__(self) -> list[Outcome[Any]]:
        """The stage's outcomes, one per input."""
        self.started.set()
        before = self.meter.joules() if self.meter else None
        began = time.perf_counter()
        with self.spans.phase("compute"):
            outcomes: list[Outcome[Any]] = self.stage(self.inputs)
        self.busy_s = time.perf_counter() - began
        if len(outcomes) != len(self.inputs):
            raise ValueError(
                f"the stage returned {len(outcomes)} outcomes for {len(self.inputs)} inputs"
            )
        outcomes = without_keys_in(outcomes)
        after = self.meter.joules() if self.meter else None
        if before is None or after is None:
            return outcomes
        return with_joules(outcomes, after - before)


def with_joules(outcomes: Sequence[Outcome[Any]], joules: float) -> list[Outcome[Any]]:
    """The outcomes of a batch, with its energy in equal shares as usage."""
    counted = [o for o in outcomes if isinstance(o, Result | Failure)]
    share = joules / max(1, len(counted))
    return [
        replace(o, usage={**o.usage, "joules": share})
        if isinstance(o, Result | Failure)
        else o
        for o in outcomes
    ]


def meter_of(placement: Placement) -> EnergyMeter | None:
    """A meter of the worker's GPUs; None where it has none of its own.

    A counter is of a whole device: workers that share one cannot tell their shares.
    """
    whole = placement.num_gpus >= 1 and float(placement.num_gpus).is_integer()
    meter = EnergyMeter() if whole else None
    return meter if meter is not None and meter.reason is None else None
