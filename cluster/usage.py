"""What the records of a run have used and cost, and when no more may be paid."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster.plan import Plan
from cluster.store import Store
from cluster.worker import Receipt
from generators.base import StageSpec, add_usage

_PRICES = ("price_per_million_input", "price_per_million_output", "price_per_image")


class Spending:
    """Adds up the `cost` of all records of a run, those of earlier commands included.

    Requests in flight when the ceiling is reached are still paid.
    """

    def __init__(self, ceiling: float | None) -> None:
        self.ceiling = ceiling
        self.spent = 0.0
        self._paid: set[str] = set()
        """Digests of stages that have reported a cost."""
        self._unknown: str | None = None
        """A stage with prices whose server does not report its usage."""

    def set_ceiling(
        self, ceiling: float, store: Store, stages: Iterable[StageSpec]
    ) -> None:
        """Set the ceiling of a run under way, which may have had none."""
        had_none, self.ceiling = self.ceiling is None, ceiling
        if had_none:
            self.spent = 0.0
            self.count_records(store, stages)

    def count_records(self, store: Store, stages: Iterable[StageSpec]) -> None:
        """Count what the records of `stages` have cost, where there is a ceiling."""
        if self.ceiling is None:
            return
        for spec in stages:
            for record in store.columns(spec, ["usage"]):
                self._add(spec, json.loads(record["usage"]).get("cost"))

    def count_receipt(self, spec: StageSpec, receipt: Receipt) -> None:
        """Count what one batch has cost."""
        cost = receipt.usage.get("cost")
        self._add(spec, cost)
        answered = any(row.outcome == "done" for row in receipt.rows.values())
        if cost is None and answered and _has_prices(spec):
            self._unknown = spec.name

    def _add(self, spec: StageSpec, cost: Any) -> None:
        if cost is not None:
            self.spent += float(cost)
            self._paid.add(spec.digest)

    def is_paid(self, spec: StageSpec) -> bool:
        """Whether requests of a stage cost money, as far as is known."""
        return spec.digest in self._paid or _has_prices(spec)

    def exhausted(self) -> str | None:
        """Why no more may be paid; None below the ceiling."""
        if self.ceiling is None:
            return None
        if self._unknown is not None:
            return (
                f"the server of {self._unknown} reports no token usage, "
                "so engine.max_cost cannot be enforced"
            )
        if self.spent >= self.ceiling:
            return (
                f"{self.spent:.4g} spent in this run; engine.max_cost is {self.ceiling:g}"
            )
        return None


def _has_prices(spec: StageSpec) -> bool:
    priced = any(spec.options.get(name) for name in _PRICES)
    return spec.placement.endpoint is not None and priced


def committed_usage(root: Path, spec: StageSpec) -> dict[str, float]:
    """Tokens and other usage of all records of `spec` under `root`, by name.

    Requests in flight when a worker died were paid for and are not included.
    """
    total: dict[str, float] = {}
    # The run's own store reports damaged parts and sets them aside.
    store = Store(root, on_notice=lambda text: None)
    for record in store.columns(spec, ["usage"]):
        add_usage(total, json.loads(record["usage"]))
    return total


def usage_of(plan: Plan, store: Store) -> dict[str, dict[str, float]]:
    """Tokens, images, steps and busy seconds by the stages' names, over all records."""
    usage: dict[str, dict[str, float]] = {}
    for spec in plan.stages:
        total = usage.setdefault(spec.name, defaultdict(float))
        for record in store.columns(spec, ["usage", "seconds"]):
            add_usage(total, json.loads(record["usage"]))
            total["busy_seconds"] += record["seconds"] or 0.0
    return {
        name: {k: round(v, 3) for k, v in sorted(total.items())}
        for name, total in usage.items()
    }
