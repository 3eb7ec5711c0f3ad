"""RealUnify as a task set, and a run that scores its letters by one command."""

from __future__ import annotations

import json
from typing import Any

import pytest
from endpoint_helpers import MODEL, Answer, completion
from task_rows import GEU, read, served_run, write_realunify

from plait.generators.document import Image
from plait.scorers.judging.criteria import criteria_of

pytestmark = pytest.mark.contract

UEG: dict[str, Any] = {
    "index": 3,
    "task_type": "world_knowledge",
    "prompt": "Draw the animal of the moon.",
    "question_list": [{"question": "Is it a hare?", "answer": "yes"}],
}


def test_both_axes_are_read(tmp_path):
    asked, drawn = read("realunify", write_realunify(tmp_path / "d", [GEU], [UEG])).samples
    assert (asked.id, asked.field) == ("GEU_3_mental_tracking", "GEU")
    assert (drawn.id, drawn.field) == ("UEG_3_world_knowledge", "UEG")
    assert (asked.wants_images, drawn.wants_images) == (False, True)
    assert isinstance(asked.question[0], Image)
    assert asked.reference.text == "B"
    ((about, criterion),) = criteria_of(drawn)
    assert about == "image"
    assert "Is it a hare?" in criterion
    assert "yes" in criterion


@pytest.mark.usefixtures("worker_threads")
def test_a_run_scores_letters_and_tells_the_chance(tmp_path):
    rows = [GEU | {"index": i, "evaluation_prompt": f"Number {i}"} for i in range(3)]
    data = f"realunify:{write_realunify(tmp_path / 'd', rows)}"
    replies = {
        "Number 0": "B. b",
        "Number 1": "The answer is C.",
        "Number 2": "As you like.",
    }

    def said(body):
        text = json.dumps(body["messages"])
        return Answer(completion(next(r for key, r in replies.items() if key in text)))

    out, system = tmp_path / "run", f"openai:{MODEL}@text"
    _, board, _ = served_run(out, data, [system], ["known-answer"], said)
    cell = board[system]["scores"]["known-answer"]["avg_micro"]
    assert (cell["mean"], cell["scored"], cell["unscored"]) == (0.5, 2, 1)
    assert "| chance |" in (out / "leaderboard.md").read_text()
