"""`--data miniature[:N]`, its export in MMIE's format, and the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from miniature_simulator import ORDER, things
from mmie_helpers import folder, good, loaded, row
from typer.testing import CliRunner

from benchmarks.runs.config import RunConfig, anchored
from benchmarks.tasks.miniature import __main__ as command
from benchmarks.tasks.miniature.queries import FIELDS, queries
from benchmarks.tasks.miniature.samples import sample_of
from benchmarks.tasks.task_set import load
from generators.document import Sample, Text
from generators.errors import UsageError
from generators.pictures import decode
from plait import app
from scorers.truth.drawing import centre
from scorers.truth.scene import BACKGROUNDS, COLOURS

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return load("miniature:30", cache=tmp_path_factory.mktemp("cache"))


def test_the_task_set(task) -> None:
    assert task.name == "miniature"
    assert task.fields == FIELDS
    assert len(task.samples) == task.about["rows"] == 30
    assert task.about["source"] == "miniature:30"
    assert all(isinstance(s, Sample) for s in task.samples)
    turns = task.prompt(task.samples[0], "interleaved")
    (first, _, last) = turns[0].content
    assert "Continue the story with text and images." in first.text
    assert last.text.endswith("\nAnswer:")


def test_forty_queries_by_default_and_more_begin_with_the_same(task, tmp_path) -> None:
    forty = load("miniature", cache=tmp_path)
    assert len(forty.samples) == 40
    assert forty.samples[:30] == task.samples
    assert forty.about["digest"] != task.about["digest"]


def test_equal_data_has_equal_digests(task, tmp_path) -> None:
    again = load("miniature:30", cache=tmp_path)
    assert again.samples == task.samples
    assert again.about["digest"] == task.about["digest"]


def test_samples_hold_what_the_queries_say(task) -> None:
    for query, sample in zip(queries(30, 0, "test"), task.samples, strict=True):
        assert (sample.id, sample.category, sample.field) == (
            *(query.id, query.category, query.field),
        )
        assert sample.wants_images == query.wants_images == bool(sample.reference.images)
        assert sample.criteria == query.criteria
        asked = zip((*query.question, *query.answer), _content(sample), strict=True)
        for part, segment in asked:
            if isinstance(segment, Text):
                assert segment.text == part
            else:
                _shows(Path(segment.place).read_bytes(), part.scene)


def _content(sample: Sample):
    return (*sample.question, *sample.reference.segments)


def _shows(data: bytes, scene) -> None:
    """Each place of the picture has its item's colour in the middle, or the background."""
    pixels = decode(data)
    assert pixels.size == (64, 64)
    items = things(scene)
    for place in ORDER:
        colour = (
            COLOURS[items[place][1]] if place in items else BACKGROUNDS[scene.background]
        )
        x, y = centre(place)
        seen = pixels.getpixel((int(x), int(y)))
        assert max(abs(a - b) for a, b in zip(seen, colour, strict=True)) < 12, place


def test_pictures_need_no_cache_folder() -> None:
    (query,) = queries(1, 0, "train")
    sample = sample_of(query)
    assert [decode(i.read()).size for i in sample.reference.images] == [(64, 64)]


def test_the_export_is_read_as_equal_samples(task, tmp_path) -> None:
    done = RUNNER.invoke(_app(), ["--out", str(tmp_path / "world"), "-n", "30"])
    assert done.exit_code == 0, done.output
    again = load(str(tmp_path / "world"), cache=tmp_path / "cache")
    assert again.samples == task.samples
    assert [task.prompt(s, "text") for s in good(task)] == [
        again.prompt(s, "text") for s in good(again)
    ]


def _app():
    import typer

    made = typer.Typer()
    made.command()(command.main)
    return made


def test_an_export_overwrites_nothing(tmp_path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = RUNNER.invoke(_app(), ["--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "is not empty" in done.output
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_criteria_of_mmie_rows(tmp_path) -> None:
    rows = [
        row("PBL-1", criteria="A cat."),
        row("PBL-2"),
        row("PBL-3", criteria=["a", 1]),
        row("PBL-4", criteria=""),
    ]
    first, second, third, fourth = good(loaded(folder(tmp_path / "data", rows)))
    assert (first.criteria, first.metadata) == ("A cat.", {})
    assert (second.criteria, second.metadata) == (None, {})
    assert (third.criteria, third.metadata) == (None, {"criteria": json.dumps(["a", 1])})
    assert (fourth.criteria, fourth.metadata) == (None, {"criteria": ""})


@pytest.mark.parametrize("number", ["0", "x", "", "-3", "1.5", "²"])
def test_a_wrong_number_is_refused(number, tmp_path) -> None:
    with pytest.raises(UsageError, match=r"not a valid number of queries.*miniature:40"):
        load(f"miniature:{number}", cache=tmp_path)


def test_the_name_means_the_same_from_any_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "miniature").mkdir()
    for data in ("miniature", "miniature:12"):
        config = anchored(RunConfig(data=data, systems=("gt",)))
        assert config.data == data
    folder(tmp_path / "miniature:12", [row()])
    assert len(load("miniature:12", cache=tmp_path / "c").samples) == 1
    assert anchored(RunConfig(data="miniature:12")).data == str(tmp_path / "miniature:12")
    assert len(load("miniature", cache=tmp_path / "c").samples) == 40


def test_your_own_wording(tmp_path) -> None:
    task = load("miniature:3", prompts={"SA": {"text": "Go on."}}, cache=tmp_path)
    (turn,) = task.prompt(task.samples[0], "text")
    assert turn.content[0].text.startswith("Go on.\nQuestion:")
    with pytest.raises(UsageError):
        load("miniature:3", prompts={"XY": {"text": "Go on."}}, cache=tmp_path)


def test_plan_and_list(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["plan", "--data", "miniature:12", "--system", "gt", "--weights", "tiny"]
    done = RUNNER.invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "12 documents: 12 queries" in done.output
    assert "miniature:N" in RUNNER.invoke(app, ["list", "data"]).output


def test_the_same_samples_whatever_the_cache(task, tmp_path) -> None:
    """Keys name pictures by their bytes, not by where they lie."""
    drawn = [sample_of(q) for q in queries(30, 0, "test")]
    assert [replace(s, metadata={}) for s in task.samples] == drawn
