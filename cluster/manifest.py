"""The manifest's entries: versions, commit and hardware; counts and usage of the run."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from cluster.plan import Evaluation, Plan, outcome_name
from cluster.store import Store
from cluster.walks import Pending
from generators.files import write_whole
from scorers.base import ItemOutcome

_PACKAGES = [
    "plait",
    "accelerate",
    "diffusers",
    "numpy",
    "open_clip_torch",
    "openai",
    "pillow",
    "pyarrow",
    "ray",
    "safetensors",
    "torch",
    "torchmetrics",
    "torchvision",
    "transformers",
    "xformers",
]
CHECKOUT = Path(__file__).resolve().parents[1]


def environment() -> dict[str, Any]:
    """Versions, git commit and hardware of this process's machine."""
    return {
        "argv": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: v for name in _PACKAGES if (v := _version(name))},
        "git": _git(),
        "hardware": {"cpus": os.cpu_count(), "gpus": _gpus()},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git() -> dict[str, Any]:
    def ask(*words: str) -> str:
        command = ["git", "-C", str(CHECKOUT), *words]
        reply = subprocess.run(command, capture_output=True, text=True, check=False)
        return reply.stdout.strip() if reply.returncode == 0 else ""

    try:
        commit = ask("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(ask("status", "--porcelain"))}
    except OSError:
        return {"commit": "", "dirty": None}


def _gpus() -> list[str]:
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        reply = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return reply.stdout.strip().splitlines() if reply.returncode == 0 else []


def totals_of(outcomes: Sequence[Evaluation | ItemOutcome | Pending]) -> dict[str, int]:
    """Outcomes of documents or pairs and of judgements, over a whole plan."""
    documents = Counter[str]()
    scores = Counter[str]()
    for outcome in outcomes:
        if isinstance(outcome, Pending):
            documents["missing"] += 1
        else:
            documents[outcome_name(outcome.subject)] += 1
            scores.update(outcome_name(verdict) for verdict in outcome.verdicts)
    totals = {name: documents[name] for name in ("done", "failed", "skipped", "missing")}
    return {
        "planned": len(outcomes),
        **totals,
        "scored": scores["done"],
        "unscored": scores["unscored"],
        "not_applicable": scores["not_applicable"],
        "failed_scores": scores["failed"],
        "skipped_scores": scores["skipped"],
    }


def usage_of(plan: Plan, store: Store) -> dict[str, dict[str, float]]:
    """Tokens, images, steps and busy seconds by the stages' names, over all records."""
    usage: dict[str, dict[str, float]] = {}
    for spec in plan.stages:
        total = usage.setdefault(spec.name, defaultdict(float))
        for record in store.columns(spec, ["usage", "seconds"]):
            for name, amount in json.loads(record["usage"]).items():
                total[name] += amount
            total["busy_seconds"] += record["seconds"] or 0.0
    return {
        name: {k: round(v, 3) for k, v in sorted(total.items())}
        for name, total in usage.items()
    }


def now() -> str:
    """The time in UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write_json(path: Path, content: Any) -> None:
    """Write `content` so that readers see the whole old file or the whole new one."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
