"""ISG-Bench as a task set: its lines, answers of others, and a run by one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import invoke
from endpoint_helpers import MODEL, Answer, completion, serving
from picture_helpers import flat

from benchmarks.tasks.reading.rules import TaskError
from benchmarks.tasks.task_set import TaskSet, load
from generators.base import Failure
from generators.document import Document, Image, Malformed, Sample
from scorers.judging.isg import BLOCK, IMAGE, LAST


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


PICTURE = {"type": "image", "content": "images/x.PNG"}
"""In the published files the suffix of some is in lower case."""
ROW: dict[str, Any] = {
    "id": "0000",
    "Category": "Prediction",
    "Query": [text("What is next?"), PICTURE],
    "Golden": [text("It falls."), PICTURE],
    "predict": {
        "block_qa": {
            "questions": [
                {"subject": "<gen_text1>", "object": "<gen_img1>", "Question": "Fits?"},
                {"subject": "<gen_text1>", "object": "<gen_img1>"},
            ]
        },
        "image_qa": {
            "questions": [
                {"image": "<gen_img1>", "Question": "A cup?", "id": 0, "Preliminary": []},
                {"image": "<gen_img1>", "Question": "Broken?", "id": 1, "Preliminary": [0]},
            ]
        },
    },
}
VQA = {
    **ROW,
    "id": "0001",
    "Category": "Historical",
    "Golden": [text("1848.")],
    "predict": {},
}


def written(folder: Path, *rows: Any, **answers: list[Any]) -> Path:
    lines = {"ISG-Bench": rows, **{f"answers/{n}": own for n, own in answers.items()}}
    for name, values in lines.items():
        file = folder / f"{name}.jsonl"
        (file.parent / "images").mkdir(parents=True, exist_ok=True)
        (file.parent / "images" / "x.png").write_bytes(flat())
        file.write_text("\n".join(map(json.dumps, values)) + "\n")
    return folder


def read(place: Path) -> TaskSet:
    return load(f"isg:{place}", cache=place / "cache")


def test_queries_have_their_questions_and_the_last_is_marked(tmp_path: Path) -> None:
    for place in (
        written(tmp_path / "a", ROW, VQA),
        written(tmp_path / "b/ISG_eval", ROW, VQA),
    ):
        task = read(place.parent if place.name == "ISG_eval" else place)
        first, second = task.samples
        assert isinstance(first, Sample)
        assert isinstance(second, Sample)
        assert (first.category, first.field) == ("Temporal Prediction", "Prediction")
        assert (second.category, second.wants_images) == ("VQA", False)
        assert first.reference is not None
        assert isinstance(first.reference.segments[1], Image)
        questions = [json.loads(first.metadata[level]) for level in (BLOCK, IMAGE)]
        assert [len(own) for own in questions] == [1, 2]
        assert questions[1][1]["Preliminary"] == [0]
        assert [LAST in q.metadata for q in (first, second)] == [False, True]
        assert len(task.categories) == 8


def test_a_task_that_the_released_summary_leaves_out_is_a_category_of_its_own(
    tmp_path: Path,
) -> None:
    other = ROW | {"Category": "Semantic Segmentation"}
    task = read(written(tmp_path, other))
    (query,) = task.samples
    assert query.category == "Semantic Segmentation"
    assert query.category not in task.categories


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"id": 3}, "wrong type"),
        ({"Category": ""}, "unreadable category"),
        ({"Query": []}, "empty content"),
        ({"Golden": None}, "wrong type"),
        ({"Query": [{"type": "sound", "content": "x"}]}, "wrong type"),
        ({"Golden": [{"type": "text"}]}, "missing key"),
        ({"Query": [{"type": "image", "content": "images/y.png"}]}, "missing picture"),
        ({"predict": {"image_qa": ["x"]}}, "wrong type"),
        ({"id": "0000"}, "duplicate id"),
    ],
)
def test_a_row_that_breaks_a_rule_is_one_failure(
    tmp_path: Path, change: dict[str, Any], rule: str
) -> None:
    good, broken = read(written(tmp_path, ROW, ROW | {"id": "2"} | change)).samples
    assert isinstance(good, Sample)
    assert isinstance(broken, Malformed)
    assert rule in broken.reason


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    place = written(tmp_path, ROW)
    with (place / "ISG-Bench.jsonl").open("a") as file:
        file.write("{")
    with pytest.raises(TaskError, match="line 2"):
        read(place)
    with pytest.raises(TaskError, match=r"ISG-Bench\.jsonl"):
        read(tmp_path / "images")


def test_answers_of_others_are_systems(tmp_path: Path) -> None:
    whole = {
        **ROW,
        "output": [text("It falls."), {"type": "image", "path": "images/x.png"}],
    }
    short = {"id": "0001", "Category": "Historical", "output": None}
    answers = read(
        written(tmp_path, ROW, VQA, a=[whole, short], b=[short | {"id": 1}])
    ).answers
    made = answers["a"]["0000"]
    assert isinstance(made, Document)
    assert (made.text, len(made.images)) == ("It falls.", 1)
    assert isinstance(answers["a"]["0001"], Failure)
    assert "b" not in answers, "its only answer belongs to no query"


@pytest.mark.usefixtures("worker_threads")
def test_a_run_scores_all_levels_by_one_command(tmp_path: Path) -> None:
    """The judge says yes to images, 6 to blocks and 9 to whole answers."""
    good = {"id": "0000", "output": ROW["Golden"]}
    wrong = {"id": "0000", "output": ROW["Golden"][::-1]}
    place = written(tmp_path / "d", ROW, VQA, good=[good], wrong=[wrong])

    def said(body: dict[str, Any]) -> Answer:
        asked = json.dumps(body["messages"])
        whole = {"overall_score": 9}
        value = (
            whole if "overall_score" in asked else {"Judge": "Yes" if "Yes" in asked else 6}
        )
        return Answer(completion(json.dumps(value)))

    out = tmp_path / "run"
    names = [f"isg-{level}:openai:{MODEL}" for level in ("block", "image", "holistic")]
    with serving(said) as server:
        words = ["--data", f"isg:{place}", "--out", str(out), "--weights", "tiny"]
        words += ["--system", "published:good", "--system", "published:wrong"]
        for name in ("isg-structure", *names):
            words += ["--scorer", name]
        words += ["--set", f'models."openai:{MODEL}".base_url="{server.url}"']
        invoke("run", *words)
        # One of blocks and two of images about the good answer, and one of each whole.
        assert len(server.bodies) == 5
    rows = {
        r["system"]: r["scores"] for r in json.loads((out / "leaderboard.json").read_text())
    }
    means = {
        system: [scores[name]["avg_micro"]["mean"] for name in ("isg-structure", *names)]
        for system, scores in rows.items()
    }
    assert means == {"published:good": [1, 6, 1, 9], "published:wrong": [0, 1, 0, 9]}
