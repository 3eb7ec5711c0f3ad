"""A judge of specifications: what it asks, reads and counts, and SpecV's own program."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from contents import document
from judging_helpers import chat_spec, converse, picture, shown
from picture_helpers import flat
from specv_helpers import (
    CHECKLIST,
    EXPECTED,
    GOOD,
    PROMPTS,
    REPLIES,
    UPSTREAM,
    checklist,
    listed,
    queries,
    write,
    write_prompts,
)

from plait.benchmarks.tasks.task_set import load
from plait.generators.base import NotApplicable, Result, Unread, Unscored
from plait.generators.document import Document, Image, Query, Request, Text, Turn
from plait.generators.errors import MissingInput, UsageError
from plait.scorers.judging import specifications
from plait.scorers.judging.replies import Unreadable
from plait.scorers.judging.resolve import SpecificationsSettings
from plait.scorers.judging.sources import RubricSource, parse_rubric
from plait.scorers.judging.specifications import (
    DIMENSIONS,
    SPECIFICATIONS,
    TRACK,
    WEIGHTINGS,
    SpecificationsJudge,
    answers,
    official_answers,
)

IDS = range(1, 6)


def query(track: str = "t2i", lacking: str = "", *question: str | Image) -> Query:
    parts = [Text(q) if isinstance(q, str) else q for q in question or ("Draw it.",)]
    rows = json.dumps(checklist(track, lacking))
    return Query(
        id=f"{track}-1",
        category=DIMENSIONS[track][0],
        field=track,
        turns=(Turn("user", tuple(parts)),),
        metadata={SPECIFICATIONS: rows, TRACK: track},
    )


def judge_of(**about: Any) -> SpecificationsJudge:
    return SpecificationsJudge(name="specifications:chatty", stage=chat_spec(), **about)


OFFICIAL = {"mode": "official", "retries": 0, "wording": PROMPTS}


def by_formula(track: str, rows: list[dict[str, Any]], said: list[Any]) -> float:
    """The released formulas, written again: all specifications, or weighted groups."""
    right = [str(r["expected_answer"]) == str(s) for r, s in zip(rows, said, strict=True)]
    if track == "understanding":
        final = [
            ok
            for row, ok in zip(rows, right, strict=True)
            if row["category"].startswith("Final Answer Correctness")
        ]
        return round(100 * sum(final) / len(final), 2) if final else 0.0
    if track != "think_with_img":
        return round(100 * sum(right) / len(right), 2)
    total = 0.0
    for prefix, weight in (
        *(("Final Answer", 0.7), ("Reasoning Quality", 0.1)),
        *(("Image Quality", 0.1), ("Image-Text Alignment", 0.1)),
    ):
        own = [
            ok
            for row, ok in zip(rows, right, strict=True)
            if row["subcategory"].startswith(prefix)
        ]
        total += weight * sum(own) / len(own) if own else 0.0
    return round(100 * total, 2)


# ------------------------------------------------------------- the program's own figures


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("specv"))


@pytest.fixture(scope="module")
def task(checkout: Path) -> Any:
    return load(f"specv:{checkout}", cache=checkout / "cache")


COLOURS = {Image.of(flat(name)).digest: name for name in ("red", "blue", "green")}


def told(request: Request) -> str:
    """As the recording writes what a call was given."""
    parts = []
    for segment in (s for turn in request.turns for s in turn.content):
        is_text = isinstance(segment, Text)
        parts.append(segment.text if is_text else f"[{COLOURS[segment.digest]}]")
    return "".join(parts)


@pytest.mark.contract
@pytest.mark.parametrize("model", ["rich", "poor"])
def test_official_mode_asks_and_counts_as_the_released_program(
    task: Any, model: str
) -> None:
    """Every reply about every answer of a model: the largest difference is 0."""
    samples = {q.id: q for q in task.samples}
    replies = {}
    for (track, _), own in queries().items():
        replies |= {f"{track}-{id}": reply for id, reply in own}
    counted: dict[str, float] = {}
    for id, reply in replies.items():
        answer = task.answers[model].get(id)
        if not isinstance(answer, Document):
            continue
        jobs, outcome = converse(judge_of(**OFFICIAL), samples[id], answer, [reply])
        asked = UPSTREAM["requests"].get(id)
        assert asked is None or told(jobs[0].input) == asked
        if isinstance(outcome, Result):
            counted[id] = outcome.value.value
        else:
            assert isinstance(outcome, Unread)
    expected: dict[str, float] = {}
    for track in UPSTREAM["scores"][model].values():
        expected |= track["questions"]
    assert counted.keys() == expected.keys()
    assert max(abs(counted[id] - expected[id]) for id in expected) == 0


@pytest.mark.parametrize("track", DIMENSIONS)
@pytest.mark.parametrize("lacking", ["", "Image Quality", "Final Answer", "Process"])
def test_official_values_are_those_of_the_formulas(track: str, lacking: str) -> None:
    answer = document("Text.", picture("a"))
    rows = checklist(track, lacking)
    for said in (["Yes"] * 5, ["No"] * 5, [*EXPECTED], ["yes", "No", "No", True, "No"]):
        reply = listed(*said)
        _, outcome = converse(judge_of(**OFFICIAL), query(track, lacking), answer, [reply])
        assert isinstance(outcome, Result)
        assert outcome.value.value == by_formula(track, rows, said)
        # Corrected, all specifications of every track count alike.
        parts = outcome.value.parts
        right = [str(s) == e for s, e in zip(said, EXPECTED, strict=True)]
        assert parts["share"] == 100 * sum(right) / 5
        assert (parts["met"], parts["not_met"]) == (sum(right), 5 - sum(right))


def test_the_recording_has_what_goes_wrong_there() -> None:
    poor = UPSTREAM["scores"]["poor"]
    assert "understanding" not in poor
    assert poor["t2i"]["dimensions"]["composition"] == 0
    assert len(UPSTREAM["scores"]["rich"]["think_with_img"]["questions"]) < len(REPLIES) + 3
    assert sum(WEIGHTINGS["think_with_img"].weights.values()) == pytest.approx(1)


# ---------------------------------------------------------------------------- replies


ALL = dict(zip(IDS, EXPECTED, strict=True))


def test_officially_a_fence_in_small_letters_comes_before_one_in_capitals() -> None:
    """As its parse_json_response, which looks for the second where there is no first."""
    reply = f"```JSON\n[{{\n```json\n{GOOD}"
    assert official_answers(reply, [*IDS]) == ALL


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        (GOOD, ALL),
        (f"```json\n{GOOD}\n```", ALL),
        (f"Here: {GOOD}", ALL),
        (json.dumps({"answers": json.loads(GOOD)}), ALL),
        (json.dumps(dict(enumerate(EXPECTED, start=1))), ALL),
        (listed("yes.", "NO", True, 1, False), ALL),
        (GOOD.replace('"id": 1,', '"id": "1",'), ALL),
        (GOOD[:-1] + ', {"id": 9, "answer": "Yes"}]', ALL),
        (GOOD[:-1] + ', {"id": 1, "answer": "No"}]', "several ways: 1"),
        (listed("Yes", "No"), "3, 4, 5"),
        (listed("Yes", "No", "perhaps", "Yes", None), "3, 5"),
        ("[]", "JSON"),
        ("I cannot judge this.", "JSON"),
        (GOOD[:-4], "JSON"),
    ],
)
def test_a_reply_is_read_or_says_what_it_lacks(reply: str, read: Any) -> None:
    found = answers(reply, IDS)
    if isinstance(read, dict):
        assert found == read
    else:
        assert isinstance(found, Unreadable)
        assert read in found.reason


def test_a_reply_that_lacks_answers_is_asked_for_again_and_never_a_number() -> None:
    short = listed("Yes", "No")
    answer = document("It is.", picture("a"))
    jobs, outcome = converse(judge_of(), query(), answer, [short, GOOD])
    assert isinstance(outcome, Result)
    assert outcome.value.value == 100
    assert "3, 4, 5" in shown(jobs[1].input)
    _, outcome = converse(judge_of(), query(), answer, [short, short])
    assert isinstance(outcome, Unread)
    assert "3, 4, 5" in outcome.reason


# ---------------------------------------------------------------------------- requests


def test_all_is_shown_but_what_is_expected() -> None:
    asked = query("edit", "", picture("before"), "Make it blue.")
    answer = document("Done.", picture("after"))
    (job,), outcome = converse(judge_of(), asked, answer, [GOOD])
    text = shown(job.input)
    assert [i.read() for i in job.input.images] == [b"before", b"after"]
    assert all(f"{row['id']}. {row['question']}" in text for row in CHECKLIST)
    assert "expected" not in text
    assert "9.5" not in text
    assert isinstance(outcome, Result)
    assert outcome.value.parts["criteria"] == {"Style": 1.0}
    assert [r["met"] for r in outcome.value.parts["rulings"]] == [True] * 5


def test_released_texts_may_be_asked_without_what_is_expected() -> None:
    judge = judge_of(wording=PROMPTS)
    (job,), _ = converse(judge, query(), document(picture("a")), [GOOD])
    assert "Is 1 there?" in shown(job.input)
    assert "expected_answer" not in shown(job.input)


@pytest.mark.parametrize(
    ("track", "answer"),
    [
        ("t2i", document("No image.")),
        ("edit", document(picture("a"), picture("b"))),
        ("interleave", document("")),
        ("understanding", document(picture("a"))),
    ],
)
def test_what_the_released_program_cannot_be_given_is_unscored(
    track: str, answer: Document
) -> None:
    _, outcome = converse(judge_of(**OFFICIAL), query(track), answer, [])
    assert isinstance(outcome, Unscored)


def test_a_query_without_specifications_is_not_judged() -> None:
    plain = Query(id="q", category="", field="", turns=())
    _, outcome = converse(judge_of(), plain, document("x"), [])
    assert isinstance(outcome, NotApplicable)


# ----------------------------------------------------------------------- the user's copy


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins, taken for the released files."""
    digests = {t: hashlib.sha256(p.encode()).hexdigest() for t, p in PROMPTS.items()}
    monkeypatch.setattr(specifications, "_DIGESTS", digests)
    return write_prompts(tmp_path / "SpecV")


