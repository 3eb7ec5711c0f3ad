"""ISG-Bench as a task set: its lines, answers of others, and a run by one command."""

from __future__ import annotations

import json

import pytest
from endpoint_helpers import MODEL, Answer, completion
from judging_helpers import chat_spec
from task_rows import ISG, isg_text, read, served_run, write_isg

from plait.cluster.local import LocalStages
from plait.cluster.walks import drive
from plait.generators.base import NotApplicable, Result, Unscored
from plait.generators.document import Document, Image
from plait.scorers import resolve_scorer
from plait.scorers.judging.isg import BLOCK, IMAGE, LAST, IsgJudge

pytestmark = pytest.mark.contract

VQA = {
    **ISG,
    "id": "0001",
    "Category": "Historical",
    "Golden": [isg_text("1848.")],
    "predict": {},
}


def test_queries_have_their_questions_and_the_last_is_marked(tmp_path):
    write_isg(tmp_path / "a", [ISG, VQA])
    write_isg(tmp_path / "b/ISG_eval", [ISG, VQA])
    for place in "ab":
        task = read("isg", tmp_path / place)
        first, second = task.samples
        assert (first.category, first.field) == ("Temporal Prediction", "Prediction")
        assert (second.category, second.wants_images) == ("VQA", False)
        assert isinstance(first.reference.segments[1], Image)
        questions = [json.loads(first.metadata[level]) for level in (BLOCK, IMAGE)]
        assert [len(own) for own in questions] == [1, 2]
        assert questions[1][1]["Preliminary"] == [0]
        assert [LAST in q.metadata for q in (first, second)] == [False, True]
        assert len(task.categories) == 8


def test_a_task_that_the_released_summary_leaves_out_is_a_category_of_its_own(tmp_path):
    other = ISG | {"Category": "Semantic Segmentation"}
    task = read("isg", write_isg(tmp_path, [other]))
    (query,) = task.samples
    assert query.category == "Semantic Segmentation"
    assert query.category not in task.categories


def test_answers_of_others_are_systems(tmp_path):
    said = [isg_text("It falls."), {"type": "image", "path": "images/x.png"}]
    whole = ISG | {"output": said}
    short = {"id": "0001", "Category": "Historical", "output": None}
    place = write_isg(tmp_path, [ISG, VQA], a=[whole, short], b=[short | {"id": 1}])
    answers = read("isg", place).answers
    made = answers["a"]["0000"]
    assert (made.text, len(made.images)) == ("It falls.", 1)
    assert answers["a"]["0001"] == Document()
    lines = tmp_path / "answers" / "a.jsonl"
    lines.write_text(lines.read_text() + '\n{"id": "0000", "out\n')
    assert read("isg", place).answers["a"] == answers["a"], "a broken line stops no other"
    assert set(answers["b"]) == {"0000", "0001"}, "its only answer may be to either"
    assert all("b.jsonl, answer 0" in answer.reason for answer in answers["b"].values())


@pytest.mark.parametrize("output", [{}, {"output": None}, {"output": []}])
def test_an_answer_without_output_counts_in_official_mode(output, tmp_path):
    """As `analyze_data` does: structure 0, block 1, image 0, whole 1."""
    good = {"id": "0000", "output": ISG["Golden"]}
    place = write_isg(
        tmp_path, [ISG, VQA, ISG | {"id": "0002"}], a=[good, {"id": "0001"} | output]
    )
    task = read("isg", place)
    query, answer = task.samples[1], task.answers["a"]["0001"]
    counted = {"isg-structure": 0, "isg-block": 1, "isg-image": 0, "isg-holistic": 1}
    for name, value in counted.items():
        for mode in ("official", "corrected"):
            if name == "isg-structure":
                scorer = resolve_scorer(name, "tiny", {"mode": mode})
            else:
                scorer = IsgJudge(name=f"{name}:any", stage=chat_spec(), mode=mode)
            outcome = drive(scorer.judge(query, answer), LocalStages().outcomes)
            if mode == "corrected":
                # The query has no questions of these levels, whatever is answered.
                bare = name in ("isg-block", "isg-image")
                assert isinstance(outcome, NotApplicable if bare else Unscored)
            else:
                assert isinstance(outcome, Result)
                assert outcome.value.value == value


@pytest.mark.usefixtures("worker_threads")
def test_a_run_scores_all_levels_by_one_command(tmp_path):
    """The judge says yes to images, 6 to blocks and 9 to whole answers."""
    good = {"id": "0000", "output": ISG["Golden"]}
    wrong = {"id": "0000", "output": ISG["Golden"][::-1]}
    place = write_isg(tmp_path / "d", [ISG, VQA], good=[good], wrong=[wrong])

    def said(body):
        asked = json.dumps(body["messages"])
        value = {"Judge": "Yes" if "Yes" in asked else 6}
        whole = {"overall_score": 9}
        return Answer(completion(json.dumps(whole if "overall_score" in asked else value)))

    names = [f"isg-{level}:openai:{MODEL}" for level in ("block", "image", "holistic")]
    systems, scorers = ("published:good", "published:wrong"), ("isg-structure", *names)
    _, board, bodies = served_run(tmp_path / "run", f"isg:{place}", systems, scorers, said)
    # One of blocks and two of images about the good answer, and one of each whole.
    assert len(bodies) == 5
    means = {
        system: [row["scores"][name]["avg_micro"]["mean"] for name in scorers]
        for system, row in board.items()
    }
    assert means == {"published:good": [1, 6, 1, 9], "published:wrong": [0, 1, 0, 9]}
