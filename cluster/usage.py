"""What the records of a run have used and cost, and when no more may be paid."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from plait.cluster.plan import Plan
from plait.cluster.shard import Shard
from plait.cluster.store import Store
from plait.cluster.worker import Receipt
from plait.generators.base import PEAKS, Job, StageSpec, add_usage
from plait.generators.batches import BATCH_PRICE, handed_batches, most_usage
from plait.generators.buckets import AnyPath
from plait.generators.document import Request

_PRICES = ("price_per_million_input", "price_per_million_output", "price_per_image")


class Spending:
    """Adds up the `cost` of all records of a run, those of earlier commands included.

    Requests in flight when the ceiling is reached are still paid. Those that are handed in
    to a batch count from then on, as what they may cost at most, and as what they did cost
    once they have a record. A shard counts the records of its own queries, up to its part
    of the ceiling.
    """

    def __init__(self, ceiling: float | None, shard: Shard | None = None) -> None:
        self.ceiling = shard.share(ceiling) if shard else ceiling
        self._shard = shard
        self._recorded = 0.0
        self._reserved: dict[str, float] = {}
        """By key, what requests in batches may cost at most."""
        self._reserved_sum = 0.0
        self._paid: set[str] = set()
        """Digests of stages that have reported a cost."""
        self._unknown: str | None = None
        """A stage with prices whose server does not report its usage."""

    @property
    def spent(self) -> float:
        """What records have cost, and what requests in batches may cost."""
        return self._recorded + self._reserved_sum

    def set_ceiling(
        self, ceiling: float, store: Store, stages: Iterable[StageSpec]
    ) -> None:
        """Set the ceiling of a run under way, which may have had none."""
        had_none = self.ceiling is None
        self.ceiling = self._shard.share(ceiling) if self._shard else ceiling
        if had_none:
            self._recorded = 0.0
            self.count_records(store, stages)

    def count_records(self, store: Store, stages: Iterable[StageSpec]) -> None:
        """Count what the records of `stages` have cost, where there is a ceiling."""
        if self.ceiling is None:
            return
        for spec in stages:
            for cost in _costs(store, spec, self._shard):
                self._add(spec, cost)

    def count_batches(self, store: Store, stages: Iterable[StageSpec]) -> None:
        """Count the requests that earlier commands handed in and that have no record.

        Those that have one, since a driver ended before it noted so, are noted.
        """
        specs = {spec.digest: spec for spec in stages}
        for batch in handed_batches(store.root):
            spec = specs.get(batch.stage)
            # Those without a record.
            left = dict(batch.requests)
            for key, request in batch.requests.items():
                place = None if spec is None else store.place(spec, key)
                if place is not None and place.final:
                    del left[key]
                elif self._shard is None or self._shard.holds(request.label):
                    self._reserve(key, request.cost or 0.0)
            if len(left) < len(batch.requests):
                replace(batch, requests=left).save(store.root)

    def refusal(self, job: Job) -> str | None:
        """Reserve what a request may cost that is to be handed in to a batch.

        Return why it may not be; None where it may, or was handed in before.
        """
        if job.key in self._reserved:
            return None
        reason = self.reason_to_stop()
        if reason:
            return reason
        most = most_cost(job)
        if self.ceiling is not None and self.spent + most > self.ceiling:
            return (
                f"{self.spent:.4g} spent, or reserved for requests in batches; this one "
                f"may cost {most:.2g} more, and engine.max_cost is {self.ceiling:g}"
            )
        self._reserve(job.key, most)
        return None

    def release(self, keys: Iterable[str]) -> None:
        """Reserve no more for requests that have a record by now."""
        for key in keys:
            self._reserved_sum -= self._reserved.pop(key, 0.0)

    def _reserve(self, key: str, cost: float) -> None:
        self.release([key])
        self._reserved[key] = cost
        self._reserved_sum += cost

    def count_receipt(self, spec: StageSpec, receipt: Receipt) -> None:
        """Count what one batch has cost."""
        # A server that reports no tokens has no cost, and no ceiling could be kept.
        cost = receipt.usage.get("cost")
        self._add(spec, cost)
        answered = any(row.outcome == "done" for row in receipt.rows.values())
        if cost is None and answered and _has_prices(spec):
            self._unknown = spec.name

    def _add(self, spec: StageSpec, cost: Any) -> None:
        if cost is not None:
            self._recorded += float(cost)
            self._paid.add(spec.digest)

    def is_paid(self, spec: StageSpec) -> bool:
        """Return whether requests of a stage cost money, as far as is known."""
        return spec.digest in self._paid or _has_prices(spec)

    def reason_to_stop(self) -> str | None:
        """Return why no more may be paid; None below the ceiling."""
        if self.ceiling is None:
            return None
        if self._unknown is not None:
            return (
                f"the server of {self._unknown} reports no token usage, "
                "so engine.max_cost cannot be enforced"
            )
        if self.spent >= self.ceiling:
            where = f"shard {self._shard}; its part of" if self._shard else "this run;"
            return f"{self.spent:.4g} spent in {where} engine.max_cost is {self.ceiling:g}"
        return None


def most_cost(job: Job) -> float:
    """Return what a request in a batch may cost at most, as estimated; 0 without prices."""
    assert isinstance(job.input, Request)
    spec = job.spec
    usage = most_usage(job.input, spec.settings.get("max_tokens"))
    read = usage["input_tokens"] * (spec.options.get("price_per_million_input") or 0.0)
    written = usage["output_tokens"] * (spec.options.get("price_per_million_output") or 0.0)
    return (read + written) * BATCH_PRICE / 1e6


def _has_prices(spec: StageSpec) -> bool:
    is_priced = any(spec.options.get(name) for name in _PRICES)
    return spec.placement.endpoint is not None and is_priced


def _pieces(store: Store, spec: StageSpec, shard: Shard | None) -> Iterator[pa.Table]:
    """Usage and seconds of the records of `spec`, or of those of a shard's queries."""
    if shard is None:
        for piece in store.pieces(spec, ["usage", "seconds"]):
            yield piece.table
        return
    for piece in store.pieces(spec, ["label", "usage", "seconds"]):
        labels = piece.table.column("label").to_pylist()
        own = [shard.holds(label) for label in labels]
        yield piece.table.filter(pa.array(own, pa.bool_()))


