"""SpecV as a task set, answers of others in its layout, and runs on them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import invoke
from comparing_helpers import base64_of
from endpoint_helpers import MODEL, Answer, completion, serving
from picture_helpers import flat
from specv_helpers import (
    CHECKLIST,
    DIMENSION,
    GOOD,
    PROMPTS,
    REPLIES,
    UPSTREAM,
    queries,
    write,
    write_prompts,
)
from task_rows import read, served_run

from plait.benchmarks.results.judges import BOTH
from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.specv import weights_of
from plait.benchmarks.tasks.task_set import load
from plait.generators.base import Failure
from plait.generators.document import Document, Image, Malformed, Query, Text
from plait.scorers.judging import specifications
from plait.scorers.judging.specifications import DIMENSIONS, specifications_of

pytestmark = pytest.mark.contract


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write(tmp_path / "data")


def shown(segments: Any) -> list[str]:
    return [s.text if isinstance(s, Text) else "<image>" for s in segments]


def test_rows_are_read_with_images_in_their_places_and_specifications(place: Path) -> None:
    task = read("specv", place)
    samples = {q.id: q for q in task.samples}
    assert len(samples) == sum(len(own) for own in queries().values())
    assert all(isinstance(q, Query) for q in samples.values())
    assert task.fields == tuple(DIMENSIONS)
    drawn = samples["t2i-comp_001"]
    assert (drawn.category, drawn.field) == ("composition", "t2i")
    assert shown(drawn.question) == ["Draw comp_001."]
    edit = samples["edit-attr_001"]
    assert shown(edit.question) == ["<image>", "Draw attr_001."]
    assert shown(samples["many2one-cros_001"].question)[:2] == ["<image>"] * 2
    solved = samples["think_with_img-math_001"]
    parts = ["See ", "<image>", " and ", "<image>", ": math_001?"]
    assert shown(solved.question) == parts
    first, second = (s for s in solved.question if isinstance(s, Image))
    assert first.digest == Image.of(flat("blue")).digest, "[IMAGE2] comes first"
    assert second.digest == Image.of(flat("red")).digest
    assert solved.reference == Document((Text("7"),))
    wanted = {q.field for q in samples.values() if q.wants_images}
    assert wanted == {*DIMENSIONS} - {"understanding"}
    listed = specifications_of(drawn)
    assert [one.id for one in listed] == [row["id"] for row in CHECKLIST]
    assert [one.expected for one in listed] == ["Yes", "No", "Yes", "Yes", "No"]


def test_one_track_may_be_named_alone(place: Path) -> None:
    task = load(f"specv:{place / 'eval_data' / 'edit'}", cache=place / "cache")
    assert {q.field for q in task.samples} == {"edit"}
    assert task.fields == ("edit",)
    assert {*task.categories} == {*DIMENSIONS["edit"]}
    assert {*task.answers} == {"rich", "poor"}
    with pytest.raises(TaskError, match="eval_data"):
        load(f"specv:{place / 'model_outputs'}", cache=place / "cache")


def test_tracks_weigh_alike_and_in_each_its_dimensions() -> None:
    weights = weights_of([*DIMENSIONS])
    sums = {sum(weights[name] for name in own) for own in DIMENSIONS.values()}
    assert len(sums) == 1
    for own in DIMENSIONS.values():
        assert len({weights[name] for name in own}) == 1


def test_answers_of_others_are_systems_and_what_is_missing_is_named(place: Path) -> None:
    folder = place / "model_outputs"
    (folder / "t2i" / "rich" / "styl_001.png").write_bytes(b"no picture")
    (folder / "understanding" / "rich" / "char_001.json").write_text("{")
    (folder / "understanding" / "rich" / "char_002.json").write_text(
        json.dumps({"id": "char_002", "response": "", "error": "timeout"})
    )
    empty = folder / "interleave" / "rich" / "stru_001" / "response.json"
    empty.write_text(json.dumps({"content": []}))
    task = read("specv", place)
    rich = task.answers["rich"]
    assert len(rich) == len(task.samples)
    drawn = rich["many2one-cros_001"]
    assert isinstance(drawn, Document)
    assert drawn.images[0].digest == Image.of(flat("green")).digest
    told = rich["interleave-inte_001"]
    assert isinstance(told, Document)
    # Of an unknown type, what has a text is one, as in the released program.
    assert shown(told.segments) == ["First.", "<image>", "Hm.", "Last."]
    answered = rich["understanding-char_003"]
    assert isinstance(answered, Document)
    assert answered.text == "It is char_003."
    reasons = {id: a.reason for id, a in rich.items() if isinstance(a, Failure)}
    assert {id: reason.split(": ")[1] for id, reason in reasons.items()} == {
        "t2i-styl_001": "undecodable picture",
        "understanding-char_001": "wrong type",
        "understanding-char_002": "empty content",
        "interleave-stru_001": "empty content",
    }
    poor = task.answers["poor"]
    assert "t2i-comp_001" not in poor, "no file, no answer"
    lost = poor["think_with_img-math_001"]
    assert isinstance(lost, Failure)
    assert "missing picture: 'math_001/1.png'" in lost.reason


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (None, "missing key"),
        ("{", "wrong type"),
        ("{}", "wrong type"),
        ("[]", "empty content"),
        ([{"id": "1"}], "wrong type"),
        ([{"id": True}], "wrong type"),
        ([{"expected_answer": "Maybe"}], "answer is none of the choices"),
        ([{}, {}], "unusable id"),
        ([{"question": ""}], "empty content"),
    ],
)
def test_a_checklist_that_breaks_a_rule_is_named(
    place: Path, change: Any, rule: str
) -> None:
    file = place / "eval_checklist" / "t2i" / "style" / "styl_001.json"
    if change is None:
        file.unlink()
    elif isinstance(change, str):
        file.write_text(change)
    else:
        file.write_text(json.dumps([{**CHECKLIST[0], **one} for one in change]))
    broken = {q.id: q for q in read("specv", place).samples}["t2i-styl_001"]
    assert isinstance(broken, Malformed)
    assert rule in broken.reason


def reply_about(body: Any, replies: dict[str, str]) -> Answer:
    """The reply to the one query whose id stands in the request."""
    text = json.dumps(body)
    (own,) = {reply for id, reply in replies.items() if id in text}
    return Answer(completion(own))


@pytest.mark.usefixtures("worker_threads")
def test_a_run_in_official_mode_prints_what_the_released_program_printed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through reader, judge, tables: the means of tracks, both models."""
    digests = {t: hashlib.sha256(p.encode()).hexdigest() for t, p in PROMPTS.items()}
    monkeypatch.setattr(specifications, "_DIGESTS", digests)
    write_prompts(place)
    replies: dict[str, str] = {}
    for own in queries().values():
        replies |= dict(own)
    scorer = f"specifications:openai:{MODEL}"
    words = ("--set", f'models."{scorer}".mode="official"')
    words += ("--set", f'models."{scorer}".rubric="official:{place}"')
    systems = ("published:rich", "published:poor")
    _, rows, _ = served_run(
        tmp_path / "run",
        f"specv:{place}",
        systems,
        [scorer],
        lambda body: reply_about(body, replies),
        *words,
    )
    for model in ("rich", "poor"):
        released = rows[f"published:{model}"]["scores"][scorer]["as_released"]
        printed = UPSTREAM["scores"][model]
        overall = {t: printed[t]["overall"] for t in DIMENSION if t in printed}
        assert {t: released[t] for t in overall} == overall
        if model == "poor":
            assert released["understanding"] is None
            assert released["Average"] is None
        else:
            assert released["Average"] == round(sum(overall.values()) / 6, 2)
    page = (tmp_path / "run" / "leaderboard.md").read_text()
    assert "As released" in page
    lost = (tmp_path / "run" / "failures.csv").read_text()
    assert "missing picture" in lost
    assert (tmp_path / "run" / "rubrics" / "specv" / "edit" / "eval_prompt.txt").is_file()