def test_the_prompts_of_all_tracks_are_read_and_kept(prompts: Path, tmp_path: Path) -> None:
    rubric = f"official:{prompts}"
    judge = SpecificationsSettings(rubric=rubric, mode="official").judge("s", chat_spec())
    assert judge.wording == PROMPTS
    source = parse_rubric(rubric)
    source.keep(tmp_path / "run")
    source.keep(tmp_path / "run")
    file = source.absolute.file
    assert file is not None
    for track in PROMPTS:
        (prompts / "eval" / track / "eval_prompt.txt").unlink()
    copy = RubricSource(file).or_copy_in(tmp_path / "run")
    assert copy.file is not None
    assert SpecificationsJudge.wording_in(copy.file) == PROMPTS


def test_another_text_is_refused(prompts: Path) -> None:
    rubric = f"official:{prompts}"
    (prompts / "eval" / "edit" / "eval_prompt.txt").write_text("Mine.")
    with pytest.raises(UsageError, match=r"eval/edit/eval_prompt\.txt"):
        SpecificationsSettings(rubric=rubric).judge("s", chat_spec())
    (prompts / "eval" / "edit" / "eval_prompt.txt").unlink()
    with pytest.raises(MissingInput, match="checkout of SpecV"):
        SpecificationsSettings(rubric=rubric).judge("s", chat_spec())
    with pytest.raises(ValueError, match="official:PATH"):
        SpecificationsSettings(mode="official")
