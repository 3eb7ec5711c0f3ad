"""The worked example in the README of the room runs as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from paths import CHECKOUT

from plait.benchmarks.tasks.task_set import load
from plait.generators.document import Malformed

README = CHECKOUT / "benchmarks" / "README.md"


def test_the_worked_example_is_a_task_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "my_tasks.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    task = load("my_tasks:queries")
    monkeypatch.delitem(sys.modules, "my_tasks")
    cat, dog = task.samples
    assert task.prompt(cat, "plain") == cat.turns
    assert cat.reference.text == "Begin with two circles."
    assert isinstance(dog, Malformed)
    assert dog.reason == "row 1 (dog): empty content: question is empty"
    assert task.about["malformed"] == {"empty content": 1}
