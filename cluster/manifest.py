"""The manifest's entries: versions, commit and hardware; counts and usage of the run.

`run.py` puts the manifest together and writes it; here is what its entries are made of.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from plait.cluster.shard import FOLDER, SHARD_FILE
from plait.generators.buckets import AnyPath, matching
from plait.generators.files import write_whole
from plait.generators.secrets import without_known_keys

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
_OF_A_SHARD = ("started", "finished", "status", "hardware", "counts", "worker_failures")
"""Entries of a shard's own that the manifest of the run repeats."""
PACKAGE = Path(os.path.abspath(__file__)).parents[1]
"""The folder `plait`, which other nodes are sent; links in it are a checkout's."""
CHECKOUT = Path(__file__).resolve().parents[1]
"""The checkout that the code is of; the package where it is installed."""


def environment() -> dict[str, Any]:
    """Versions, git commit and hardware of this process's machine."""
    return {
        "argv": [without_known_keys(word) for word in sys.argv],
        "python": platform.python_version(),
        "platform": platform.platform(),
        **deepcopy(_code()),  # of which one copy is kept
        "hardware": hardware(),
    }


def hardware() -> dict[str, Any]:
    """CPUs, and GPUs by name and driver, of this process's machine."""
    query = ("--query-gpu=name,driver_version", "--format=csv,noheader")
    gpus = (_output("nvidia-smi", *query) or "").splitlines()
    return {"cpus": os.cpu_count(), "gpus": gpus}


def other_work(seconds: float = 0.2) -> dict[str, float]:
    """Shares of CPUs and of the busiest GPU that other processes keep busy now.

    This process waits for `seconds` meanwhile. What the machine does not tell is left out.
    """
    before = _cpu_ticks()
    time.sleep(seconds)
    after = _cpu_ticks()
    shares = dict[str, float]()
    total = sum(after) - sum(before) if before and after else 0
    if total > 0:
        idle = sum(after[_IDLE]) - sum(before[_IDLE])
        shares["cpus"] = round(1 - idle / total, 3)
    query = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    told = (_output("nvidia-smi", *query) or "").split()
    percents = [int(word) for word in told if word.isdecimal()]
    if percents:
        shares["gpus"] = max(percents) / 100
    return shares


_IDLE = slice(3, 5)
"""Of the ticks in /proc/stat: idle, and waiting for a disk."""


def _cpu_ticks() -> list[int]:
    """Return ticks of all CPUs by what they did; nothing on other systems than Linux."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return []
    return [int(ticks) for ticks in first.split()[1:9]]


def version_of(package: str) -> str:
    """Return the version that is installed; empty where it runs from a copied folder."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _code() -> dict[str, Any]:
    """Versions and git commit of the code that this process has loaded."""
    found = {name: version_of(name) for name in _PACKAGES}
    versions = {name: version for name, version in found.items() if version}
    here = ("git", "-C", str(CHECKOUT))
    commit = _output(*here, "rev-parse", "HEAD")
    status = _output(*here, "status", "--porcelain")
    dirty = None if status is None else bool(status)  # None where there is no git
    return {"packages": versions, "git": {"commit": commit or "", "dirty": dirty}}


def _output(*command: str) -> str | None:
    """Return what a program prints, nothing where it fails; None where there is none."""
    try:
        reply = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return reply.stdout.strip() if reply.returncode == 0 else ""


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_entries(manifest: AnyPath) -> dict[str, Any]:
    """Return what a manifest holds; nothing where there is none that can be read."""
    try:
        entries = json.loads(manifest.read_text())
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


def former_entries(manifest: AnyPath, names: Sequence[str]) -> dict[str, Any]:
    """Return those of the entries that earlier commands have left, which go on."""
    former = read_entries(manifest)
    return {name: former[name] for name in names if isinstance(former.get(name), dict)}


def of_shards(root: AnyPath) -> dict[str, Any]:
    """Return what the manifest of a run says of its shards, if it has any.

    A run that was made by shards alone has the timing of one of them, with the loads of
    all.
    """
    shards = dict[str, Any]()
    timed = dict[str, Any]()
    for path in matching(root, f"{FOLDER}/*/{SHARD_FILE}"):
        noted = read_entries(path)
        about = {name: noted[name] for name in noted if name in _OF_A_SHARD}
        shards[path.parent.name] = about
        if noted.get(TIMING):
            timed = noted[TIMING] | _join_loads(timed, noted[TIMING])
    entries = dict[str, Any]()
    if shards:
        entries["shards"] = shards
    if timed:
        entries[TIMING] = timed
    return entries


TIMING = "timing"
"""The entry on how long a run took to start and its workers to load, for forecasts,"""
LOADS = "load_seconds"
TAKEOVERS = "takeover_seconds"
"""and what it holds of workers that became ready, new ones and those that had hosted
another stage."""
RECORDS = "records"
"""The entry on how many records the folder of each stage had at the end of a run."""
_MOST_LOADS = 8
"""Loads of one stage that the manifest keeps, the latest ones."""


def timing(
    former: Mapping[str, Any],
    seconds: float,
    scheduling_s: float,
    ready: Mapping[str, Mapping[str, Sequence[float]]],
) -> dict[str, Any]:
    """Return the entry after a command of `seconds`, `scheduling_s` of it with workers.

    `ready` are seconds by the stage's folder, for LOADS and TAKEOVERS. A command that
    started no worker leaves the entry as it is.
    """
    if not scheduling_s:
        return dict(former)
    entry: dict[str, Any] = {
        "seconds": round(seconds, 3),
        "scheduling_seconds": round(scheduling_s, 3),
    }
    return entry | _join_loads(former, ready)


def _join_loads(
    former: Mapping[str, Any], latter: Mapping[str, Any]
) -> dict[str, dict[str, list[float]]]:
    """LOADS and TAKEOVERS of two entries, by the stage's folder: the latest ones."""
    joined: dict[str, dict[str, list[float]]] = {}
    for name in (LOADS, TAKEOVERS):
        before = former.get(name, {})
        after = latter.get(name, {})
        joined[name] = {}
        for folder in sorted({*before, *after}):
            loads = [*before.get(folder, ()), *after.get(folder, ())]
            joined[name][folder] = loads[-_MOST_LOADS:]
    return joined


def write_json(path: AnyPath, content: Any) -> None:
    """Write `content` so that readers see the whole old file or the whole new one."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
