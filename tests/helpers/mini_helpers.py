"""Stand-ins for mini weights: files that only look like them, and tiny random models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from plait.generators.mini import table
from plait.generators.mini.digests import main as pin


def fake(root: Path, content: bytes = b"weights") -> Path:
    """Every folder of the table, with one file that is no checkpoint: enough to plan."""
    for model in table.MINI.values():
        (root / model.folder).mkdir(parents=True, exist_ok=True)
        (root / model.folder / "model.safetensors").write_bytes(content)
    return root


def use(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let `root` hold the mini weights."""
    monkeypatch.setenv(table.ROOT, str(root))
    return root


def pinned(root: Path) -> Path:
    """`root` with the digests of what it holds."""
    pin([str(root)])
    return root


def tiny(root: Path, folders: Iterable[str]) -> Path:
    """Tiny random checkpoints in the published layouts, under the folders' names."""
    import anole_helpers
    from clipscore_helpers import save_transformers_clip
    from diffusion_helpers import tiny_pipeline
    from internvl_helpers import save as save_judge
    from vlm_helpers import save_tiny

    def save_anole(folder: Path) -> None:
        tensors = anole_helpers.taming_tensors(anole_helpers.VQ)
        anole_helpers.save_hf(folder, anole_helpers.language(), tensors)

    savers = {
        "anole": save_anole,
        "clip": save_transformers_clip,
        "mmie-score": save_judge,
        "openjourney": lambda folder: tiny_pipeline("sd15").save_pretrained(folder),
        "qwen2-vl": save_tiny,
    }
    for folder in folders:
        savers[folder](root / folder)
    return root