def _costs(store: Store, spec: StageSpec, shard: Shard | None) -> Iterator[Any]:
    """Yield the cost of each record, None where it tells none."""
    for table in _pieces(store, spec, shard):
        for text in table.column("usage").to_pylist():
            yield json.loads(text).get("cost")


class UsageSum:
    """Adds up what records of a stage used, and how long it was busy with them."""

    def __init__(self) -> None:
        self.total: dict[str, float] = {}
        """By name, without the busy seconds."""
        self._busy: float | None = None

    def add(self, table: pa.Table) -> None:
        """Add the records of a table with their `usage` and `seconds`."""
        if not len(table):
            return
        # Records of one stage often use the same: each text is read once.
        for counted in table.column("usage").value_counts().to_pylist():
            records = counted["counts"]
            used = json.loads(counted["values"])
            for name in used:
                if name not in PEAKS:
                    used[name] *= records
            add_usage(self.total, used)
        seconds = pc.sum(table.column("seconds"), min_count=0).as_py()
        self._busy = (self._busy or 0.0) + seconds

    @property
    def rounded(self) -> dict[str, float]:
        """The sums as the manifest has them."""
        busy = {} if self._busy is None else {"busy_seconds": self._busy}
        whole = self.total | busy
        return {name: round(value, 3) for name, value in sorted(whole.items())}


def usage_of_stage(
    root: AnyPath, spec: StageSpec, shard: Shard | None = None
) -> dict[str, float]:
    """Tokens and other usage of all records of `spec` under `root`, by name.

    With a shard, of the records of its queries.
    Requests in flight when a worker died were paid for and are not included.
    """
    used = UsageSum()
    # The run's own store reports damaged parts and sets them aside.
    store = Store(root, on_notice=lambda text: None)
    for table in _pieces(store, spec, shard):
        used.add(table)
    return used.total


def usage_of(
    plan: Plan, store: Store, shard: Shard | None = None
) -> dict[str, dict[str, float]]:
    """Tokens, images, steps and busy seconds by the stages' names.

    Over all records, or over those of a shard's queries.
    """
    usage: dict[str, UsageSum] = defaultdict(UsageSum)
    for spec in plan.stages:
        total = usage[spec.name]
        for table in _pieces(store, spec, shard):
            total.add(table)
    return {name: total.rounded for name, total in usage.items()}
