"""UEval as a task set, and answers in the layout of its evaluator, read and written."""

from __future__ import annotations

import json

import pytest
from cli_helpers import invoke
from comparing_helpers import write_parquet
from endpoint_helpers import MODEL, Answer, completion
from picture_helpers import flat
from task_rows import UEVAL, read, served_run, write_ueval

from plait.benchmarks.tasks.task_set import load
from plait.generators.base import Failure
from plait.generators.document import Document, Image
from plait.scorers.judging.criteria import criteria_of

pytestmark = pytest.mark.contract

OLDER = {
    **{k: v for k, v in UEVAL.items() if k != "task"},
    "id": 8,
    "task_type": "space",
    "question_type": None,
    "text_rubrics": [{"criterion": "Names two steps.", "tags": ["x"]}],
    "image_rubrics": [],
}


def test_both_published_layouts_are_read(tmp_path):
    task = read("ueval", write_ueval(tmp_path / "data", [UEVAL, OLDER]))
    new, old = task.samples
    assert [(q.id, q.category, q.field, q.wants_images) for q in (new, old)] == [
        ("7", "life", "open", True),
        ("8", "space", "closed", False),
    ]
    assert criteria_of(new) == (
        ("text", "Names two steps."),
        ("text", "Is polite."),
        ("image", "Shows a boat."),
    )
    assert criteria_of(old) == (("text", "Names two steps."),)
    assert len(new.reference.images) == 1
    # Where the released program looks for it.
    assert (new.metadata.get("task"), old.metadata.get("task")) == ("life", None)
    # The published average gives each of the eight tasks the same weight.
    assert len(task.categories) == 8
    assert set(task.categories.values()) == {1}
    assert task.prompt(new, "interleaved") == new.turns


def test_parquet_with_images_inside_is_the_same(tmp_path):
    plain = read("ueval", write_ueval(tmp_path / "data", [UEVAL])).samples[0]
    rows = [{**UEVAL, "image_ref": [{"bytes": flat(), "path": "x.png"}]}]
    file = write_parquet(tmp_path / "test-00000-of-00001.parquet", rows)
    packed = load(f"ueval:{file}", cache=tmp_path / "cache").samples[0]
    assert packed == plain


@pytest.fixture
def place(tmp_path):
    """Data with answers of three models beside them, in the layouts of its generators."""
    place = write_ueval(tmp_path / "data", [UEVAL, OLDER])
    answers = place / "answers"
    answers.mkdir()
    (answers / "boat.png").write_bytes(flat("blue"))
    one = {"text_answer": "Fold.", "image_answer": ["boat.png", "boat.png"]}
    models = {
        "a": [
            {"id": "7", **one},
            {"id": 8, "text_answer": "In space.", "image_answer": None},
        ],
        "b": [{"id": 7, "gemini_text_ans": "Fold.", "gemini_image_ans": "boat.png"}],
        "c": [
            {"id": 7, "emu_text": "", "emu_image": ["gone.png"]},
            {"id": "8"},
            {"id": "8", "emu_text": "Another."},
        ],
    }
    for name, rows in models.items():
        (answers / f"{name}.json").write_text(json.dumps(rows))
    return place


def test_answers_of_others_are_systems(place):
    answers = read("ueval", place).answers
    texts = {
        name: {id: a.text for id, a in own.items() if isinstance(a, Document)}
        for name, own in answers.items()
    }
    assert texts == {"a": {"7": "Fold.", "8": "In space."}, "b": {"7": "Fold."}, "c": {}}
    assert [len(answers[n]["7"].images) for n in "ab"] == [2, 1]
    reasons = {id: a.reason for id, a in answers["c"].items() if isinstance(a, Failure)}
    assert "missing picture" in reasons["7"]
    assert "duplicate id" in reasons["8"]


def test_answers_may_name_images_from_where_the_generator_ran(place):
    answers = place / "answers"
    (answers / "drawn").mkdir()
    (answers / "drawn" / "8.png").write_bytes(flat("red"))
    files = {
        "d": ["data/answers/drawn/8.png", "data/answers/boat.png"],
        "e": ["other/answers/boat.png", "data/answers/../ref.png"],
    }
    for name, paths in files.items():
        pairs = zip(("8", "7"), paths, strict=True)
        rows = [{"id": id, "gemini_image_ans": [path]} for id, path in pairs]
        (answers / f"{name}.json").write_text(json.dumps(rows))
    task = read("ueval", place)
    for name, kind in {"d": Document, "e": Failure}.items():
        assert [type(answer) for answer in task.answers[name].values()] == [kind] * 2


@pytest.mark.usefixtures("worker_threads")
def test_a_run_scores_answers_by_their_criteria_and_exports_them(place, tmp_path):
    """Criteria that name steps are met, all others are not."""
    out = tmp_path / "run"

    def ruled(body):
        met = "Names two steps." in json.dumps(body["messages"][-1])
        return Answer(completion(json.dumps({"criteria_met": met})))

    systems, scorer = ("published:a", "published:c"), f"criteria:openai:{MODEL}"
    done, rows, bodies = served_run(out, f"ueval:{place}", systems, [scorer], ruled)
    assert len(bodies) == 4, "three criteria of one query, one of the other"
    assert done.exit_code == 1, "an answer of c is a failure"
    cell = rows["published:a"]["scores"][scorer]
    # life: text 1 of 2, images 0 of 1; space: text 1 of 1.
    assert cell["avg_micro"]["mean"] == pytest.approx((25 + 100) / 2)
    assert rows["published:c"]["failed"] == 2

    files = tmp_path / "answers"
    words = ("--system", "published:a", "--format", "ueval", "--out", str(files))
    exported = invoke("export", str(out), *words)
    assert exported.exit_code == 0, exported.output
    (file,) = files.glob("*.json")
    told = json.loads(file.read_text())
    assert told[0] == {
        "id": "7",
        "text_answer": "Fold.",
        "image_answer": ["images/0.png"] * 2,
    }
    file.rename(place / "answers" / "again.json")
    (files / "images").rename(place / "answers" / "images")
    again = read("ueval", place).answers
    assert again["again"] == again["a"]
    assert isinstance(again["again"]["7"].images[0], Image)
