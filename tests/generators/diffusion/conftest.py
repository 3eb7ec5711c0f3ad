"""Tiny checkpoints on disk: each is written once."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Checkpoint of an architecture, to be read."""
    from diffusion_helpers import tiny_pipeline

    @functools.cache
    def folder_of(architecture: str) -> Path:
        folder = tmp_path_factory.mktemp("tiny") / architecture
        tiny_pipeline(architecture).save_pretrained(folder)
        return folder

    return folder_of


@pytest.fixture
def copied(saved: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of one, to be damaged."""
    return lambda name: Path(shutil.copytree(saved(name), tmp_path / "checkpoint"))