@pytest.mark.usefixtures("worker_threads")
def test_a_run_in_corrected_mode_counts_all_specifications(
    place: Path, tmp_path: Path
) -> None:
    """One call an answer; where all is as expected every mean is 100."""
    scorer = f"specifications:openai:{MODEL}"
    edit = f"specv:{place / 'eval_data' / 'edit'}"
    system = "published:rich"
    done, rows, bodies = served_run(
        tmp_path / "run", edit, [system], [scorer], lambda _: Answer(completion(GOOD))
    )
    assert done.exit_code == 0, done.output
    assert len(bodies) == 18
    scores = rows[system]["scores"][scorer]
    assert scores["avg_fixed"]["mean"] == scores["avg_micro"]["mean"] == 100
    assert "as_released" not in scores


@pytest.mark.usefixtures("worker_threads")
def test_two_judges_of_published_answers_show_what_their_choice_decides(
    place: Path, tmp_path: Path
) -> None:
    """One judge prefers the blue images and the other the green ones."""
    folder = place / "model_outputs" / "edit"
    for file in (folder / "poor").glob("*.png"):
        file.write_bytes(flat("blue"))
    blue = base64_of(flat("blue"))

    def judged(body: Any) -> Answer:
        is_blue = blue in json.dumps(body)
        prefers_blue = body["model"] == "one"
        return Answer(completion(GOOD if is_blue == prefers_blue else REPLIES[1]))

    data = f"specv:{place / 'eval_data' / 'edit'}"
    out = tmp_path / "run"
    words = ["--data", data, "--out", str(out), "--weights", "tiny"]
    words += ["--system", "published:rich", "--system", "published:poor"]
    judges = [f"specifications:openai:{name}" for name in ("one", "two")]
    with serving(judged) as server:
        for name, judge in zip(("one", "two"), judges, strict=True):
            words += ["--scorer", judge]
            words += ["--set", f'models."openai:{name}".base_url="{server.url}"']
        done = invoke("run", *words)
    assert done.exit_code == 0, done.output
    (panel,) = json.loads((out / "judges.json").read_text())
    assert panel["judges"] == judges
    assert panel["n"] == 18
    (pair,) = panel["reversals"]
    assert pair["verdict"] == BOTH
    better = {judge: order["better"] for judge, order in pair["orders"].items()}
    assert better == dict(zip(judges, ("published:poor", "published:rich"), strict=True))
    assert "Pairs that judges order differently" in (out / "leaderboard.md").read_text()
