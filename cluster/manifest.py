"""The manifest's entries: versions, commit and hardware; counts and usage of the run."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from generators.files import write_whole
from generators.secrets import without_known_keys

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
        "argv": [without_known_keys(word) for word in sys.argv],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(_versions()),
        "git": dict(_git()),
        "hardware": hardware(),
    }


def hardware() -> dict[str, Any]:
    """CPUs, and GPUs by name and driver, of this process's machine."""
    return {"cpus": os.cpu_count(), "gpus": _gpus()}


@cache  # of the code that this process has loaded
def _versions() -> dict[str, str]:
    return {name: v for name in _PACKAGES if (v := _version(name))}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
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


def now() -> str:
    """The time in UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def former_entries(manifest: Path, names: Sequence[str]) -> dict[str, Any]:
    """Those of the entries that earlier commands on the run have left, which go on."""
    try:
        former = json.loads(manifest.read_text())
    except (OSError, ValueError):
        return {}
    return {name: former[name] for name in names if isinstance(former.get(name), dict)}


def write_json(path: Path, content: Any) -> None:
    """Write `content` so that readers see the whole old file or the whole new one."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
