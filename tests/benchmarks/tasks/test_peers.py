"""What is particular to Creation-MMBench, MLLM-Bench, MMRB2 and other peers of MMIE."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from comparing_helpers import (
    base64_of,
    creation_row,
    mllm_row,
    mmrb2_pair,
    probench_row,
    write_mllm,
    write_mmrb2,
    write_parquet,
    write_tsv,
)
from paths import CHECKOUT
from picture_helpers import flat

from plait.benchmarks.tasks.creation_mmbench import CATEGORY_OF
from plait.benchmarks.tasks.mmrb2 import ANSWERS, CHOSEN, GENERATOR
from plait.benchmarks.tasks.published import system_of_writer
from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.generators.base import Failure
from plait.generators.document import Document, Image, Malformed, Query, Text
from plait.generators.errors import UsageError
from plait.scorers.judging.sources import parse_rubric
from plait.scorers.judging.user_rubric import read_user_rubric
from plait.scorers.pairwise import resolve_protocol
from plait.scorers.pairwise.creation import FACTUALITY, TRUTH
from plait.scorers.pairwise.mllm_bench import QUESTION_TYPE
from plait.scorers.pairwise.probench import TRACK
from plait.scorers.pairwise.prompts import DESCRIPTION

RED = hashlib.sha256(flat()).hexdigest()
BLUE = hashlib.sha256(flat("blue")).hexdigest()


def creation(tmp_path, *rows, scheme="creation"):
    data = f"{scheme}:{write_tsv(tmp_path / 'Creation.tsv', rows)}"
    return load(data, cache=tmp_path / "cache")


def shown(sample):
    """Roles and contents, images as `<digest>`."""
    assert isinstance(sample, Query), sample
    texts = [
        [s.text if isinstance(s, Text) else f"<{s.digest[:6]}>" for s in turn.content]
        for turn in sample.turns
    ]
    return [f"{t.role} {' '.join(x)}" for t, x in zip(sample.turns, texts, strict=True)]


def test_a_creation_row_has_its_images_before_the_question(tmp_path):
    assert len(CATEGORY_OF) == 51
    two = repr([base64_of(flat()), base64_of(flat("blue"))])
    task = creation(
        tmp_path,
        creation_row(1, image=two, question='two lines\nof "text"\there'),
        creation_row(2, ground_truth="it is red", image="3"),
        creation_row(3, reference_answer_by_gpt4o=""),
    )
    first, second, third = task.samples
    assert shown(first) == [f'user <{RED[:6]}> <{BLUE[:6]}> two lines\nof "text"\there']
    assert shown(second)[0].split()[1] == shown(third)[0].split()[1] == f"<{RED[:6]}>"
    assert (first.category, first.field) == ("LW", "story_continue")
    assert (second.category, second.field) == ("CMU", "meme_explanation")
    assert first.criteria == "vivid"
    assert first.metadata == {FACTUALITY: "a red square"}
    assert second.metadata == {FACTUALITY: "a red square", TRUTH: "it is red"}
    assert task.prompt(first, "interleaved") == task.prompt(first, "text") == first.turns
    assert not first.wants_images
    assert csv.field_size_limit() == 131072
    system = system_of_writer("published:gpt-4o-1120", task)
    assert system.stages == ()
    assert {i: d.text for i, d in system.answers.items()} == {
        i: f"a published answer to {i}" for i in ("1", "2")
    }
    with pytest.raises(UsageError, match="gpt-4o-1120"):
        system_of_writer("published:gpt-5", task)


def test_a_cell_that_takes_in_others_is_an_error(tmp_path):
    """A tab that is not quoted, and a quotation mark that is left open."""
    rows = [creation_row(i, question=f"what\tis {i}?") for i in (1, 2, 3)]
    file = write_tsv(tmp_path / "Creation.tsv", rows)
    text = file.read_text().replace('"what\tis 2?"', "what\tis 2?")
    file.write_text(text)
    with pytest.raises(TaskError, match=r"Creation\.tsv cannot be read as a table: line 3"):
        load(f"creation:{file}", cache=tmp_path / "cache")
    file.write_text(text.replace("what\tis 2?", '"what is 2?'))
    with pytest.raises(TaskError, match=r"Creation\.tsv cannot be read as a table"):
        load(f"creation:{file}", cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("criteria", "wanted"),
    [
        ("be {vivid}", ("be {vivid}", None)),
        (repr({"SUBJECTIVE criteria": "a"}), ("a", None)),
        (repr({"x": "o", "general subjective": "a", "y": "last"}), ("a", "last")),
        (repr({"subjective": {"a": 1}}), ("{'a': 1}", None)),
    ],
)
def test_criteria_are_split_as_the_program_splits_them(tmp_path, criteria, wanted):
    (sample,) = creation(tmp_path, creation_row(1, criteria=criteria)).samples
    assert (sample.criteria, sample.metadata.get(FACTUALITY)) == wanted


def test_the_text_only_variant_shows_systems_descriptions_and_judges_images(tmp_path):
    (tmp_path / "descriptions.json").write_text('{"1": "a red square, 12 by 8"}')
    task = creation(tmp_path, creation_row(1), creation_row(2), scheme="creation-text")
    sample, without = task.samples
    assert isinstance(without, Malformed)
    assert sample.metadata[DESCRIPTION] == "a red square, 12 by 8"
    asked = task.prompt(sample, "text")
    assert all(isinstance(s, Text) for t in asked for s in t.content)
    assert "a red square, 12 by 8" in asked[-1].content[0].text
    answer = task.answers["gpt-4o-1120"]["1"]
    request = resolve_protocol("creation").requests(sample, answer, answer)[0]
    assert RED in [s.digest for s in request.turns[0].content if isinstance(s, Image)]


def test_mllm_bench_rows_and_answer_files(tmp_path):
    answer = {"gen_model_id": "llava-v1.5-13b", "answer": "a cup"}
    rows = [mllm_row(0), mllm_row(7, reference="object: a cup")]
    anchor = [{"unique_idx": 7} | answer, {"unique_idx": 99} | answer]
    twice = [{"unique_idx": 7, "gen_model_id": "x", "answer": a} for a in ("a cup", "tea")]
    anchor += [{"unique_idx": 7} | answer, *twice]
    root = write_mllm(tmp_path / "repo", rows, {"anchor.json": anchor, "notes.json": {}})
    task = load(f"mllm-bench:{root}", cache=tmp_path / "cache")
    first, sample = task.samples
    assert (sample.id, sample.category, sample.field) == ("7", "Applying", "OCR")
    assert shown(sample) == [f"user <{RED[:6]}> what is 7?"]
    assert (first.criteria, sample.criteria) == (None, "object: a cup")
    assert sample.metadata[QUESTION_TYPE] == "close-ended"
    made = {writer: by_id["7"] for writer, by_id in task.answers.items()}
    assert isinstance(made["llava-v1.5-13b"], Document)
    assert isinstance(made["x"], Failure), "two answers to one query"
    assert list(task.about["unread_answers"]) == ["notes.json"]


def test_probench_conversations_end_with_the_last_human_turn(tmp_path):
    by_path = {"bytes": None, "path": "images/blue.png"}
    rows = [
        probench_row("u1", "<|img|> make a plot \n", "here it is", image=by_path),
        probench_row("u2", "one<|img|>", "first", "two", "second"),
        probench_row("u3", "<|img|>", "x", chat_type="multi-linguistic", language="fr"),
        probench_row("u4", "one<|img|>", "first", "two"),
    ]
    write_parquet(tmp_path / "d" / "data" / "train-00000-of-00001.parquet", rows)
    write_parquet(tmp_path / "d" / "data" / "test-00000-of-00001.parquet", rows[:1])
    # Images may lie on another disk, as MMIE's may.
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "blue.png").write_bytes(flat("blue"))
    (tmp_path / "d" / "images").symlink_to(tmp_path / "disk")
    task = load(f"probench:{tmp_path / 'd'}", cache=tmp_path / "cache")
    first, second, third, _ = task.samples
    assert shown(first) == [f"user make a plot <{BLUE[:6]}>"]
    assert shown(second) == [f"user one <{RED[:6]}>", "assistant first", "user two"]
    assert shown(third) == [f"user <{RED[:6]}>"]
    tracks = ["singleround", "multi-round", "multi-linguistic", "multi-round"]
    assert [s.category for s in task.samples] == tracks
    assert third.field == "Coding"
    assert third.metadata.items() >= {TRACK: tracks[2], "language": "fr"}.items()
    assert third.metadata["challenge_image"] == "HARD"
    answers = task.answers["gpt-4o-2024-05-13"]
    said = {id: [a.text for a in d.answers] for id, d in answers.items()}
    assert said == {"u1": ["here it is"], "u2": ["first", "second"], "u3": ["x"]}
    for mode in ("corrected", "official"):
        protocol = resolve_protocol("probench", mode)
        for sample in (first, second, third):
            answer = answers[sample.id]
            assert len(protocol.requests(sample, answer, answer)) == 2


def test_mmrb2_has_both_answers_of_every_pair_in_each_split(tmp_path):
    """A picture alone, texts alone, and both in their order with blanks between them."""
    drawn = [["image", "images/a.png"]]
    told = [["text", "so"], ["text", "\n"], ["image", "images/b.png"], ["text", ""]]
    ratings = {"response_a_ratings": ["A"], "response_b_ratings": []}
    about: dict[str, dict[str, Any]] = {
        "t2i": {"prompt_source": "wise", "prompt_metadata": {"id": "7"}},
        "edit": {"chosen": "B"},
        "interleaved": {},
        "reasoning": {"human_annotations": ratings},
    }
    answers = {
        "t2i": drawn,
        "edit": drawn,
        "interleaved": told,
        "reasoning": [["text", "4"]],
    }
    splits = {
        split: [
            mmrb2_pair(
                split,
                response_a={"model_name": "imagen4", "response_content": answers[split]},
                **own,
            )
        ]
        for split, own in about.items()
    }
    root = write_mmrb2(tmp_path / "mmrb2", splits)
    task = load(f"mmrb2:{root}", cache=tmp_path / "cache")
    queries = [s for s in task.samples if isinstance(s, Query)]
    assert [q.category for q in queries] == list(splits)
    assert [q.wants_images for q in queries] == [True, True, True, False]
    assert [q.field for q in queries] == ["wise", *["isgbench"] * 3]
    assert [q.metadata[CHOSEN] for q in queries] == ["A", "B", "A", "A"]
    named = [q.metadata[GENERATOR.format(side)] for q in queries for side in "AB"]
    assert named == ["imagen4", "model-b"] * 4
    assert shown(queries[0]) == [f"user What is t2i? <{RED[:6]}>"]
    first, second = (system_of_writer(name, task).answers for name in ANSWERS)
    assert [type(s) for s in first["interleaved"].segments] == [Text, Text, Image]
    assert first["interleaved"].text == "so\n\n"
    assert (first["t2i"].text, len(first["t2i"].images)) == ("", 1)
    assert second["reasoning"].text == "b on reasoning and much more"
    (checked,) = (tmp_path / "cache" / "pictures").iterdir()
    assert len(json.loads(checked.read_text())["checks"]) == 3, "images are checked at once"
    one = load(f"mmrb2:{root / 'edit.json'}", cache=tmp_path / "cache")
    assert [s.id for s in one.samples] == ["edit"]
    (root / "edit.json").rename(root / "other.json")
    with pytest.raises(TaskError, match=r"t2i\.json"):
        load(f"mmrb2:{root / 'other.json'}", cache=tmp_path / "cache")


def test_the_rubric_for_interleavedbench_has_its_aspects():
    """Five from 0 to 5; answers that are images alone are not asked about text."""
    file = CHECKOUT / "examples/interleavedbench/rubric.toml"
    rubric = read_user_rubric(parse_rubric(str(file)).text)
    query = Query(id="0", turns=(), category="storytelling_generation", field="")
    usual = rubric.of(query).criteria
    assert [c.name for c in usual] == [
        *("Text quality", "Perceptual quality", "Image coherence"),
        *("Text-image coherence", "Helpfulness"),
    ]
    assert [rubric.score, *{str(c.scale) for c in usual}] == ["0-5", "0-5"]
    edited = rubric.of(replace(query, category="image_editing")).criteria
    assert [c.name for c in edited] == [usual[1].name, usual[2].name, usual[4].name]


def test_interleavedbench_images_go_to_the_question_then_to_the_ground_truth(tmp_path):
    (tmp_path / "zipped_images").mkdir()
    for name, colour in zip("abc", ("red", "green", "blue"), strict=True):
        (tmp_path / "zipped_images" / f"{name}.png").write_bytes(flat(colour))
    talk = [
        {"from": "human", "value": "<BEGIN> Go on. <image>. Step 1: cut."},
        {"from": "gpt", "value": "Step 2: fold. <image>"},
    ]
    whole = {"task_name": "next_step", "image": ["a.png", "b.png", "c.png"]}
    rows = [
        whole | {"conversations": talk},
        whole | {"image": ["a.png"], "conversations": talk[:1]},
        whole | {"image": ["a.png"], "conversations": [{"value": "<image><image>"}]},
        whole | {"conversations": []},
    ]
    (tmp_path / "interleaved_bench.json").write_text(json.dumps(rows))
    task = load(f"interleavedbench:{tmp_path}", cache=tmp_path / "cache")
    first, second, *broken = task.samples
    assert shown(first) == [f"user Go on. <{RED[:6]}> Step 1: cut."]
    text, *images = first.reference.segments
    assert text == Text("Step 2: fold.")
    assert [Path(image.place).stem for image in images] == ["b", "c"]
    assert (first.id, first.category) == ("0", "next_step")
    assert second.reference is None
    rules = ["missing picture", "no human turn"]
    assert [b.reason.split(": ")[1] for b in broken] == rules
