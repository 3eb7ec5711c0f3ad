"""The tests themselves: who runs which of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiers import in_order


def test_tests_of_one_file_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """pytest-xdist reads the group from the name; where it is not there, nothing is said.

    Each process would then build the fixtures of every module, and lanes would not hold.
    """
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("needs --dist loadgroup, as make has it")
    assert request.node.nodeid.endswith(f"@{request.path}")


def test_lanes_begin_before_all_else() -> None:
    """They take longest: begun last, they would end long after everything else."""

    def item(name: str, *marks: str) -> Any:
        own = [SimpleNamespace(name=mark) for mark in marks]
        return SimpleNamespace(path=Path(name), iter_markers=lambda: own)

    computes = item("unit.py")
    items = [
        computes,
        item("models.py", "models"),
        item("slow.py", "slow"),
        item("processes.py", "processes"),
        item("slurm.py", "slow", "machines"),
    ]
    order = [own.path.stem for own in in_order(items)]
    assert order == ["slurm", "processes", "slow", "models", "unit"]
