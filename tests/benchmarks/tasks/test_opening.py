"""OpenING as a task set, and answers of others in its layout."""

from __future__ import annotations

import hashlib
import json

import pytest
from endpoint_helpers import MODEL, Answer, completion
from opening_helpers import answer, item, read, released, row, written
from picture_helpers import flat
from task_rows import served_run

from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.generators.base import Failure
from plait.generators.document import Document, Image, Text
from plait.scorers.judging import aspects

pytestmark = pytest.mark.contract

PICTURE = "./images/Recipes/1-i-1.jpg"


def place(tmp_path, *rows, **answers):
    root = written(tmp_path / "data", rows, answers)
    image = root / "OpenING-benchmark" / PICTURE
    image.parent.mkdir(parents=True)
    image.write_bytes(flat())
    return root


def shown(document):
    segments = document.segments if isinstance(document, Document) else document
    return [s.text if isinstance(s, Text) else "<image>" for s in segments]


def test_rows_are_read_with_their_images_after_their_texts(tmp_path):
    said = [item(" <BEGIN> Bake\u2028a cake. <image>", PICTURE), item("<image>", PICTURE)]
    truth = {"output": [item("Mix. <image>", PICTURE), item("Eat.")]}
    first = row("0701002", *said)
    first["conversations"].append(truth)
    task = read(place(tmp_path, first, row("0701001", item(None), item("Cook."))))
    cake, plain = task.samples
    assert (cake.id, cake.category, cake.field) == ("0701002", "Cooking", "Recipes")
    # The blanks around marks stay, as the released programs keep them.
    assert shown(cake.question) == [" Bake\u2028a cake. ", "<image>", "<image>"]
    assert shown(cake.reference) == ["Mix. ", "<image>", "Eat."]
    assert shown(plain.question) == ["Cook."]
    assert plain.reference is None
    assert cake.wants_images
    assert task.prompt(cake, "interleaved") == cake.turns


def test_the_file_may_be_named_and_has_to_be_there(tmp_path):
    root = place(tmp_path, row("1"))
    file = root / "OpenING-benchmark" / "test_data.jsonl"
    for named in (file, file.parent):
        (query,) = load(f"opening:{named}", cache=tmp_path / "cache").samples
        assert query.id == "1"
    file.unlink()
    with pytest.raises(TaskError, match=r"test_data\.jsonl"):
        read(root)


def test_answers_of_others_are_systems(tmp_path):
    """Files named .jsonl hold JSON as well; images are found by their names alone."""
    mine = {
        "1.json": answer(item("First. <image>", "./elsewhere/1-o-0.jpg"), item("", None)),
        "2.jsonl": answer(item(None, "1-o-0.jpg"), {"text": "no key"}),
        "3.json": answer(item("x", "gone.jpg")),
        "4.json": answer(),
        "5.json": "{",
        "6.json": {"conversations": [{"input": []}]},
        "notes.txt": "",
    }
    both = {"1.json": answer(item("JSON")), "1.jsonl": answer(item("not this"))}
    rows = [row(str(i)) for i in range(1, 8)]
    root = place(tmp_path, *rows, **{"GPT-4o+DALL-E3": mine, "Human": both})
    folder = root / "gen_outputs" / "GPT-4o+DALL-E3_output"
    (folder / "1-o-0.jpg").write_bytes(flat("blue"))
    answers = read(root).answers
    assert set(answers) == {"GPT-4o+DALL-E3", "Human"}
    made = answers["GPT-4o+DALL-E3"]
    assert {id: shown(a) for id, a in made.items() if isinstance(a, Document)} == {
        "1": ["First. ", "<image>", ""],
        "2": ["<image>", "no key"],
        "4": [],
    }
    reasons = {id: a.reason for id, a in made.items() if isinstance(a, Failure)}
    assert set(reasons) == {"3", "5", "6"}
    assert "missing picture" in reasons["3"]
    assert "not JSON" in reasons["5"]
    assert isinstance(made["1"], Document)
    assert isinstance(made["1"].segments[1], Image)
    assert {id: shown(a) for id, a in answers["Human"].items()} == {"1": ["JSON"]}


