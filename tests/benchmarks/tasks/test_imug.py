"""IMUG-Bench as a task set: its sessions, what looks back in them, and broken rows."""

from __future__ import annotations

from typing import Any

import pytest
from imug_helpers import PLANT, ROW, write_imug

from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.generators.document import Image, Malformed, Query, Text
from plait.scorers.judging.imug import Item, Reference
from plait.scorers.turns import asked_turns


def test_a_row_is_a_session_whose_turns_tell_whether_they_look_back(tmp_path) -> None:
    task = load(f"imug:{write_imug(tmp_path / 'data')}", cache=tmp_path / "cache")
    (query,) = task.samples
    assert isinstance(query, Query)
    assert (query.id, query.category, query.field) == (
        "Botany-natural_growth-1",
        "Temporal Causal",
        "Botany",
    )
    assert [turn.role for turn in query.turns] == ["user"] * 5
    text, image = query.turns[0].content
    assert isinstance(text, Text)
    assert isinstance(image, Image)
    assert image.digest == Image.of(PLANT).digest
    turns = asked_turns(query)
    assert [turn.looks_back for turn in turns] == [False, True, False, True, True]
    assert [turn.wants_images for turn in turns] == [True, False, False, True, False]
    item = Item.of(query)
    assert item is not None
    assert item.turns[3].references == (
        Reference(turn=1, own=False),
        Reference(turn=1, own=True),
    )
    assert [turn.depends_on for turn in item.turns] == [None, (1,), None, None, (4, 3, 1)]
    ask = task.prompt.next_query
    assert ask(query).wants_images is False


def test_a_checkout_is_read_from_its_folder_of_data(tmp_path) -> None:
    write_imug(tmp_path / "data", [{**ROW, "system_prompt": "Be brief."}])
    (query,) = load(f"imug:{tmp_path}", cache=tmp_path / "cache").samples
    assert query.turns[0].role == "system"
    assert len(query.openings) == 5


def _row(**changes: Any) -> dict[str, Any]:
    return {**ROW, "sample_id": "2", **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tasks": []}, "no tasks"),
        ({"tasks": [{**ROW["tasks"][0], "modality": "video"}]}, "valid are text, image"),
        ({"tasks": [{**ROW["tasks"][0], "input": []}]}, "neither text nor image"),
        ({"tasks": [{**ROW["tasks"][0], "input": [{"image": "no.png"}]}]}, "no.png"),
        ({"tasks": [ROW["tasks"][2]] * 2}, "the same turn"),
        ({"domain": ""}, "domain is empty"),
        ({"sample_id": None}, "sample_id"),
    ],
)
def test_a_broken_row_is_named_and_the_others_are_read(tmp_path, changes, said) -> None:
    place = write_imug(tmp_path / "data", [ROW, _row(**changes)])
    good, broken = load(f"imug:{place}", cache=tmp_path / "cache").samples
    assert isinstance(good, Query)
    assert isinstance(broken, Malformed)
    assert said in broken.reason


def test_broken_references_and_missing_data_are_told(tmp_path) -> None:
    place = write_imug(tmp_path / "data")
    (place / "dynamic_references.jsonl").write_text('{"domain": "Botany"}\n')
    with pytest.raises(TaskError, match=r"dynamic_references\.jsonl, row 1"):
        load(f"imug:{place}", cache=tmp_path / "cache")
    (place / "benchmark.jsonl").unlink()
    with pytest.raises(TaskError, match=r"benchmark\.jsonl"):
        load(f"imug:{place}", cache=tmp_path / "cache")
