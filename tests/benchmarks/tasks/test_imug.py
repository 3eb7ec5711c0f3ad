"""IMUG-Bench as a task set: its sessions, what looks back in them, and broken rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from imug_helpers import PLANT, ROW, write_imug

from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.generators.base import Failure
from plait.generators.document import Document, Image, Malformed, Query, Text
from plait.scorers.judging.imug import Item, Reference
from plait.scorers.turns import session_turns


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
    turns = session_turns(query)
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


def test_a_line_that_is_no_json_breaks_its_row_alone(tmp_path) -> None:
    place = write_imug(tmp_path / "data")
    file = place / "benchmark.jsonl"
    file.write_text(f"{{broken\n{file.read_text()}")
    broken, good = load(f"imug:{place}", cache=tmp_path / "cache").samples
    assert isinstance(broken, Malformed)
    assert "line 1 is not JSON" in broken.reason
    assert isinstance(good, Query)


def test_turns_may_be_numbered_in_text(tmp_path) -> None:
    """The released program reads the numbers of turns and references with `int`."""
    tasks = [{**task, "turn": str(task["turn"])} for task in ROW["tasks"]]
    place = write_imug(tmp_path / "data", [{**ROW, "tasks": tasks}])
    file = place / "image_references.jsonl"
    file.write_text(file.read_text().replace('"ref_turn": 1', '"ref_turn": "1"'))
    (query,) = load(f"imug:{place}", cache=tmp_path / "cache").samples
    item = Item.of(query)
    assert item is not None
    assert [turn.turn for turn in item.turns] == [1, 2, 3, 4, 5]
    assert [reference.turn for reference in item.turns[3].references] == [1, 1]


def _result(**said: Any) -> str:
    tasks = [{"turn": int(turn[1:]), "model_response": text} for turn, text in said.items()]
    return json.dumps({"tasks": tasks})


TOLD = {"_2": "A, C", "_3": "A"}


def _published(root: Path, result: str | None, images: dict[str, bytes]) -> Any:
    """What is read of an answer to the crafted session, in the program's folders."""
    write_imug(root / "data")
    folder = root / "outputs/model_outputs/m/Botany/natural_growth/question_1"
    folder.mkdir(parents=True)
    if result is not None:
        (folder / "result.json").write_text(result)
    for name, data in images.items():
        (folder / name).write_bytes(data)
    task = load(f"imug:{root}", cache=root / "cache")
    return task.answers["m"]["Botany-natural_growth-1"]


def test_answers_in_the_programs_folders_are_read_turn_by_turn(tmp_path) -> None:
    images = {"turn_1_output.png": PLANT, "own.JPG": PLANT, "turn_2_output.png": PLANT}
    result = _result(**TOLD, _1="turn_9_output.png", _4="own.JPG")
    answer = _published(tmp_path, result, images)
    assert isinstance(answer, Document)
    told = [turn.text or [*map(type, turn.segments)] for turn in answer.answers]
    assert told == [[Image], "A, C", "A", [Image], []]


def test_images_alone_are_an_answer(tmp_path) -> None:
    answer = _published(tmp_path, None, {"turn_4_output.png": PLANT})
    assert isinstance(answer, Document)
    assert [len(turn.segments) for turn in answer.answers] == [0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("result", "images", "said"),
    [
        ("{", {}, r"result\.json"),
        ("[]", {}, "an object with tasks"),
        ('{"tasks": 3}', {}, "tasks"),
        (_result(**TOLD | {"_2": 5}), {}, "the answer to turn 2"),
        (_result(**TOLD), {"turn_1_output.png": b"no image"}, "turn_1_output"),
        (_result(**TOLD, _1="../../../../../../data/images/plant.png"), {}, "contains"),
        (_result(), {}, "no turn is answered"),
    ],
)
def test_an_answer_that_cannot_be_read_is_a_failure(tmp_path, result, images, said) -> None:
    answer = _published(tmp_path, result, images)
    assert isinstance(answer, Failure)
    assert "m/Botany/natural_growth/question_1" in answer.reason
    assert re.search(said, answer.reason)
