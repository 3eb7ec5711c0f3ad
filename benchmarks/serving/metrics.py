"""What `/metrics` tells Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from cluster.live import BatchTime

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 600)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class ServingMetrics:
    """Counts of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self._requests = Counter(
            "plait_requests", "Requests by path and status.", ["path", "status"], registry=r
        )
        self._seconds = Histogram(
            "plait_request_seconds",
            "From arrival to the reply.",
            ["path"],
            registry=r,
            buckets=_SECONDS,
        )
        self.open = Gauge(
            "plait_open_requests", "Requests that wait or are computed.", registry=r
        )
        self._batches = Histogram(
            "plait_batch_size",
            "Records computed together, by stage.",
            ["stage"],
            registry=r,
            buckets=_SIZES,
        )
        self._busy = Counter(
            "plait_stage_seconds", "Seconds in a stage.", ["stage"], registry=r
        )
        self._usage = Counter("plait_usage", "Tokens, images, steps.", ["kind"], registry=r)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batch(self, batch: BatchTime) -> None:
        """Count a batch."""
        self._batches.labels(batch.stage).observe(batch.jobs)
        self._busy.labels(batch.stage).inc(batch.seconds)

    def used(self, usage: Mapping[str, float]) -> None:
        """Count what one request used."""
        for kind, amount in usage.items():
            self._usage.labels(kind).inc(amount)

    def text(self) -> bytes:
        """All counts in Prometheus' text format."""
        return generate_latest(self.registry)
