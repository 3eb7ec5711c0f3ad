"""ISG-Bench's levels: what is asked, read and counted, in both modes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from judging_helpers import chat_spec, converse
from paths import DATA
from picture_helpers import flat

from plait.benchmarks.tasks.task_set import load
from plait.cluster.local import LocalStages
from plait.cluster.walks import drive
from plait.generators.base import NotApplicable, Outcome, Result, Unread, Unscored
from plait.generators.document import Document, Image, Query, Request, Score
from plait.scorers import resolve_scorer
from plait.scorers.judging import isg
from plait.scorers.judging.isg import IsgJudge, IsgWording, Level

UPSTREAM = json.loads((DATA / "isg_upstream.json").read_text())
"""What the released program asked and made of the replies, with `RELEASED` as its texts."""
RELEASED = IsgWording(
    text_text="TT {requirement} {text1} {text2} {question}",
    text_image="TI {requirement} {text} {question}",
    image_image="II {requirement} {question}",
    image="Q {question}",
    requirement="SC",
    whole=("W0 {{x}}\n", "\nW1\n", "\nW2\n", "\nW3\n"),
)
IMAGES = {"q1": "red", "g1": "green", "g2": "blue", "a1": "black", "a2": "white"}
ROWS = UPSTREAM["rows"]
LAST = {"id": "last", "Category": "HowTo", "Query": ROWS["vqa"]["Query"], "Golden": []}


class Answered(NamedTuple):
    query: Query
    answer: Document


def read(folder: Path, row: str, output: list[Any]) -> Answered:
    """A recorded row and answer as the reader gives them; the row is not the last."""
    for place in (folder / "images", folder / "answers" / "images"):
        place.mkdir(parents=True)
        for name, colour in IMAGES.items():
            (place / f"{name}.png").write_bytes(flat(colour))
    lines = "\n".join(map(json.dumps, (ROWS[row], LAST)))
    (folder / "ISG-Bench.jsonl").write_text(lines)
    answer = json.dumps({"id": row, "output": output})
    (folder / "answers" / "up.jsonl").write_text(answer)
    task = load(f"isg:{folder}", cache=folder / "cache")
    query, given = task.samples[0], task.answers["up"][row]
    assert isinstance(query, Query)
    assert isinstance(given, Document)
    return Answered(query, given)


def judge_of(level: Level, mode: Any = "official", **about: Any) -> IsgJudge:
    retries = 0 if mode == "official" else 1
    fields = {"wording": RELEASED, "retries": retries} | about
    return IsgJudge(name=f"isg-{level}:chatty", stage=chat_spec(), mode=mode, **fields)


def told_in(request: Request) -> str:
    """As the recording writes what a call was given."""
    (turn,) = request.turns
    return "".join(
        f"[{Path(s.place or '').stem}]" if isinstance(s, Image) else f"<text>{s.text}"
        for s in turn.content
    )


def replies_to(case: dict[str, Any], kind: str, number: int) -> list[str]:
    own = case["replies"].get(kind) or UPSTREAM["base"][kind]
    return [own[min(i, len(own) - 1)] for i in range(number)]


def values(outcome: Outcome[Score]) -> Any:
    if isinstance(outcome, Result):
        value = float(outcome.value.value)
        return ["nan" if math.isnan(value) else value]
    return "ends" if isinstance(outcome, Unread) else []


KINDS: dict[Level, str] = {"block": "block", "image": "image", "holistic": "whole"}


@pytest.mark.parametrize("case", UPSTREAM["cases"])
def test_official_mode_asks_and_counts_as_the_released_program(
    case: dict[str, Any], tmp_path: Path
) -> None:
    query, answer = read(tmp_path, case["row"], UPSTREAM["outputs"][case["output"]])
    (asked,) = (
        a
        for a in UPSTREAM["asked"]
        if (a["row"], a["output"]) == (case["row"], case["output"])
    )
    for level, kind in KINDS.items():
        # An answer that stops the program stops all levels, so all ask about images.
        kinds = dict.fromkeys(("image", kind))
        empty = not answer.segments or not getattr(answer.segments[0], "text", "x")
        if level == "holistic" and empty:
            kinds = {}  # the released program asks, and counts 1 whatever the reply
        questions = [q for k in kinds for q in asked[k]]
        replies = [r for k in kinds for r in replies_to(case, k, len(asked[k]))]
        jobs, outcome = converse(judge_of(level), query, answer, replies)
        assert [told_in(job.input) for job in jobs] == questions
        assert values(outcome) == case[level], level
    structure = resolve_scorer("isg-structure", "tiny", {"mode": "official"})
    outcome = drive(structure.judge(query, answer), LocalStages().outcomes)
    if not case["ended"]:
        assert values(outcome) == [case["structure"]]


YES, NO = '{"Judge": "Yes"}', '```json\n{"Judge": "no."}\n```'


@pytest.mark.parametrize(
    ("level", "replies", "value"),
    [
        ("image", [YES, YES, YES], 1),
        ("image", [NO, YES, YES], 0),
        ("image", [YES, NO, YES], 1 / 3),
        ("image", [YES, YES, '{"Judge": true}'], 1),
        # Without the first of them, nothing is known of the others.
        ("image", ["hm", YES, YES, "hm"], "unread"),
        ("image", [YES, YES, "hm", "hm"], "unread"),
        ("image", [NO, "hm", YES, "hm"], 0),
        ("block", ['{"Judge": "8"}'], 8),
        ("block", ['{"Judge": 0}', '{"Judge": 1.5}'], 1.5),
        ("block", ['{"Judge": true}', "8"], 8),
        ("block", ['{"Judge": true}', "8 or 9"], "unread"),
        ("holistic", ['{"overall_score": 6, "coherence": 3}'], 6),
        ("holistic", ['{"overall_score": 12}', '{"overall": 6}'], "unread"),
    ],
)
def test_corrected_mode_guesses_nothing(
    level: Level, replies: list[str], value: object, tmp_path: Path
) -> None:
    query, answer = read(tmp_path, "chain", UPSTREAM["outputs"][1])
    judge = judge_of(level, "corrected")
    jobs, outcome = converse(judge, query, answer, replies)
    if value == "unread":
        assert isinstance(outcome, Unread)
        assert outcome.parts or level == "holistic"
    else:
        assert isinstance(outcome, Result)
        assert outcome.value.value == pytest.approx(value)
    assert judge.jobs(query) == (3 if level == "image" else 1)
    assert len({job.key for job in jobs}) == len(replies)


def test_placeholders_are_named_and_blank_texts_are_none_in_corrected_mode(
    tmp_path: Path,
) -> None:
    blank = [{"type": "text", "content": "\n"}]
    query, answer = read(tmp_path, "full", [*UPSTREAM["outputs"][0], *blank])
    scores = ['{"Judge": 7}'] * 4
    jobs, outcome = converse(judge_of("block", "corrected"), query, answer, scores)
    assert isinstance(outcome, Result)
    assert "gen_" not in "".join(told_in(job.input) for job in jobs)
    assert told_in(jobs[1].input) == "[a2][q1]<text>II SC Is  `Image 1`  like it?"
    # In official mode it is a text too many: the floors, and nothing is asked.
    assert values(converse(judge_of("block"), query, answer, [])[1]) == [1]
    for mode, value in (("official", 0), ("corrected", 1)):
        scorer = resolve_scorer("isg-structure", "tiny", {"mode": mode})
        outcome = drive(scorer.judge(query, answer), LocalStages().outcomes)
        assert values(outcome) == [value]


def test_what_the_levels_do_not_apply_to(tmp_path: Path) -> None:
    query, answer = read(tmp_path, "vqa", UPSTREAM["outputs"][2])
    for level in ("block", "image"):
        _, outcome = converse(judge_of(level, "corrected"), query, answer, [])
        assert isinstance(outcome, NotApplicable)
    for level in KINDS:
        empty = converse(judge_of(level, "corrected"), query, Document(), [])[1]
        # Without questions of its level, no answer is judged, whatever it holds.
        none = Unscored if level == "holistic" else NotApplicable
        assert isinstance(empty, none)
    other = replace(query, metadata={})
    outcome = converse(judge_of("holistic", "corrected"), other, answer, [])[1]
    assert isinstance(outcome, NotApplicable)


def test_the_last_query_of_a_file_is_judged_in_corrected_mode_alone(tmp_path: Path) -> None:
    query, answer = read(tmp_path, "chain", UPSTREAM["outputs"][1])
    last = replace(query, metadata=query.metadata | {isg.LAST: "true"})
    for level in KINDS:
        assert isinstance(converse(judge_of(level), last, answer, [])[1], Unscored)
    outcome = converse(judge_of("image", "corrected"), last, answer, [YES] * 3)[1]
    assert isinstance(outcome, Result)
    scorer = resolve_scorer("isg-structure", "tiny", {"mode": "official"})
    assert isinstance(drive(scorer.judge(last, answer), LocalStages().outcomes), Unscored)


def test_our_own_wording_has_every_field(tmp_path: Path) -> None:
    query, answer = read(tmp_path, "full", UPSTREAM["outputs"][0])
    for level, number in (("block", 4), ("image", 4), ("holistic", 1)):
        judge = judge_of(level, "corrected", wording=isg.OWN, retries=0)
        jobs, _ = converse(judge, query, answer, ["hm"] * number)
        for job in jobs:
            assert "{" not in told_in(job.input).replace("{B}", "").replace(
                '{"', ""
            ).replace("{how}", "")
    shown = told_in(jobs[0].input)
    assert [shown.count(f"[{name}]") for name in IMAGES] == [1] * 5


def test_max_images_bounds_those_of_the_whole(tmp_path: Path) -> None:
    query, answer = read(tmp_path, "full", UPSTREAM["outputs"][0])
    judge = judge_of("holistic", "corrected", max_images=2)
    (job,), _ = converse(judge, query, answer, ['{"overall_score": 5}'])
    assert len(job.input.images) == 2
