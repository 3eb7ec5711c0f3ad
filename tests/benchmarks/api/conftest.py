"""A finished run of a user's own system."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_helpers import OWN, fill

import plait
from plait.benchmarks.runs.run_data import RunData


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a system that fails and skips, and of the ground truth."""
    folder = tmp_path_factory.mktemp("api") / "run"
    fill(folder, **OWN)
    return folder


@pytest.fixture
def run(root: Path) -> RunData:
    return plait.open_run(root)