JUDGE = f"openai:{MODEL}"
SEVEN = {name: {"Score": score} for score, name in enumerate(aspects.ASPECTS, start=1)}


def scored(body):
    """Those of M1 as the program's function returns them, others as its prompt asks."""
    signs = ("First.", "Alpha", "no text and no picture", "OUTPUT: None")
    of_one = any(sign in json.dumps(body) for sign in signs)
    return Answer(completion(json.dumps(SEVEN if of_one else {"scores": SEVEN})))


@pytest.mark.usefixtures("worker_threads")
@pytest.mark.parametrize("mode", ["corrected", "official"])
def test_a_query_without_its_picture_is_judged_officially(tmp_path, monkeypatch, mode):
    """As `main_evaluate_output_directory` does: the text stays, without the image's tag.

    No system is asked such a question, and no other scorer judges its answers.
    """
    asked = row("1", item("<BEGIN> Bake. <image>", "./images/gone.jpg"), item("And?"))
    root = place(tmp_path, asked, row("2"), Some={"1.json": answer(item("Done."))})
    (prompt := tmp_path / "detailed_score_system.txt").write_text("Judge.")
    monkeypatch.setattr(aspects, "_DIGEST", hashlib.sha256(b"Judge.").hexdigest())
    scorer = f"aspects:{JUDGE}"
    words = ("--set", f'models."{scorer}".mode="{mode}"')
    words += ("--set", f'models."{scorer}".rubric="official:{prompt}"')
    systems, scorers = ("published:Some", "gt"), [scorer, "isg-structure"]
    out = tmp_path / "run"
    _, _, bodies = served_run(out, f"opening:{root}", systems, scorers, scored, *words)
    judged = [json.dumps(body) for body in bodies if "Judge." in json.dumps(body)]
    lines = (out / "failures.csv").read_text().splitlines()
    lacking = [line.split(",") for line in lines if "missing picture" in line]
    named = {(r[0], r[1], r[5]) for r in lacking}
    lost = "1 (row 0)"
    if mode == "corrected":
        assert not judged
        assert named == {(s, lost, "") for s in systems}
        return
    (body,) = judged
    assert "INPUT:  Bake. " in body
    assert "<IMG_" not in body
    assert named == {("gt", lost, ""), ("published:Some", lost, "isg-structure")}


@pytest.mark.usefixtures("worker_threads")
@pytest.mark.parametrize(
    ("mode", "means", "images"), [("corrected", (40, 40), 11), ("official", (40, None), 7)]
)
def test_a_run_scores_answers_of_others_in_either_mode(
    tmp_path, monkeypatch, mode, means, images
):
    """Officially the nested form and images with alpha or a palette do not count."""
    data, out = released(tmp_path / "data"), tmp_path / "run"
    (prompt := tmp_path / "detailed_score_system.txt").write_text("Judge.")
    digest = hashlib.sha256(b"Judge.").hexdigest()
    monkeypatch.setattr(aspects, "_DIGEST", digest)
    scorer, systems = f"aspects:{JUDGE}", ("published:M1", "published:M2")
    words = ("--set", f'models."{scorer}".mode="{mode}"')
    words += ("--set", f'models."{scorer}".rubric="official:{prompt}"')
    done, rows, bodies = served_run(
        out, f"opening:{data}", systems, [scorer], scored, *words
    )
    assert done.exit_code == 0, done.output
    assert len(bodies) == 6
    assert json.dumps(bodies).count('"type": "image_url"') == images
    one, other = (rows[system]["scores"][scorer] for system in systems)
    assert (one["avg_micro"]["mean"], other["avg_micro"]["mean"]) == means
    assert ("as_released" in one) is (mode == "official")
    if mode == "official":
        assert one["as_released"]["Content Richness"] == 7
        assert one["as_released"]["Overall"] == 4
        assert set(other["as_released"].values()) == {None}
