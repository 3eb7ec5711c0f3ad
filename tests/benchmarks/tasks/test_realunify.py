"""RealUnify as a task set, and a run that scores its letters by one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import invoke
from endpoint_helpers import MODEL, Answer, completion, serving
from picture_helpers import flat

from benchmarks.tasks.task_set import TaskSet, load
from generators.document import Image, Malformed, Sample
from scorers.judging.criteria import criteria_of

GEU: dict[str, Any] = {
    "index": 3,
    "task_type": "mental_tracking",
    "question": "Which?",
    "option": ["a", "b", "c", "d"],
    "answer": "B",
    "evaluation_prompt": "Which? A. a B. b C. c D. d",
    "input_image": "./image/x.png",
}
UEG: dict[str, Any] = {
    "index": 3,
    "task_type": "world_knowledge",
    "prompt": "Draw the animal of the moon.",
    "question_list": [{"question": "Is it a hare?", "answer": "yes"}],
}


def read(folder: Path, geu: list[Any], ueg: list[Any] | None = None) -> TaskSet:
    (folder / "image").mkdir(parents=True)
    (folder / "image" / "x.png").write_bytes(flat())
    (folder / "GEU_direct.json").write_text(json.dumps(geu))
    if ueg is not None:
        (folder / "UEG_direct.json").write_text(json.dumps(ueg))
    return load(f"realunify:{folder}", cache=folder / "cache")


def test_both_axes_are_read(tmp_path: Path) -> None:
    asked, drawn = read(tmp_path / "d", [GEU], [UEG]).samples
    assert isinstance(asked, Sample)
    assert isinstance(drawn, Sample)
    assert (asked.id, asked.field) == ("GEU_3_mental_tracking", "GEU")
    assert (drawn.id, drawn.field) == ("UEG_3_world_knowledge", "UEG")
    assert (asked.wants_images, drawn.wants_images) == (False, True)
    assert isinstance(asked.question[0], Image)
    assert asked.reference is not None
    assert asked.reference.text == "B"
    ((about, criterion),) = criteria_of(drawn)
    assert (about, "Is it a hare?" in criterion, "yes" in criterion) == (
        "image",
        True,
        True,
    )


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"answer": "E"}, "unreadable category"),
        ({"option": "a, b"}, "wrong type"),
        ({"index": None}, "unusable id"),
        ({"evaluation_prompt": " "}, "empty content"),
        ({"input_image": "../x.png"}, "picture path leaves the data folder"),
    ],
)
def test_a_row_that_breaks_a_rule_is_one_failure(
    tmp_path: Path, change: dict[str, Any], rule: str
) -> None:
    broken, good = read(tmp_path / "d", [GEU | change, GEU | {"index": 4}]).samples
    assert isinstance(broken, Malformed)
    assert rule in broken.reason
    assert isinstance(good, Sample)


@pytest.mark.usefixtures("worker_threads")
def test_a_run_scores_letters_and_tells_the_chance(tmp_path: Path) -> None:
    rows = [GEU | {"index": i, "evaluation_prompt": f"Number {i}"} for i in range(3)]
    read(tmp_path / "d", rows)
    replies = {
        "Number 0": "B. b",
        "Number 1": "The answer is C.",
        "Number 2": "As you like.",
    }

    def said(body: dict[str, Any]) -> Answer:
        text = json.dumps(body["messages"])
        return Answer(completion(next(r for key, r in replies.items() if key in text)))

    out = tmp_path / "run"
    with serving(said) as server:
        words = ["--data", f"realunify:{tmp_path / 'd'}", "--out", str(out)]
        words += ["--system", f"openai:{MODEL}@text", "--scorer", "known-answer"]
        words += ["--set", f'models."openai:{MODEL}".base_url="{server.url}"']
        invoke("run", *words)
    (row,) = json.loads((out / "leaderboard.json").read_text())
    cell = row["scores"]["known-answer"]["avg_micro"]
    assert (cell["mean"], cell["scored"], cell["unscored"]) == (0.5, 2, 1)
    assert "| chance |" in (out / "leaderboard.md").read_text()
