"""Stand-ins for mini weights: files that only look like them, and tiny random models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from generators.mini import table
from generators.mini.digests import main as pin


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
    for folder in folders:
        {
            "anole": _anole,
            "clip": _clip,
            "mmie-score": _judge,
            "openjourney": _artist,
            "qwen2-vl": _writer,
        }[folder](root / folder)
    return root


def _anole(folder: Path) -> None:
    import anole_helpers as helpers

    helpers.save_hf(folder, helpers.language(), helpers.taming_tensors(helpers.VQ))


def _clip(folder: Path) -> None:
    from clipscore_helpers import save_transformers_clip

    save_transformers_clip(folder)


def _judge(folder: Path) -> None:
    from internvl_helpers import save

    save(folder)


def _artist(folder: Path) -> None:
    from diffusion_helpers import tiny_pipeline

    tiny_pipeline("sd15").save_pretrained(folder)


def _writer(folder: Path) -> None:
    from vlm_helpers import save_tiny

    save_tiny(folder)
