"""What commands say of recorded runs is what they said when it was last accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_outputs import EXPECTED, differences, outputs
from golden_runs import CORPUS, RUNS

pytestmark = [pytest.mark.contract, pytest.mark.figures]

ACCEPT = "python tests/helpers/golden_outputs.py"


def test_every_run_is_recorded_and_accepted() -> None:
    for folder in (RUNS, EXPECTED):
        assert sorted(path.name for path in folder.iterdir()) == sorted(CORPUS)
    files = [path for path in RUNS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 8 * 2**20


@pytest.mark.models
@pytest.mark.parametrize("name", CORPUS)
def test_commands_say_what_they_said(name: str, tmp_path: Path) -> None:
    lines = differences(name, outputs(name, tmp_path))
    shown = "\n".join(lines[:20])
    assert not lines, f"{len(lines)} differences; {ACCEPT} {name} shows all\n{shown}"


def test_a_difference_is_named_with_its_place() -> None:
    root = EXPECTED / "people"
    files = [path for path in root.rglob("*") if path.is_file()]
    found = {str(path.relative_to(root)): path.read_bytes().decode() for path in files}
    assert differences("people", found) == []
    first, *rest = found["run/leaderboard.csv"].split("\n")
    found["run/leaderboard.csv"] = "\n".join([first.replace("mean", "means"), *rest])
    found["run/bias.md"] += "\n"
    found["more.txt"] = found.pop("verify.txt")
    places = [line.split(" ")[0].rstrip(":") for line in differences("people", found)]
    column = first.index("mean") + len("means")
    assert places == [
        "people/more.txt",
        f"people/run/bias.md:{found['run/bias.md'].count(chr(10)) + 1}",
        f"people/run/leaderboard.csv:1:{column}",
        "people/verify.txt",
    ]
