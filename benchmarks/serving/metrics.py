"""What `/metrics` tells Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_PATHS = ("chat/completions", "images/generations", "models")
_COUNTED = {*(f"/v1/{p}" for p in _PATHS), "/health", "/metrics", "/version"}
_COUNTED |= {"/score", "/scorers"}
"""Paths that are counted by themselves: labels of whatever anybody asks for would be
without end."""
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 600)
_SCORE_SECONDS = (0.005, 0.01, 0.025, 0.05, *_SECONDS)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class ServingMetrics:
    """Counts of one server, in a registry of its own."""

    def __init__(self) -> None:
        # Prometheus' usual registry is the process's: two servers in it would be one.
        self._registry = own = CollectorRegistry()
        counter = partial(Counter, namespace="plait", registry=own)
        histogram = partial(Histogram, namespace="plait", registry=own)
        told = "Requests that wait or are computed."
        self.open = Gauge("open_requests", told, namespace="plait", registry=own)
        told = "Requests by path and status."
        self._requests = counter("requests", told, ["path", "status"])
        told = "From arrival to the reply."
        self._seconds = histogram("request_seconds", told, ["path"], buckets=_SECONDS)
        told = "Records computed together, by stage."
        self._batches = histogram("batch_size", told, ["stage"], buckets=_SIZES)
        self._busy = counter("stage_seconds", "Seconds in a stage.", ["stage"])
        self._usage = counter("usage", "Tokens, images, steps.", ["kind"])
        told = "Items that wait for their scores or are scored, by scorer."
        self._waiting = Gauge(
            "waiting_scores", told, ["scorer"], namespace="plait", registry=own
        )
        told = "Items by scorer and outcome."
        self._scores = counter("scores", told, ["scorer", "outcome"])
        told = "From an item's arrival to its outcome, by scorer."
        self._score_seconds = histogram(
            "score_seconds", told, ["scorer"], buckets=_SCORE_SECONDS
        )

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        path = path if path in _COUNTED else "other"
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batch(self, stage: str, records: int, seconds: float) -> None:
        """Count a batch."""
        self._batches.labels(stage).observe(records)
        self._busy.labels(stage).inc(seconds)

    def used(self, usage: Mapping[str, float]) -> None:
        """Count what one request used."""
        for kind, amount in usage.items():
            self._usage.labels(kind).inc(amount)

    @contextmanager
    def scoring(self, scorer: str) -> Iterator[None]:
        """Count an item as one that waits, and how long it does."""
        with (
            self._waiting.labels(scorer).track_inprogress(),
            self._score_seconds.labels(scorer).time(),
        ):
            yield

    def score(self, scorer: str, outcome: str) -> None:
        """Count an item whose outcome is known."""
        self._scores.labels(scorer, outcome).inc()

    def text(self) -> bytes:
        """Return all counts in Prometheus' text format."""
        return generate_latest(self._registry)
