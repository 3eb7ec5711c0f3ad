"""GEdit and ImgEdit as task sets, answers of others in their layouts, and runs on them."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from editing_helpers import (
    BOTH,
    GEDIT_PROMPTS,
    IMGEDIT_PROMPTS,
    LOST,
    QUALITY,
    UPSTREAM,
    gedit_rows,
    imgedit_rows,
    write_gedit,
    write_imgedit,
)
from endpoint_helpers import MODEL, Answer, completion
from picture_helpers import flat
from task_rows import read, served_run

from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.generators.base import Failure
from plait.generators.document import Document, Image, Query, Text
from plait.scorers.judging import gedit, imgedit
from plait.scorers.judging.imgedit import ASPECTS, EDIT_TYPE
from plait.scorers.judging.summaries import GEDIT_GROUPS

pytestmark = pytest.mark.contract


def test_rows_of_gedit_are_an_image_and_an_instruction(tmp_path: Path) -> None:
    task = read("gedit", write_gedit(tmp_path / "data"))
    edits = [*gedit_rows()]
    samples = {q.id: q for q in task.samples}
    assert len(samples) == len(edits) == 66
    one = edits[0]
    query = samples[f"en-{one.key}"]
    assert isinstance(query, Query)
    image, text = query.question
    assert isinstance(image, Image)
    assert image.digest == Image.of(flat("red", (16, 12))).digest
    assert text == Text(one.instruction)
    assert (query.category, query.field) == (GEDIT_GROUPS[0], "en, intersection")
    assert samples["en-k2"].field == "en"
    assert task.fields == ("en, intersection", "en", "cn, intersection", "cn")
    assert {*task.categories.values()} == {1}
    for name, language in (("gedit-en", "en"), ("gedit-cn", "cn")):
        own = read(name, tmp_path / "data")
        assert {q.id.partition("-")[0] for q in own.samples} == {language}
        assert len(own.samples) == 33
        assert own.fields == (f"{language}, intersection", language)


def write_again(table: pa.Table, place: Path, layout: str) -> Path:
    """Write rows as they are kept elsewhere, beside what tells of them."""
    (place / "train").mkdir(parents=True)
    (place / "dataset_info.json").write_text("{}")
    if layout == "arrow":
        file = place / "train" / "data-00000-of-00001.arrow"
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        return place
    rows = table.to_pylist()
    for row in rows:
        for name in ("input_image", "input_image_raw"):
            row[name]["bytes"] = base64.b64encode(row[name]["bytes"]).decode()
    lines = "\n".join(map(json.dumps, rows))
    text = f"[{','.join(map(json.dumps, rows))}]" if layout == "json" else lines
    (place / f"data.{layout}").write_text(text)
    return place


@pytest.mark.parametrize("layout", ["json", "jsonl", "arrow"])
def test_rows_are_the_same_in_every_layout(tmp_path: Path, layout: str) -> None:
    published = write_gedit(tmp_path / "published")
    table = pq.read_table(published / "train-00000.parquet")
    other = write_again(table, tmp_path / "other", layout)
    samples = read("gedit", published).samples
    assert read("gedit", other).samples == samples
    if layout != "arrow":
        file = next(other.glob("data.*"))
        assert load(f"gedit:{file}", cache=other / "cache").samples == samples


def test_answers_to_edits_are_systems_and_what_is_missing_is_named(tmp_path: Path) -> None:
    place = write_gedit(tmp_path / "data")
    broken = place / "results" / "rich" / "fullset" / GEDIT_GROUPS[0] / "en" / "k0.png"
    broken.write_bytes(b"no image")
    task = read("gedit", place)
    rich = task.answers["rich"]
    poor = task.answers["poor"]
    assert len(rich) == 66
    drawn = rich["cn-k33"]
    assert isinstance(drawn, Document)
    assert drawn.images[0].digest == Image.of(flat("blue", (9, 9))).digest
    lost = rich["en-k0"]
    assert isinstance(lost, Failure)
    assert "rich/fullset" in lost.reason
    categories = {q.id: q.category for q in task.samples}
    assert {categories[id] for id in categories if id not in poor} == {LOST}


def test_rows_of_imgedit_are_an_image_and_an_instruction(tmp_path: Path) -> None:
    place = write_imgedit(tmp_path / "data")
    task = read("imgedit", place)
    rows = [*imgedit_rows()]
    assert [q.id for q in task.samples] == [row.key for row in rows]
    query = task.samples[0]
    assert isinstance(query, Query)
    image, text = query.question
    assert isinstance(image, Image)
    assert text == Text("Change number 0!")
    assert query.category == query.metadata[EDIT_TYPE] == "replace"
    assert {*task.categories} == {*ASPECTS}
    assert {*task.answers} == {"rich"}
    (place / "animal").rename(place / "original_images")
    (place / "basic_edit.json").rename(place / "singleturn.json")
    moved = load(f"imgedit:{place}", cache=place / "cache")
    assert "missing picture" in moved.samples[0].reason  # type: ignore[union-attr]
    (place / "original_images" / "animal").mkdir()
    (place / "original_images" / "a.png").rename(place / "original_images/animal/a.png")
    moved = load(f"imgedit:{place}", cache=place / "cache2")
    assert isinstance(moved.samples[0], Query)
    with pytest.raises(TaskError, match=r"basic_edit\.json"):
        load(f"imgedit:{place / 'edited_images'}", cache=place / "cache")


def gedit_reply(body: Any) -> Answer:
    """What is said of the one query whose instruction stands in the request."""
    text = json.dumps(body)
    own = {e.reply for e in gedit_rows() if json.dumps(e.instruction)[1:-1] in text}
    return Answer(completion(own.pop() if own else QUALITY))


@pytest.mark.usefixtures("worker_threads")
def test_a_run_of_gedit_prints_what_the_released_program_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through reader, judge and tables: the averages, of both languages."""
    texts = {
        "context": "C",
        "edit": "E",
        "consistency": "S <instruction>",
        "quality": GEDIT_PROMPTS.quality,
    }
    digests = {n: hashlib.sha256(t.encode()).hexdigest() for n, t in texts.items()}
    monkeypatch.setattr(gedit, "_DIGESTS", digests)
    place = write_gedit(tmp_path / "data")
    prompts = place / "vie_prompts.py"
    prompts.write_text("".join(f"_{n} = {t!r}\n" for n, t in texts.items()))
    scorer = f"gedit:openai:{MODEL}"
    words = ("--set", f'models."{scorer}".mode="official"')
    words += ("--set", f'models."{scorer}".rubric="official:{prompts}"')
    systems = ("published:rich", "published:poor")
    _, rows, _ = served_run(
        tmp_path / "run", f"gedit:{place}", systems, [scorer], gedit_reply, *words
    )
    for model in ("rich", "poor"):
        released = rows[f"published:{model}"]["scores"][scorer]["as_released"]
        assert released == UPSTREAM["gedit"]["printed"][model]
    page = (tmp_path / "run" / "leaderboard.md").read_text()
    assert "As released" in page
    assert "intersection" in page
    unread = (tmp_path / "run" / "failures.csv").read_text()
    assert "asks without end" in unread
    assert "makes a score up" in unread


