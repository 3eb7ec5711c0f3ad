"""Prompt sets for text-to-image models, and such a model alone as a system."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_helpers import invoke

from plait.api import open_run
from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.generators.document import Malformed, Query
from plait.scorers.vqa.dpg import FIRST_ROW, PROPOSITIONS
from plait.scorers.vqa.geneval2 import ATOMS

pytestmark = pytest.mark.contract

ROW: dict[str, Any] = {
    "prompt": "two red cups",
    "atom_count": 3,
    "vqa_list": [["How many cups are in the image?", "two"], ["Are the cups red?", "Yes"]],
    "skills": ["count", "attribute"],
}
HEAD = (
    "item_id,text,keywords,proposition_id,dependency,category_broad,category_detailed,"
    "tuple,question_natural_language\n"
)
DPG = (
    f"{HEAD}"
    'whale,"A whale, grey",,1,0,entity,whole,entity - whole (whale),Is there a whale?\n'
    'whale,"A whale, grey",,2,"1, 0",attribute,color,x,Is the whale grey?\n'
    "kite,A kite,,1,one,entity,whole,entity - whole (kite),Is there a kite?\n"
    "hill,A hill,,1,0,entity,whole,entity - whole (hill),Is there a hill?\n"
)


def read(data, tmp_path):
    return load(data, cache=tmp_path / "cache")


def lines(*rows):
    return "\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows) + "\n"


def told(task):
    """Id, category and prompt of each query; the rule of each malformed row."""
    return [
        (s.id, s.category, s.question[0].text)
        if isinstance(s, Query)
        else (s.id, s.category, s.reason.split(": ")[1])
        for s in task.samples
    ]


def test_geneval2_brings_its_atoms(tmp_path):
    broken = {**ROW, "skills": ["count"]}, {**ROW, "vqa_list": ["x", "y"]}, "no JSON"
    rows = (ROW, "", {**ROW, "atom_count": 10}, *broken, {**ROW, "prompt": " "})
    (tmp_path / "geneval2_data.jsonl").write_text(lines(*rows))
    for place in (tmp_path, tmp_path / "geneval2_data.jsonl"):
        task = read(f"geneval2:{place}", tmp_path)
        assert told(task) == [
            ("0001", "3 atoms", "two red cups"),
            ("0003", "10 atoms", "two red cups"),
            *((f"row-{i}", "unknown", "wrong type") for i in (2, 3, 4)),
            ("row-5", "unknown", "empty content"),
        ]
    (first, *_) = task.samples
    assert json.loads(first.metadata[ATOMS]) == [
        ["How many cups are in the image?", "two", "count"],
        ["Are the cups red?", "Yes", "attribute"],
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="geneval2_data"):
        read(f"geneval2:{tmp_path / 'empty'}", tmp_path)


def test_dpg_brings_its_propositions(tmp_path):
    (tmp_path / "dpg_bench.csv").write_text(DPG)
    task = read(f"dpg:{tmp_path}", tmp_path)
    whale, kite, hill = task.samples
    assert isinstance(kite, Malformed)
    assert told(task)[0] == ("whale", "unknown", "A whale, grey")
    assert json.loads(whale.metadata[PROPOSITIONS]) == [
        [1, [], "entity", "Is there a whale?"],
        [2, [1], "attribute", "Is the whale grey?"],
    ]
    assert FIRST_ROW in whale.metadata
    assert FIRST_ROW not in hill.metadata
    assert "'one'" in kite.reason
    (tmp_path / "dpg_bench.csv").write_text("item_id,text\nwhale,A whale\n")
    with pytest.raises(TaskError, match="proposition_id"):
        read(f"dpg:{tmp_path}", tmp_path)


def test_t2i_compbench_is_read_by_category(tmp_path):
    folder = tmp_path / "checkout" / "examples" / "dataset"
    folder.mkdir(parents=True)
    for name in ("color_val", "shape_val", "color_train", "color_val_seen"):
        (folder / f"{name}.txt").write_text(f"a {name}\n\nanother\n")
    expected = [
        ("color-001", "color", "a color_val"),
        ("color-003", "color", "another"),
        ("shape-001", "shape", "a shape_val"),
        ("shape-003", "shape", "another"),
    ]
    for place in (tmp_path / "checkout", folder):
        assert told(read(f"t2i-compbench:{place}", tmp_path)) == expected
    one = read(f"t2i-compbench:{folder / 'color_train.txt'}", tmp_path)
    assert [category for _, category, _ in told(one)] == ["color_train"] * 2
    with pytest.raises(TaskError, match="CATEGORY_val"):
        read(f"t2i-compbench:{tmp_path}", tmp_path)


def test_prompts_of_ones_own_are_lines_or_json(tmp_path):
    (tmp_path / "mine.txt").write_text("a cat\n\n a dog \n")
    task = read(f"prompts:{tmp_path / 'mine.txt'}", tmp_path)
    assert told(task) == [("0001", "unknown", "a cat"), ("0003", "unknown", "a dog")]
    rows = ({"prompt": "a cat"}, {"prompt": "a dog", "id": "dog", "category": "pets"}, {})
    (tmp_path / "mine.jsonl").write_text(lines(*rows, {"prompt": "x", "id": 3}))
    assert told(read(f"prompts:{tmp_path / 'mine.jsonl'}", tmp_path)) == [
        ("0001", "unknown", "a cat"),
        ("dog", "pets", "a dog"),
        ("row-2", "unknown", "missing key"),
        ("3", "unknown", "x"),
    ]


@pytest.mark.models
def test_a_t2i_model_alone_draws_and_is_scored_by_one_command(tmp_path):
    (tmp_path / "geneval2_data.jsonl").write_text(lines(ROW, {**ROW, "prompt": "a cup"}))
    run = tmp_path / "run"
    words = ["run", "--data", f"geneval2:{tmp_path}", "--system", "sdxl-turbo@t2i"]
    words += ["--scorer", "geneval2:qwen2-vl-7b", "--scorer", "vqascore:qwen2-vl-7b"]
    words += ["--weights", "tiny", "--repeats", "2", "--executor", "local"]
    words += ["--set", "models.sdxl-turbo.steps=1"]
    done = invoke(*words, "--out", str(run))
    assert done.exit_code == 0, done.output
    rows = open_run(run).table.to_pylist()
    answers = [row for row in rows if row["scorer"] is None]
    assert {(r["system"], r["lvlm"], r["t2i"], r["protocol"]) for r in answers} == {
        ("sdxl-turbo@t2i", None, "sdxl-turbo", "t2i")
    }
    scores = [row["value"] for row in rows if row["scorer"] and row["criterion"] is None]
    assert len(set(scores)) == 8, "each of two images of two prompts, by each scorer"
    skills = {row["criterion"] for row in rows} - {None}
    assert skills == {"count", "attribute"}
