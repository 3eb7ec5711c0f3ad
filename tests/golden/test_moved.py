"""A moved run is read without its data, models' libraries, user modules or a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_outputs import moved_differences
from golden_runs import CORPUS

pytestmark = pytest.mark.contract

LOCKED = ("creation", "pairings")
"""With every command that writes into the run's folder."""
PACKED = ("mmie", "pairings")
"""With failures, skips, a malformed row and ratings; with a matrix and its sheets."""


def refuse(lines: list[str], words: str) -> None:
    command = f"python tests/helpers/golden_outputs.py {words}"
    shown = "\n".join(lines[:20])
    assert not lines, f"{len(lines)} differences; {command} shows all\n{shown}"


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CORPUS)
def test_commands_say_of_a_moved_run_what_they_said(name: str, tmp_path: Path) -> None:
    refuse(moved_differences(name, tmp_path), f"{name} --moved")


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("name", LOCKED)
def test_and_of_one_that_cannot_be_written(name: str, tmp_path: Path) -> None:
    refuse(moved_differences(name, tmp_path, locked=True), f"{name} --locked")


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("name", PACKED)
def test_and_of_one_that_was_packed_into_a_file(name: str, tmp_path: Path) -> None:
    refuse(moved_differences(name, tmp_path, packed=True), f"{name} --packed")