@pytest.mark.usefixtures("worker_threads")
def test_a_run_of_imgedit_prints_what_the_released_program_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = {
        kind: hashlib.sha256(text.encode()).hexdigest()
        for kind, text in IMGEDIT_PROMPTS.items()
    }
    monkeypatch.setattr(imgedit, "_DIGESTS", digests)
    place = write_imgedit(tmp_path / "data")
    (place / "prompts.json").write_text(json.dumps(IMGEDIT_PROMPTS))
    replies = {f"Change number {row.key}!": row.reply for row in imgedit_rows()}

    def reply(body: Any) -> Answer:
        text = json.dumps(body)
        (own,) = (told for prompt, told in replies.items() if prompt in text)
        return Answer(completion(own))

    scorer = f"imgedit:openai:{MODEL}"
    words = ("--mode", "official", "--rubric", f"official:{place}")
    _, rows, _ = served_run(
        tmp_path / "run",
        f"imgedit:{place}",
        ["published:rich"],
        [scorer],
        reply,
        *words,
    )
    released = rows["published:rich"]["scores"][scorer]["as_released"]
    assert released == UPSTREAM["imgedit"]["types"]


@pytest.mark.usefixtures("worker_threads")
def test_corrected_runs_have_means_of_criteria_on_their_own_scale(tmp_path: Path) -> None:
    place = write_gedit(tmp_path / "data")
    scorer = f"gedit:openai:{MODEL}"
    done, rows, bodies = served_run(
        tmp_path / "run",
        f"gedit-en:{place}",
        ["published:rich"],
        [scorer],
        lambda _: Answer(completion(BOTH)),
    )
    assert done.exit_code == 0, done.output
    # All images are the same, so that their quality is asked for once.
    assert len(bodies) == 33 + 1
    scores = rows["published:rich"]["scores"][scorer]
    assert scores["avg_fixed"]["mean"] == scores["avg_micro"]["mean"] == 8
    assert scores["criteria"]["semantic consistency"]["mean"] == 8
    assert "as_released" not in scores
