"""Judges of edited images: what they ask, read and count, and the released programs."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from contents import document
from editing_helpers import (
    BOTH,
    GEDIT_PROMPTS,
    GEDIT_REPLIES,
    IMGEDIT_PROMPTS,
    QUALITY,
    UPSTREAM,
    imgedit_rows,
)
from judging_helpers import chat_spec, converse, picture, shown
from picture_helpers import saved
from PIL import Image as Pillow
from PIL import ImageOps

from plait.cluster.walks import drive
from plait.generators.base import (
    Failure,
    Job,
    NotApplicable,
    Outcome,
    Result,
    Unread,
    Unscored,
)
from plait.generators.document import (
    Document,
    Draft,
    Image,
    Query,
    Request,
    Score,
    Text,
    TransformRequest,
    Turn,
)
from plait.generators.errors import MissingInput, UsageError
from plait.scorers import resolve_scorer
from plait.scorers.judging import gedit, imgedit
from plait.scorers.judging.gedit import CONSISTENCY, GeditJudge, Shown
from plait.scorers.judging.gedit import QUALITY as QUALITY_NAME
from plait.scorers.judging.imgedit import ASPECTS, EDIT_TYPE, ImgEditJudge
from plait.scorers.judging.replies import Unreadable
from plait.scorers.judging.resolve import GeditSettings, ImgEditSettings
from plait.scorers.judging.sources import parse_rubric
from plait.scorers.judging.summaries import (
    GEDIT_GROUPS,
    GeditValue,
    gedit_summary,
    imgedit_summary,
)

BEFORE = picture("before")
AFTER = picture("after")
OFFICIAL = {"mode": "official", "retries": 0}


def query(kind: str = "add", *question: str | Image) -> Query:
    shown_parts = question or (BEFORE, "Make it blue.")
    parts = [Text(q) if isinstance(q, str) else q for q in shown_parts]
    turns = (Turn("user", tuple(parts)),)
    return Query(id="e", category=kind, field="", turns=turns, metadata={EDIT_TYPE: kind})


def of_gedit(**about: Any) -> GeditJudge:
    return GeditJudge(name="gedit:chatty", stage=chat_spec(), **about)


def of_imgedit(**about: Any) -> ImgEditJudge:
    return ImgEditJudge(name="imgedit:chatty", stage=chat_spec(), **about)


def told(
    judge: GeditJudge, replies: Sequence[str], answer: Document | None = None
) -> tuple[list[Job], Outcome[Score]]:
    """The jobs and the outcome, where images are shown as they are."""
    given = iter(replies)
    jobs: list[Job] = []

    def answered(pending: Sequence[Job]) -> list[Outcome[Any]]:
        jobs.extend(pending)
        outcomes: list[Outcome[Any]] = []
        for job in pending:
            if isinstance(job.input, TransformRequest):
                outcomes.append(Result(job.input.image))
            else:
                outcomes.append(Result(Draft((Text(next(given)),))))
        return outcomes

    walk = judge.judge(query(), answer or document(AFTER))
    return jobs, drive(walk, answered)


# --------------------------------------------------------- the released programs' figures


@pytest.mark.parametrize("part", ["consistency", "quality"])
def test_gedit_officially_counts_as_the_released_program(part: str) -> None:
    """Every reply about either part: the largest difference is 0."""
    expected = UPSTREAM["gedit"][part]
    assert {*expected} == {*GEDIT_REPLIES}
    for reply, counted in expected.items():
        replies = [reply, QUALITY] if part == "consistency" else [BOTH, reply]
        judge = of_gedit(**OFFICIAL, wording=GEDIT_PROMPTS)
        _, outcome = told(judge, replies)
        if counted is None:
            assert isinstance(outcome, Unread), reply
            continue
        assert isinstance(outcome, Result), reply
        criteria = outcome.value.parts["criteria"]
        own = [criteria[CONSISTENCY], criteria[QUALITY_NAME], outcome.value.value]
        assert own == counted, reply


def test_imgedit_officially_counts_as_the_released_program() -> None:
    """Every reply of two types, and the means: the largest difference is 0."""
    scores = []
    for row in imgedit_rows():
        expected = UPSTREAM["imgedit"]["replies"][row.key]
        judge = of_imgedit(**OFFICIAL, wording=IMGEDIT_PROMPTS)
        _, outcome = converse(judge, query(row.kind), document(AFTER), [row.reply])
        if expected is None:
            assert isinstance(outcome, Unread), row.reply
            continue
        assert isinstance(outcome, Result), row.reply
        assert outcome.value.value == expected
        scores.append((row.kind, outcome.value.value))
    summary = imgedit_summary([*ASPECTS, "other"], scores)
    assert summary == {**UPSTREAM["imgedit"]["types"], "other": None}


def test_gedit_averages_types_and_has_none_while_one_is_empty() -> None:
    def values(groups: Sequence[str], field: str) -> list[GeditValue]:
        return [GeditValue(field, g, "overall", float(i)) for i, g in enumerate(groups)]

    whole = values(GEDIT_GROUPS, "en, intersection")
    more = [GeditValue("en", GEDIT_GROUPS[0], "overall", 10.0)]
    summary = gedit_summary([*whole, *more])
    # Of the first type there are two, 0 and 10; the second is not in the intersection.
    assert summary == {
        "en: overall": round((5 + sum(range(1, 11))) / 11, 3),
        "en, intersection: overall": 5.0,
    }
    partial = gedit_summary(values(GEDIT_GROUPS[1:], "cn"))
    assert partial == {"cn: overall": None, "cn, intersection: overall": None}


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L"])
def test_gedit_officially_shows_jpeg_and_the_edit_in_the_size_of_the_original(
    mode: str,
) -> None:
    colours = Pillow.linear_gradient("L").resize((30, 20)).convert(mode)
    original = Pillow.linear_gradient("L").rotate(90).resize((24, 40)).convert(mode)
    exif = Pillow.Exif()
    # To be turned by a quarter, as `datasets` does before the program has its size.
    exif[0x0112] = 6
    before = Image.of(saved(original, "PNG", exif=exif))
    after = Image.of(saved(colours, "PNG"))
    made = Shown()([TransformRequest(before), TransformRequest(after, (before,))])
    opened = Pillow.open(io.BytesIO(before.read()))
    resized = Pillow.open(io.BytesIO(after.read())).convert("RGB").resize((40, 24))
    expected = [ImageOps.exif_transpose(opened).convert("RGB"), resized]
    for outcome, image in zip(made, expected, strict=True):
        assert isinstance(outcome, Result)
        assert outcome.value.read() == saved(image, "JPEG")
    (broken,) = Shown()([TransformRequest(picture("none"))])
    assert isinstance(broken, Failure)


# ---------------------------------------------------------------------- corrected replies


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        (BOTH, (8, 9)),
        (f"||V^=^V||\n{BOTH}\n||V^=^V||", (8, 9)),
        (f"```json\n{BOTH}\n```", (8, 9)),
        (f"{BOTH}\n{BOTH}", (8, 9)),
        ("[8, 9]", (8, 9)),
        ("{'score': [8, 9], 'reasoning': 'Python.'}", (8, 9)),
        ('{"score": ["8", "9/10"]}', (8, 9)),
        ('{"scores": [8, 9]}', (8, 9)),
        ('{"score": 8}', "two numbers"),
        ('{"score": [8, 9, 2]}', "two numbers"),
        ('{"score": [12, 9]}', "two numbers"),
        ('{"score": [true, 9]}', "two numbers"),
        ('{"score": [8, 9]} {"score": [2, 2]}', "and as"),
        ("8", "JSON"),
        ("I cannot judge this image.", "JSON"),
    ],
)
def test_a_reply_of_gedit_holds_two_scores_or_is_unread(reply: str, read: Any) -> None:
    found = gedit.marks(reply)
    if isinstance(read, tuple):
        assert found == gedit.Marks(read, min(read))
    else:
        assert isinstance(found, Unreadable)
        assert read in found.reason


NAMES = tuple(ASPECTS["add"])
MARKS = dict(zip(NAMES, (4, 3, 2), strict=True))
LINES = "\n".join(f"{name}: {mark}" for name, mark in MARKS.items())
BOLD = "\n".join(f"1. **{name}:** {mark}" for name, mark in MARKS.items())


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        (json.dumps(MARKS), MARKS),
        (f"```json\n{json.dumps(MARKS, indent=1)}\n```", MARKS),
        (LINES, MARKS),
        (f"Brief reasoning: It fits.\n{LINES}\nTotal: 12", MARKS),
        (LINES.replace(": ", ":"), MARKS),
        (LINES.replace("4", "4."), MARKS),
        (LINES.replace("4", "4/5"), MARKS),
        (
            "\n".join(f"{i}. **{n}:** {m}" for i, (n, m) in enumerate(MARKS.items(), 1)),
            MARKS,
        ),
        (LINES.replace("4", "45"), NAMES[0]),
        (LINES.replace("2", "0"), NAMES[2]),
        (LINES.replace("4", "four"), NAMES[0]),
        (f"{LINES}\n{NAMES[0]}: 1", f"several marks of {NAMES[0]}"),
        ("I'm sorry.", NAMES[0]),
    ],
)
def test_a_reply_of_imgedit_holds_all_marks_or_is_unread(reply: str, read: Any) -> None:
    found = imgedit.marks(reply, NAMES)
    if isinstance(read, dict):
        assert found == read
    else:
        assert isinstance(found, Unreadable)
        assert read in found.reason


def test_gedit_counts_the_root_of_the_lowest_scores() -> None:
    jobs, outcome = told(of_gedit(), [BOTH, QUALITY])
    assert isinstance(outcome, Result)
    assert outcome.value.value == math.sqrt(8 * 6)
    parts = outcome.value.parts
    assert parts["criteria"] == {CONSISTENCY: 8, QUALITY_NAME: 6}
    assert parts["scores"] == {CONSISTENCY: [8, 9], QUALITY_NAME: [6, 7]}
    asked, quality = (job.input for job in jobs)
    assert isinstance(asked, Request)
    assert [i.read() for i in asked.images] == [b"before", b"after"]
    assert "Make it blue." in shown(asked)
    assert [i.read() for i in quality.images] == [b"after"]
    assert "Make it blue." not in shown(quality)


def test_gedit_asks_again_for_what_it_cannot_read_and_makes_no_score_up() -> None:
    jobs, outcome = told(of_gedit(), ["Fine.", QUALITY, BOTH])
    assert isinstance(outcome, Result)
    assert len(jobs) == 3
    _, outcome = told(of_gedit(), ["Fine.", QUALITY, "Fine."])
    assert isinstance(outcome, Unread)
    assert CONSISTENCY in outcome.reason


@pytest.mark.parametrize("mode", ["corrected", "official"])
def test_gedits_released_texts_stand_before_the_images(mode: str) -> None:
    retries = 0 if mode == "official" else 1
    judge = of_gedit(mode=mode, retries=retries, wording=GEDIT_PROMPTS)
    jobs, _ = told(judge, [BOTH, QUALITY])
    asked = [job.input for job in jobs if isinstance(job.input, Request)]
    texts = ["Edit? Make it blue.[before][after]", "Natural?[after]"]
    assert [shown(request) for request in asked] == texts


def test_no_mark_of_imgedit_counts_for_more_than_the_first() -> None:
    reply = LINES.replace("4", "2").replace("3", "5")
    (job,), outcome = converse(of_imgedit(), query(), document(AFTER), [reply])
    assert isinstance(outcome, Result)
    assert outcome.value.value == 2
    assert [*outcome.value.parts["stated"].values()] == [2, 5, 2]
    assert [*outcome.value.parts["criteria"].values()] == [2, 2, 2]
    assert "Make it blue." in shown(job.input)
    assert all(name in shown(job.input) for name in NAMES)
    assert [i.read() for i in job.input.images] == [b"before", b"after"]


def test_imgedits_released_texts_are_those_of_the_type() -> None:
    for kind in ASPECTS:
        judge = of_imgedit(**OFFICIAL, wording=IMGEDIT_PROMPTS)
        jobs, _ = converse(judge, query(kind), document(AFTER), ["A: 4"])
        assert shown(jobs[0].input) == f"Grade {kind}: Make it blue..[before][after]"


@pytest.mark.parametrize("judge", [of_gedit, of_imgedit])
@pytest.mark.parametrize(
    ("asked", "answer", "kind"),
    [
        (query("add", "Draw."), document(AFTER), NotApplicable),
        (query("add", BEFORE, AFTER, "Join."), document(AFTER), NotApplicable),
        (query(), document("No image."), Unscored),
        (query(), document(AFTER, BEFORE), Unscored),
    ],
)
def test_an_edit_is_one_image_of_one_image(
    judge: Any, asked: Query, answer: Document, kind: type
) -> None:
    _, outcome = converse(judge(), asked, answer, [])
    assert isinstance(outcome, kind)


def test_a_setting_of_the_model_is_refused_with_the_place_where_it_belongs() -> None:
    with pytest.raises(UsageError, match=r'batch_api.*models\."openai:m"'):
        resolve_scorer("gedit:openai:m", "pretrained", {"batch_api": True})


def test_imgedit_judges_its_own_types_alone() -> None:
    _, outcome = converse(of_imgedit(), query("poem"), document(AFTER), [])
    assert isinstance(outcome, NotApplicable)


# ------------------------------------------------------------------------- the user's copy


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_gedits_texts_are_read_from_the_users_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"context": "C", "edit": "E", "consistency": "S <instruction>", "quality": "Q"}
    monkeypatch.setattr(gedit, "_DIGESTS", {n: digest(t) for n, t in texts.items()})
    file = tmp_path / "GEdit-Bench" / "viescore" / "vie_prompts.py"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"_{n} = {t!r}\n" for n, t in texts.items()))
    rubric = f"official:{tmp_path}"
    judge = GeditSettings(rubric=rubric, mode="official").judge("gedit:x", chat_spec())
    assert judge.wording == ("C\nE\nS <instruction>", "C\nQ")
    assert judge.scale == "unbounded"
    parse_rubric(rubric).keep(tmp_path / "run")
    assert (tmp_path / "run" / "vie_prompts.py").is_file()
    file.write_text("_context = 'mine'")
    with pytest.raises(UsageError, match="published prompts"):
        GeditSettings(rubric=rubric).judge("gedit:x", chat_spec())


def test_imgedits_texts_are_read_from_the_users_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = {kind: digest(text) for kind, text in IMGEDIT_PROMPTS.items()}
    monkeypatch.setattr(imgedit, "_DIGESTS", digests)
    file = tmp_path / "Benchmark" / "Basic" / "prompts.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(IMGEDIT_PROMPTS))
    rubric = f"official:{tmp_path}"
    judge = ImgEditSettings(rubric=rubric, mode="official").judge("i", chat_spec())
    assert judge.wording == IMGEDIT_PROMPTS
    file.write_text(json.dumps(IMGEDIT_PROMPTS | {"style": "Mine."}))
    with pytest.raises(UsageError, match="'style'"):
        ImgEditSettings(rubric=rubric).judge("i", chat_spec())
    file.write_text("{")
    with pytest.raises(UsageError, match="not JSON"):
        ImgEditSettings(rubric=rubric).judge("i", chat_spec())
    file.unlink()
    with pytest.raises(MissingInput):
        ImgEditSettings(rubric=f"official:{file}").judge("i", chat_spec())
    with pytest.raises(ValueError, match="structured"):
        ImgEditSettings(structured=True)
