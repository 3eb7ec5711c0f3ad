"""The example in the engine's README does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import CHECKOUT

from plait.cluster.store import Store
from plait.generators.base import StageSpec

README = CHECKOUT / "cluster" / "README.md"


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_address")
def test_a_stage_runs_under_ray_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, StageSpec] = {}
    exec(example.replace("runs/by-hand", str(tmp_path)), names)
    assert "['done', 'done']" in capsys.readouterr().out
    rows = Store(tmp_path).rows(names["spec"])
    assert [row.outcome for row in rows.values()] == ["done", "done"]
