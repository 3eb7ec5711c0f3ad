"""Everything that is noted about one way while its rounds run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.speed.instruments.clock import Clock
from benchmarks.speed.instruments.device import Traffic, synchronise
from benchmarks.speed.instruments.exchanges import ExchangeTimes
from benchmarks.speed.instruments.flops import Flops
from benchmarks.speed.instruments.speeds import Sizes, Speed, Timings
from benchmarks.speed.instruments.steps import StepTimes
from benchmarks.speed.instruments.tokens import TokenTimes
from cluster.energy import EnergyMeter
from generators.base import Outcome, Result, add_usage
from generators.document import Document, Draft, Image
from generators.pictures import Drawing, decode


class Observations:
    """What the rounds of one way took."""

    def __init__(self, clock: Clock, meter: EnergyMeter) -> None:
        self.clock = clock
        self.warm_up: list[float] = []
        """Seconds of the calls of the first round."""
        self.peak_gib = 0.0
        self.flops = Flops()
        self.traffic = Traffic()
        self._meter = meter
        self._rounds: list[float] = []
        self._joules: list[float] = []
        self._requests: list[float] = []
        self._images: list[float] = []
        self._first_batch: list[float] = []
        self._outcomes: list[Outcome[Any]] = []
        self._tokens = TokenTimes(clock.now)
        self._steps = StepTimes(clock)
        self._exchanges = ExchangeTimes(clock.now)

    @contextmanager
    def timed_round(self) -> Iterator[None]:
        """One round of the whole workload runs inside."""
        self._outcomes = []
        with ExitStack() as stack:
            for watch in (self._tokens, self._steps, self._exchanges):
                stack.enter_context(watch.watching())
            synchronise()
            before, began = self._meter.joules(), self.clock.now()
            yield
            synchronise()
            self._rounds.append(self.clock.now() - began)
            after = self._meter.joules()
        if before is not None and after is not None:
            self._joules.append(after - before)

    @contextmanager
    def timed_call(self, batch: Sequence[Any]) -> Iterator[list[Outcome[Any]]]:
        """One call runs inside and adds its outcomes to the list."""
        outcomes: list[Outcome[Any]] = []
        first = not self._outcomes
        self._tokens.begin()
        began = self.clock.mark()
        yield outcomes
        seconds = self.clock.seconds(began, self.clock.mark())
        self._tokens.end()
        self._steps.end()
        requests = self._exchanges.taken() or [seconds] * len(batch)
        self._requests += requests
        if first:
            self._first_batch.append(seconds)
        self._outcomes += outcomes
        self._images += _per_image(requests, outcomes)

    def speed(self, way: str) -> Speed:
        """All of it as values."""
        usage: dict[str, float] = {}
        for outcome in self._outcomes:
            add_usage(usage, getattr(outcome, "usage", {}))
        failed = [o for o in self._outcomes if not isinstance(o, Result)]
        reasons = Counter(getattr(o, "reason", "") for o in failed).most_common(3)
        results = [o for o in self._outcomes if isinstance(o, Result)]
        return Speed(
            way=way,
            seconds=self._rounds,
            records=len(results),
            usage=dict(sorted(usage.items())),
            peak_memory_gib=self.peak_gib,
            weight_bytes=self.traffic.bytes,
            failures=dict(reasons),
            answers=[getattr(o, "value", None) for o in self._outcomes],
            timings=self._timings(),
            pictures=[size for o in results for size in picture_sizes(o.value)],
            flops=self.flops.count,
            flops_reason=self.flops.reason,
            joules=self._joules,
            energy_reason=self._meter.reason,
            parameters=self.traffic.parameters,
            dtype=str(self.traffic.dtype or "").removeprefix("torch.") or None,
            largest_module=self.traffic.largest,
        )

    def _timings(self) -> Timings:
        reasons = {"tokens": self._tokens.reason, "steps": self._steps.reason}
        return Timings(
            requests=self._requests,
            images=self._images,
            first_tokens=self._tokens.first,
            between_tokens=self._tokens.between,
            steps=self._steps.seconds,
            first_batch=self._first_batch,
            warm_up=sum(self.warm_up) if self.warm_up else None,
            first_call=self.warm_up[0] if self.warm_up else None,
            reasons={name: reason for name, reason in reasons.items() if reason},
        )


def _per_image(requests: Sequence[float], outcomes: Sequence[Outcome[Any]]) -> list[float]:
    """Seconds per picture of the requests that gave any; none where they do not match."""
    if len(requests) != len(outcomes):
        return []
    pairs = zip(requests, outcomes, strict=True)
    counts = [(s, len(_pictures(getattr(o, "value", None)))) for s, o in pairs]
    return [seconds / count for seconds, count in counts if count]


def _pictures(value: Any) -> Sequence[Drawing | Image]:
    if isinstance(value, Drawing | Image):
        return [value]
    return value.images if isinstance(value, Draft | Document) else ()


def picture_sizes(value: Any) -> Sizes:
    """Widths and heights of the finished pictures of a result."""
    return [
        (picture.pixels.shape[1], picture.pixels.shape[0])
        if isinstance(picture, Drawing)
        else decode(picture).size
        for picture in _pictures(value)
    ]
