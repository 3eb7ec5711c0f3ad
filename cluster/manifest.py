"""The manifest's entries: versions, commit and hardware; counts and usage of the run."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from generators.files import write_whole

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
        "hardware": hardware(),
    }


def hardware() -> dict[str, Any]:
    """CPUs, and GPUs by name and driver, of this process's machine."""
    return {"cpus": os.cpu_count(), "gpus": _gpus()}


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


def now() -> str:
    """The time in UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write_json(path: Path, content: Any) -> None:
    """Write `content` so that readers see the whole old file or the whole new one."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
