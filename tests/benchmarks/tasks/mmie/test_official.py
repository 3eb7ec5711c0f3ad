"""What is exported is what the official scorer's reader takes, and can be read back."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mmie_helpers import at_hand, folder, good, gpt, human, loaded, png, row
from paths import CHECKOUT

from plait.benchmarks.tasks.mmie.official import (
    Broken,
    export,
    read_outputs,
    systems_of_folder,
)
from plait.benchmarks.tasks.mmie.prompts import prompts
from plait.benchmarks.tasks.task_set import TaskError
from plait.cluster.walks import read
from plait.generators.base import Failure, Fault
from plait.generators.document import Document, Image, Malformed, Query, Text
from plait.generators.system import Repetition
from plait.scorers.judging.mmie import flatten


def accepted(root):
    """An independent copy of the rules by which the official `dataset.py` reads a folder.

    It opens the file in the locale's encoding (here the poorest one), reads five keys of
    every row without repetition, joins image paths to the folder, cuts an answer after the
    third image, and leaves out rows of more than four images.
    """
    rows = json.loads((root / "data.json").read_bytes().decode("ascii"))
    assert isinstance(rows, list)
    kept = []
    for value in rows:
        name, model, truth = value["id"], value["model"], value["gt_answer"][0]["text"]
        assert isinstance(name, str)
        assert isinstance(model, str)
        lines: dict[str, list[str]] = {"question": [], "answer": []}
        pictures: list[Path] = []
        for part, said in lines.items():
            for item in value[part]:
                if item["text"] is not None:
                    said.append(item["text"])
                if part == "answer" and len(pictures) > 2:
                    break
                if item["image"] is not None:
                    assert item["image"].startswith("images/")
                    assert (root / item["image"]).is_file()
                    said.append(f"Image-{len(pictures)}: <image>")
                    pictures.append(root / item["image"])
        if len(pictures) <= 4:
            kept.append((name, model, lines["question"], lines["answer"], truth, pictures))
    return kept


def test_pictures_are_numbered_written_once_and_unchanged(tmp_path):
    jpeg = (CHECKOUT / "benchmarks/tasks/mmie/sample/images/coins.jpg").read_bytes()
    (sample,) = good(loaded(folder(tmp_path / "d", [row("SA-1")])))
    data = {i.digest: i for i in (Image.of(png()), Image.of(jpeg), Image.of(png("blue")))}
    one, two, three = data.values()
    answer = Document((one, two, Text("x"), three, two))

    def read(image):
        return data[image.digest].read()

    export([(sample, answer), (sample, answer)], "m", tmp_path / "out", read)
    files = {p.name: p.read_bytes() for p in (tmp_path / "out" / "images").iterdir()}
    assert files == {"0.png": png(), "1.jpg": jpeg, "2.png": png("blue")}


ITEMS = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(codec="utf-8"), max_size=20),
        st.none() | st.sampled_from(["a.png", "b.png", "c.png"]),
    ),
    max_size=5,
)
COLOURS = {"a.png": "red", "b.png": "green", "c.png": "blue"}


@example(
    id="SA-1",
    field="Literature",
    question=[],
    reference=[(None, None), ("", "a.png")],
    answer=[],
    model="",
    benchmark="miniature",
)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    id=st.sampled_from(["SA-1", "PBL-22", "MSR-3"]),
    field=st.sampled_from(["Literature", "Sports", "Physics"]),
    question=ITEMS,
    reference=ITEMS,
    answer=ITEMS,
    model=st.text(st.characters(codec="utf-8"), max_size=10),
    benchmark=st.sampled_from(["MMIE", "miniature"]),
)
def test_a_valid_row_survives_export_and_import(
    id, field, question, reference, answer, model, benchmark
):
    question = [("begin", "a.png"), *question]
    talk = [human(*_with_paths(question)), gpt(*_with_paths(reference))]
    with tempfile.TemporaryDirectory() as made:
        root = Path(made) / "d"
        pictures = {name: png(colour) for name, colour in COLOURS.items()}
        folder(root, [row(id, field=field, conversations=talk)], pictures)
        (sample,) = good(loaded(root))
        document = Document(
            tuple(
                Text(part) if i == 0 else Image.of(pictures[part])
                for item in answer
                for i, part in enumerate(item)
                if part is not None
            )
        )
        by_digest = {Image.of(data).digest: data for data in pictures.values()}
        out = Path(made) / "out"
        pairs = [(sample, document)]
        export(pairs, model, out, lambda i: by_digest[i.digest], benchmark)
        accepted(out)
        ((again, read_back, *said),) = read_outputs(out, cache=Path(made) / "cache")
        assert again == sample
        assert read_back == document
        assert said == [model, benchmark]
        assert all(at_hand(i) == by_digest[i.digest] for i in read_back.images)


def _with_paths(items):
    return [(text, image and f"images/{image}") for text, image in items]


def test_a_folder_that_holds_anything_is_never_written_into(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "scores.txt").write_text("of somebody else")
    with pytest.raises(TaskError, match="is not empty; name another folder"):
        export([], "m", out, at_hand)
    assert [p.name for p in out.iterdir()] == ["scores.txt"]
    with pytest.raises(TaskError, match="is a file"):
        export([], "m", out / "scores.txt", at_hand)
    (out / "scores.txt").unlink()
    export([], "m", out, at_hand)
    before = (out / "data.json").read_bytes()
    with pytest.raises(TaskError, match="is not empty"):
        export([], "other", out, at_hand)
    assert (out / "data.json").read_bytes() == before


def test_an_export_that_is_cut_short_leaves_no_rows_behind(tmp_path):
    (sample,) = good(loaded(folder(tmp_path / "d", [row("SA-1")])))

    def broken(image):
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        export([(sample, Document())], "m", tmp_path / "out", broken)
    assert not (tmp_path / "out" / "data.json").exists()
    assert export([(sample, Document())], "m", tmp_path / "again", at_hand) == 1
    assert len(accepted(tmp_path / "again")) == 1


def output(id="MSR-1", *, model="gt", answer=None, **changes):
    whole = {
        "id": id,
        "question": [{"text": "q", "image": "images/a.png"}],
        "answer": [{"text": "a", "image": None}] if answer is None else answer,
        "model": model,
        "gt_answer": [{"text": "4", "image": None}],
    }
    whole |= changes
    return {k: v for k, v in whole.items() if v != "gone"}


def test_answers_of_somebody_else(tmp_path):
    rows = [
        output("MSR-1", answer="a plain string"),
        output("MSR-1", model="other"),
        output("SA-2", answer=[], gt_answer=[{"text": None, "image": None}]),
        output("PBL-3", field="Sports"),
    ]
    root = folder(tmp_path / "d", rows)
    for place in (root, root / "data.json"):
        first, second, third, fourth = read_outputs(place, cache=tmp_path / "cache")
        assert first.document == Document((Text("a plain string"),))
        assert first.query.question == (Text("q"), Image.of(png()))
        assert first.query.reference == Document((Text("4"),))
        assert first.query.category == "MSR"
        assert not first.query.wants_images
        assert (first.model, second.model) == ("gt", "other")
        assert first.query == second.query
        assert third.document == Document()
        assert third.query.reference is None
        assert isinstance(fourth.query, Query)
        assert (fourth.query.field, third.query.field) == ("Sports", "unknown")


def test_empty_texts_are_the_blank_lines_of_the_official_scorer(tmp_path):
    blank = [{"text": "", "image": "images/a.png"}, {"text": "q", "image": None}]
    rows = [output("SA-1", question=blank, answer=[{"text": "", "image": None}, *blank])]
    (found,) = read_outputs(folder(tmp_path / "d", rows), cache=tmp_path / "cache")
    flat = flatten(found.query.question, found.document.segments)
    assert flat.question == "\nImage-0: <image>\nq\n"
    assert flat.answer == "\n\nImage-1: <image>\nq\n"
    # Models are asked nothing empty, and an empty ground truth is none.
    talk = [human(("", "images/a.png")), gpt(("", None), ("b", None)), human(("c", None))]
    (sample,) = good(loaded(folder(tmp_path / "t", [row("SA-1", conversations=talk)])))
    asked = [turn.content for turn in prompts()(sample, "text")]
    assert asked[:2] == [(Image.of(png()),), (Text("b"),)]
    empty = [output("SA-1", gt_answer=[{"text": "", "image": None}])]
    (found,) = read_outputs(folder(tmp_path / "e", empty), cache=tmp_path / "cache")
    assert found.query.reference is None


BROKEN = [
    (output("SA-1", model="gone"), "missing key"),
    (output("SA-2", question="gone"), "missing key"),
    (output("SA-3", answer="gone"), "missing key"),
    (output("SA-4", gt_answer="gone"), "missing key"),
    (output("SA-5", gt_answer=[]), "empty content"),
    (output("SA-6", answer=7), "wrong type"),
    (output("SA-7", answer=[{"text": None, "image": "images/9.png"}]), "missing picture"),
    (
        output("SA-8", question=[{"text": None, "image": "../a.png"}]),
        "picture path leaves the data folder",
    ),
    (output("VIST-9"), "unreadable category"),
    (output("MSR-1", answer="another"), "duplicate id"),
    (3, "wrong type"),
]


def test_broken_answers_name_row_and_rule(tmp_path):
    rows = [output("MSR-1"), *(value for value, _ in BROKEN)]
    first, *broken = read_outputs(folder(tmp_path / "d", rows), cache=tmp_path / "cache")
    assert not isinstance(first, Broken)
    assert [f.row for f, *_ in broken] == list(range(1, len(rows)))
    assert [f.reason.split(": ")[1] for f, *_ in broken] == [rule for _, rule in BROKEN]
    named = [v.get("model") if isinstance(v, dict) else None for v in rows[1:]]
    assert [model for _, model, _ in broken] == named
    with pytest.raises(TaskError):
        read_outputs(tmp_path)


def test_two_answers_of_a_model_to_a_query_are_a_failure(tmp_path):
    """The same one twice is one."""
    rows = [output(model=m, answer=a) for m, a in zip("aabbc", "xyxxx", strict=True)]
    task, systems = systems_of_folder(folder(tmp_path / "d", rows))
    assert [s.id for s in task.samples] == ["MSR-1"]
    said = {s.name: s.answers["MSR-1"] for s in systems}
    assert isinstance(said["a"], Failure)
    assert "duplicate id" in said["a"].reason
    assert (said["b"].text, said["c"].text) == ("x", "x")


def test_a_broken_row_is_the_failure_of_the_model_it_names(tmp_path):
    rows = [
        output("SA-1", model="a"),
        output("SA-1", model="b", answer=7),
        output("SA-2", model="a", answer="gone"),
        output("SA-2", model="b"),
        output("SA-3", model="a"),
        output("SA-3", model="b", question=[{"text": "another", "image": None}]),
        output("SA-3", model="gone"),
        output("SA-4", model="a", gt_answer=[]),
    ]
    task, systems = systems_of_folder(folder(tmp_path / "d", rows))
    said = {s.name: {id: type(a).__name__ for id, a in s.answers.items()} for s in systems}
    assert said == {
        "a": {"SA-1": "Document", "SA-2": "Failure", "SA-3": "Document"},
        "b": {"SA-1": "Failure", "SA-2": "Document", "SA-3": "Failure"},
    }
    # Whose these are, or what was asked, is not known: failures of both.
    malformed = [s.id for s in task.samples if isinstance(s, Malformed)]
    assert malformed == ["row-6", "SA-4"]
    assert [s.id for s in task.samples if isinstance(s, Query)] == ["SA-1", "SA-2", "SA-3"]
    assert sum(task.about["malformed"].values()) == 4
    repetition = Repetition(task.prompt)
    found = read(systems[1].answer(task.samples[0], repetition), lambda job: None)
    assert isinstance(found, Failure)
    assert found.fault is Fault.BAD_INPUT
    assert "answer" in found.reason
