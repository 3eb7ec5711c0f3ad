"""Creation-MMBench, MLLM-Bench and ProBench as task sets."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import Any

import pytest
from comparing_helpers import (
    base64_of,
    creation_row,
    mllm_row,
    picture,
    probench_row,
    write_mllm,
    write_parquet,
    write_tsv,
)

from benchmarks.tasks.creation_categories import CATEGORIES, CATEGORY_OF
from benchmarks.tasks.published import published
from benchmarks.tasks.task_set import TaskError, TaskSet, load
from cluster.store import read_blob
from generators.document import Image, Malformed, Sample, Text
from generators.errors import UsageError
from scorers.pairwise import resolve_protocol
from scorers.pairwise.creation import FACTUALITY, TRUTH
from scorers.pairwise.mllm_bench import QUESTION_TYPE
from scorers.pairwise.probench import TRACK
from scorers.pairwise.prompts import DESCRIPTION


def loaded(data: str, tmp_path: Path) -> TaskSet:
    return load(data, cache=tmp_path / "cache")


def creation(tmp_path: Path, *rows: dict[str, str], scheme: str = "creation") -> TaskSet:
    return loaded(f"{scheme}:{write_tsv(tmp_path / 'Creation.tsv', rows)}", tmp_path)


def sample_of(task: TaskSet, number: int = 0) -> Sample:
    sample = task.samples[number]
    assert isinstance(sample, Sample), sample
    return sample


def faults(task: TaskSet) -> list[str]:
    """The broken rule of each malformed row, in file order."""
    reasons = [s.reason for s in task.samples if isinstance(s, Malformed)]
    return [reason.split(": ")[1] for reason in reasons]


def shown(sample: Sample) -> list[str]:
    """Roles and contents, pictures as `<digest>`."""
    return [
        f"{t.role} "
        + " ".join(
            s.text if isinstance(s, Text) else f"<{s.digest[:6]}>" for s in t.content
        )
        for t in sample.turns
    ]


RED = hashlib.sha256(picture()).hexdigest()
BLUE = hashlib.sha256(picture("blue")).hexdigest()


# ---------------------------------------------------------------- Creation-MMBench


def test_the_paper_has_51_tasks() -> None:
    assert sum(len(tasks) for tasks in CATEGORIES.values()) == len(CATEGORY_OF) == 51


def test_a_creation_row_is_a_sample_with_pictures_before_the_question(
    tmp_path: Path,
) -> None:
    two = repr([base64_of(picture()), base64_of(picture("blue"))])
    task = creation(
        tmp_path,
        creation_row(1, image=two, question='two lines\nof "text"\there'),
        creation_row(2, ground_truth="it is red"),
    )
    first, second = sample_of(task), sample_of(task, 1)
    assert shown(first) == [f'user <{RED[:6]}> <{BLUE[:6]}> two lines\nof "text"\there']
    assert (first.category, first.field) == ("LW", "story_continue")
    assert (second.category, second.field) == ("CMU", "meme_explanation")
    assert first.criteria == "vivid"
    assert first.metadata == {FACTUALITY: "a red square"}
    assert second.metadata == {FACTUALITY: "a red square", TRUTH: "it is red"}
    assert task.prompt(first, "interleaved") == task.prompt(first, "text") == first.turns
    assert not first.wants_images


def test_pictures_are_on_disk_once_and_not_in_memory(tmp_path: Path) -> None:
    rows = [creation_row(1), creation_row(2)]
    for _ in range(2):
        task = creation(tmp_path, *rows)
        (one,), (other,) = (
            [s for s in sample_of(task, i).question if isinstance(s, Image)] for i in (0, 1)
        )
        assert one.place == other.place
        assert one.data is None
        assert read_blob(one) == picture()
    assert len([p for p in (tmp_path / "cache").rglob("*") if p.is_file()]) == 1


def test_a_row_may_share_the_pictures_of_another_wherever_that_stands(
    tmp_path: Path,
) -> None:
    rows = [creation_row(1, image="2"), creation_row(2), creation_row(3, image="2")]
    task = creation(tmp_path, *rows)
    assert [shown(sample_of(task, i))[0].split()[1] for i in range(3)] == [
        f"<{RED[:6]}>"
    ] * 3


@pytest.mark.parametrize(
    ("criteria", "wanted"),
    [
        ("be {vivid}", ("be {vivid}", None)),
        (repr({"SUBJECTIVE criteria": "a"}), ("a", None)),
        (repr({"x": "o", "general subjective": "a", "y": "last"}), ("a", "last")),
        (repr({"subjective": {"a": 1}}), ("{'a': 1}", None)),
    ],
)
def test_criteria_are_split_as_the_program_splits_them(
    tmp_path: Path, criteria: str, wanted: tuple[str, str | None]
) -> None:
    sample = sample_of(creation(tmp_path, creation_row(1, criteria=criteria)))
    assert (sample.criteria, sample.metadata.get(FACTUALITY)) == wanted


def test_broken_creation_rows_are_named_and_the_others_run(tmp_path: Path) -> None:
    task = creation(
        tmp_path,
        creation_row(1, image=""),
        creation_row(2, image="?" * 80),
        creation_row(3, image=base64_of(b"not a picture " * 9)),
        creation_row(4, image="77"),
        creation_row(5, task_name="cooking"),
        creation_row(6, question=" "),
        creation_row(7, criteria=repr({"other": "x"})),
        creation_row(8),
        creation_row(8),
        creation_row(9) | {"index": ""},
        creation_row(10, image="[" + "1," * 50 + "]"),
        creation_row(11, image="3"),
    )
    assert faults(task) == [
        "missing picture",
        "undecodable picture",
        "undecodable picture",
        "missing picture",
        "unreadable category",
        "empty content",
        "missing key",
        "duplicate id",
        "unusable id",
        "wrong type",
        "undecodable picture",
    ]
    assert [s.id for s in task.samples if isinstance(s, Sample)] == ["8"]
    assert [s.category for s in task.samples[3:6]] == ["CMU", "unknown", "CMU"]
    assert task.about["malformed"]["missing picture"] == 2
    assert task.about["rows"] == 12


def test_published_answers_stand_as_a_system(tmp_path: Path) -> None:
    task = creation(
        tmp_path, creation_row(1), creation_row(2, reference_answer_by_gpt4o="")
    )
    system = published("published:gpt-4o-1120", task)
    assert system.stages == ()
    assert {i: d.text for i, d in (system.answers or {}).items()} == {  # type: ignore[union-attr]
        "1": "a published answer to 1"
    }
    with pytest.raises(UsageError, match="gpt-4o-1120"):
        published("published:gpt-5", task)


def test_the_text_only_variant_shows_systems_descriptions_and_judges_pictures(
    tmp_path: Path,
) -> None:
    (tmp_path / "descriptions.json").write_text('{"1": "a red square, 12 by 8"}')
    task = creation(tmp_path, creation_row(1), creation_row(2), scheme="creation-text")
    sample = sample_of(task)
    assert sample.metadata[DESCRIPTION] == "a red square, 12 by 8"
    asked = task.prompt(sample, "text")
    assert all(isinstance(s, Text) for t in asked for s in t.content)
    assert "a red square, 12 by 8" in asked[-1].content[0].text  # type: ignore[union-attr]
    request = resolve_protocol("creation").requests(
        sample, *(task.answers["gpt-4o-1120"]["1"],) * 2
    )[0]
    assert RED in [s.digest for s in request.turns[0].content if isinstance(s, Image)]
    assert faults(task) == ["missing key"]


def test_a_tsv_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("index\tquestion\n1\twhat\n")
    with pytest.raises(TaskError, match="lacks the columns image"):
        loaded(f"creation:{tmp_path / 'x.tsv'}", tmp_path)
    (tmp_path / "x.tsv").write_bytes(b"index\tquestion\n\xff\xfe")
    with pytest.raises(TaskError, match=r"x\.tsv"):
        loaded(f"creation:{tmp_path}", tmp_path)
    with pytest.raises(TaskError, match="no data at"):
        loaded("creation:/nowhere", tmp_path)
    with pytest.raises(UsageError, match="own questions"):
        load("creation:/nowhere", prompts={"SA": {"text": "x"}}, cache=tmp_path)
    assert csv.field_size_limit() == 131072


# ---------------------------------------------------------------------- MLLM-Bench

ANSWER = {"gen_model_id": "llava-v1.5-13b", "answer": "a cup"}


def test_mllm_bench_rows_and_answer_files(tmp_path: Path) -> None:
    rows = [mllm_row(0), mllm_row(7, reference="object: a cup")]
    anchor = [{"unique_idx": 7} | ANSWER, {"unique_idx": 99} | ANSWER]
    root = write_mllm(tmp_path / "repo", rows, {"anchor.json": anchor, "notes.json": {}})
    task = loaded(f"mllm-bench:{root}", tmp_path)
    sample = sample_of(task, 1)
    assert (sample.id, sample.category, sample.field) == ("7", "Applying", "OCR")
    assert shown(sample) == [f"user <{RED[:6]}> what is 7?"]
    assert sample.criteria == "object: a cup"
    assert sample_of(task).criteria is None
    assert sample.metadata[QUESTION_TYPE] == "close-ended"
    assert {w: dict(a) for w, a in task.answers.items()}.keys() == {"llava-v1.5-13b"}
    assert task.answers["llava-v1.5-13b"].keys() == {"7"}
    assert list(task.about["unread_answers"]) == ["notes.json"]


def test_broken_mllm_bench_rows_are_named(tmp_path: Path) -> None:
    rows: list[Any] = [
        mllm_row(0),
        mllm_row(1, image_path="data/images/nowhere.png"),
        mllm_row(2, image_path="../nowhere.png"),
        mllm_row(True),
        mllm_row(3, meta=None),
        mllm_row(4, question=""),
        mllm_row(0),
        "no row",
    ]
    root = write_mllm(tmp_path / "repo", rows, {})
    task = loaded(f"mllm-bench:{root}", tmp_path)
    groups = [(s.category, s.field) for s in task.samples]
    assert groups == [("Applying", "OCR")] * 4 + [
        ("unknown", "unknown"),
        ("Applying", "OCR"),
        ("Applying", "OCR"),
        ("unknown", "unknown"),
    ]
    assert faults(task) == [
        "missing picture",
        "picture path leaves the data folder",
        "unusable id",
        "wrong type",
        "empty content",
        "duplicate id",
        "wrong type",
    ]
    with pytest.raises(TaskError, match=r"questions\.json"):
        loaded(f"mllm-bench:{tmp_path}", tmp_path)


# ------------------------------------------------------------------------ ProBench


def test_probench_conversations_end_with_the_last_human_turn(tmp_path: Path) -> None:
    rows = [
        probench_row("u1", "<|img|> make a plot \n", "here it is"),
        probench_row("u2", "one<|img|>", "first", "two", "second"),
        probench_row("u3", "<|img|>", "x", chat_type="multi-linguistic", language="fr"),
        probench_row("u4", "one<|img|>", "first", "two"),
    ]
    write_parquet(tmp_path / "d" / "data" / "train-00000-of-00001.parquet", rows)
    write_parquet(tmp_path / "d" / "data" / "test-00000-of-00001.parquet", rows[:1])
    task = loaded(f"probench:{tmp_path / 'd'}", tmp_path)
    assert [shown(sample_of(task, i)) for i in range(3)] == [
        [f"user make a plot <{RED[:6]}>"],
        [f"user one <{RED[:6]}>", "assistant first", "user two"],
        [f"user <{RED[:6]}>"],
    ]
    assert [s.category for s in task.samples] == [
        "singleround",
        "multi-round",
        "multi-linguistic",
        "multi-round",
    ]
    third = sample_of(task, 2)
    assert third.field == "Coding"
    assert third.metadata[TRACK] == "multi-linguistic"
    assert third.metadata["language"] == "fr"
    assert third.metadata["challenge_image"] == "HARD"
    answers = task.answers["gpt-4o-2024-05-13"]
    said = {id: [a.text for a in d.answers] for id, d in answers.items()}
    assert said == {"u1": ["here it is"], "u2": ["first", "second"], "u3": ["x"]}
    for mode in ("corrected", "official"):
        protocol = resolve_protocol("probench", mode)
        for i in range(3):
            sample = sample_of(task, i)
            asks = protocol.requests(sample, answers[sample.id], answers[sample.id])
            assert len(asks) == 2


def test_probench_pictures_by_path_and_broken_rows(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "a.png").write_bytes(picture("blue"))
    rows = [
        probench_row("u1", "a", "b", image={"bytes": None, "path": "a.png"}),
        probench_row("u2", "a", "b", image={"bytes": None, "path": "../a.png"}),
        probench_row("u3", "a", "b", image={"bytes": None, "path": "b.png"}),
        probench_row("u4", "a", "b", image={"bytes": b"no", "path": None}),
        probench_row("u5", "a", "b", chat_type="poem"),
        probench_row("u6"),
        probench_row("u7", " "),
        probench_row("", "a", "b"),
        probench_row("u1", "a", "b"),
    ]
    rows[6]["conversations"] = [{"from": "robot", "value": "a"}]
    write_parquet(folder / "x.parquet", rows)
    task = loaded(f"probench:{folder / 'x.parquet'}", tmp_path)
    assert shown(sample_of(task)) == [f"user a <{BLUE[:6]}>"]
    assert (task.samples[4].category, task.samples[1].field) == ("unknown", "Coding")
    assert faults(task) == [
        "picture path leaves the data folder",
        "missing picture",
        "undecodable picture",
        "unreadable category",
        "no human turn",
        "unknown speaker",
        "unusable id",
        "duplicate id",
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="no Parquet"):
        loaded(f"probench:{tmp_path / 'empty'}", tmp_path)
