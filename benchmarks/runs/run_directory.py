"""What a run directory says of its run: the manifest, and the configuration in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.runs.config import RunConfig, anchored, is_run, merged
from cluster.run import MANIFEST
from generators.errors import UsageError
from generators.names import validated

__all__ = ["former_config", "is_run", "read_manifest"]


def read_manifest(root: Path) -> dict[str, Any]:
    """The manifest of the run at `root`; UsageError where there is none to be read."""
    path = root / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{root} is not a run directory: it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("config"), dict):
        raise UsageError(f"{path} is not the manifest of a run: it holds no config")
    return manifest


def former_config(
    root: Path, manifest: Mapping[str, Any], changes: Mapping[str, Any] | None = None
) -> RunConfig:
    """The configuration that the run at `root` was made with, with `changes` applied."""
    values = merged(manifest["config"], {"out": str(root)} | dict(changes or {}))
    config = anchored(validated(RunConfig, values, ""))
    return config.with_rubrics(lambda rubric: rubric.or_copy_in(config.root))
