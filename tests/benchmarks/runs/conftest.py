"""Where a user gives commands, and runs of the ground truth."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import invoke
from judging_helpers import STAND_IN, stand_in_digests

from plait.scorers.judging import mmie


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which the user's copy of prompts.py lies."""
    monkeypatch.setattr(mmie, "DIGESTS", stand_in_digests())
    (tmp_path / "prompts.py").write_text(STAND_IN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the ground truth over nine queries, without scorers; not to be changed."""
    root = tmp_path_factory.mktemp("truth") / "run"
    words = ["--weights", "tiny", "--seed", "3", "--limit", "9", "--set", "scorers=[]"]
    done = invoke("run", "--system", "gt", *words, "--out", str(root))
    assert done.exit_code == 0, done.output
    return root
