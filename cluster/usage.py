"""What the records of a stage have cost, for ceilings that outlive a worker."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from cluster.store import Store
from generators.base import StageSpec


def committed_usage(root: Path, spec: StageSpec) -> dict[str, float]:
    """Tokens and other usage of all records of `spec` under `root`, by name.

    What was in flight when a worker died was paid for and is not known here.
    """
    total: Counter[str] = Counter()
    # Damaged parts are told of, and set aside, by the run's own store.
    store = Store(root, on_notice=lambda text: None)
    for record in store.columns(spec, ["usage"]):
        total.update(json.loads(record["usage"]))
    return dict(total)
