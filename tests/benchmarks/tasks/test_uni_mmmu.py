"""Uni-MMMU as a task set: its six tasks, read from the layout of its data."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import pytest
from cli_helpers import invoke
from picture_helpers import flat

from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.generators.document import Image, Malformed, Query, Text
from plait.scorers.answers import KNOWN

pytestmark = pytest.mark.contract


def place(folder):
    """One row of each task, two of mazes, of which one is the demonstration."""
    data = folder / "data"

    def picture(*names):
        for name in names:
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            (data / name).write_bytes(flat(f"#{crc32(name.encode()) & 0xFFFFFF:06x}"))

    def write(name, content):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (data / name).write_text(text)

    jigsaw = "jigsaw_dataset_2x2ref"
    names = ("ref", "c0", "c1", "ok", "bad")
    picture(*(f"{jigsaw}/{n}.png" for n in names))
    item = {
        "id": "ex",
        "label": 1,
        "ref_panel": {"ref_image_path": "ref.png"},
        "candidate_paths": ["c0.png", "c1.png"],
        "gt_completed_2x2_path": f"./data/{jigsaw}/ok.png",
        "gt_wrong_2x2_path": f"data/{jigsaw}/bad.png",
    }
    write(f"{jigsaw}/metadata.json", {"items": [item, item | {"label": 2}]})
    for number in ("00015", "00016"):
        steps = f"maze/maze_6x6_{number}_steps"
        picture(*(f"{steps}/maze_step_{i:04d}.png" for i in range(3)))
        write(f"maze/maze_6x6_steps_{number}.json", {"steps_long": ["Right", "down"]})
    picture(*(f"sliding/demo_3x3_00002_steps/demo_step_{i:04d}.png" for i in range(2)))
    write("sliding/demo_3x3_steps_words_00002.json", {"steps_words": ["up"]})
    record = {
        "steps_dir": "data/sliding/demo_3x3_00002_steps",
        "steps_words_json": "data/sliding/demo_3x3_steps_words_00002.json",
    }
    write("sliding/summary_steps_le_8.json", {"items": [record]})
    picture("math_data/o.png", "math_data/a.png")
    problem = {
        "type": "calculation",
        "problem_text_en": "How long is {choices}?",
        "choices_en": ["1", "2"],
        "auxiliary_text_en": "Draw AB.",
        "original_image": "o.png",
        "auxiliary_image": "a.png",
        "solution_en": "It is 2.",
    }
    write("math_data/filtered.json", {"big": {"small": problem}})
    picture("science/ice.png")
    case = {
        "input_image_file_path_list": ["./data/science/ice.png"],
        "input_prompt": "It is warm.",
        "output_prompt": "It melts.",
    }
    write("science/dim_all.json", [{"samples": [case]}])
    picture("svg/x.png")
    write("svg/x.svg", "<svg/>")
    write("svg/metadata.json", {"samples": [{"id": "x", "svg": "x.svg", "png": "x.png"}]})
    return folder


def test_every_task_is_read(tmp_path):
    task = load(f"uni-mmmu:{place(tmp_path)}", cache=tmp_path / "cache")
    queries = {q.id: q for q in task.samples if isinstance(q, Query)}
    (broken,) = (q for q in task.samples if isinstance(q, Malformed))
    assert (broken.id, broken.category) == ("jigsaw-002", "jigsaw")
    assert {
        id: (q.category, q.field[0], len(q.turns[0].content)) for id, q in queries.items()
    } == {
        "jigsaw-001": ("jigsaw", "u", 7),
        "maze-00016": ("maze", "u", 3),
        "sliding-001": ("sliding", "u", 5),
        "geometry-big__small": ("geometry", "u", 3),
        "science-01": ("science", "g", 3),
        "code-001": ("code", "g", 1),
    }
    known = {
        id: json.loads(q.metadata[KNOWN])
        for id, q in queries.items()
        if KNOWN in q.metadata
    }
    assert known == {
        "jigsaw-001": {"form": "choice", "truth": 1},
        "maze-00016": {"form": "moves", "truth": ["right", "down"]},
        "sliding-001": {"form": "moves", "truth": ["up"]},
    }
    drawn = {id: len(q.reference.images) for id, q in queries.items() if q.reference}
    assert list(drawn.values()) == [2, 1, 1, 2, 1, 0]
    names = [s.place for s in queries["jigsaw-001"].reference.images]
    assert [Path(str(n)).name for n in names] == ["bad.png", "ok.png"]
    first, *_ = queries["geometry-big__small"].question
    assert isinstance(first, Text)
    assert "Draw AB." in first.text
    code = queries["code-001"].question[0]
    assert isinstance(code, Text)
    assert code.text.endswith("<svg/>")
    assert all(isinstance(s, Text | Image) for q in queries.values() for s in q.question)


def test_data_without_a_task_are_refused(tmp_path):
    with pytest.raises(TaskError, match="jigsaw"):
        load(f"uni-mmmu:{tmp_path}", cache=tmp_path / "cache")


@pytest.mark.parametrize("samples", [None, 3, "case"])
def test_scenes_that_are_no_list_are_refused(tmp_path, samples):
    file = place(tmp_path) / "data" / "science" / "dim_all.json"
    file.write_text(json.dumps([{}, {"samples": samples}]))
    with pytest.raises(TaskError, match=r"dim_all\.json: samples must be a list, not "):
        load(f"uni-mmmu:{tmp_path}", cache=tmp_path / "cache")


@pytest.mark.usefixtures("worker_threads")
def test_the_ground_truth_has_the_known_answers_by_one_command(tmp_path):
    out = tmp_path / "run"
    words = ["--data", f"uni-mmmu:{place(tmp_path / 'd')}", "--weights", "tiny"]
    words += ["--system", "gt", "--scorer", "known-answer", "--out", str(out)]
    invoke("run", *words)
    (row,) = json.loads((out / "leaderboard.json").read_text())
    cell = row["scores"]["known-answer"]["avg_micro"]
    assert (cell["mean"], cell["scored"], cell["not_applicable"]) == (1, 3, 3)
