"""The example of `pipelines/README.md` does what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from paths import CHECKOUT
from stages import stage_by_stage

from plait.benchmarks.runs.config import load_config
from plait.benchmarks.tasks.task_set import load
from plait.cluster.walks import read
from plait.generators.document import Query, Text
from plait.generators.images import decode
from plait.generators.system import Repetition
from plait.pipelines.systems import Models, resolve

PAGE = (CHECKOUT / "pipelines" / "README.md").read_text()


def test_the_example_answers_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    (command,) = re.findall(r"`plait run ([^`]+)`", PAGE)
    _, system, _, setting = shlex.split(command)
    config = load_config(None, {"systems": [system]}, [setting])
    composed = resolve(system, Models(weights="tiny", overrides=config.models))
    task = load("sample")
    query = next(s for s in task.samples if isinstance(s, Query) and s.wants_images)
    outcome: Any = read(composed.answer(query, Repetition(task.prompt)), stage_by_stage)
    text, picture = outcome.value.segments
    assert isinstance(text, Text)
    question = " ".join(
        s.text for s in task.prompt(query, "text")[-1].content if isinstance(s, Text)
    )
    assert text.text == f"{question} {question}"
    assert decode(picture).size == (32, 32)


def test_every_module_it_names_is_there() -> None:
    room = CHECKOUT / "pipelines"
    named = re.findall(r"`([a-z_]+(?:\.py|/))`", PAGE.partition("An LVLM")[0])
    assert named
    assert all((room / name).exists() for name in named)
