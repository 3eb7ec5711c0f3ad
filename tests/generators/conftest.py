"""What tests of native models share: their checkpoints, and the originals' results."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import DATA


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, str]]:
    """The settings that name the checkpoints of a layout's stage, written once."""
    from natives import LAYOUTS

    @functools.cache
    def save(layout: str) -> dict[str, dict[str, str]]:
        return LAYOUTS[layout](tmp_path_factory.mktemp("native"))

    return lambda layout, stage: dict(save(layout)[stage])


@pytest.fixture(scope="session")
def stage(saved: Any) -> Callable[..., Any]:
    """A stage of the published weights, loaded once: layout, stage, settings."""
    from natives import NATIVES, published, shared_weights

    @functools.cache
    def load(layout: str, stage: str = "draft", **settings: Any) -> Any:
        with shared_weights(NATIVES[layout.partition("/")[0]].stages[stage]):
            return published(layout, stage, saved(layout, stage), **settings)

    return load


@pytest.fixture
def copied(saved: Any, tmp_path: Path) -> Callable[[str, str, str], Any]:
    """As `saved`, with one of the checkpoints copied, so that a test may damage it."""

    def places(layout: str, stage: str, place: str) -> tuple[dict[str, str], Path]:
        usual, folder = saved(layout, stage), tmp_path / place
        shutil.copytree(usual[place], folder)
        return usual | {place: str(folder)}, folder

    return places


@pytest.fixture(scope="module")
def arrays(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the original program of the native model gave that a folder is named after."""
    with np.load(DATA / f"{request.path.parent.name}_upstream.npz") as stored:
        return dict(stored)
