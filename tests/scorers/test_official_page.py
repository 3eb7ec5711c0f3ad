"""The page about official evaluators: every row of its tables is what both modes read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from judging_helpers import chat_spec
from paths import CHECKOUT

from plait.generators.base import Kind, Outcome, Result, StageSpec
from plait.generators.document import Candidate, Document, Query, Score, Text
from plait.generators.logprobs import AnswerTokens, Logprobs
from plait.scorers.answers import AnswerReader, choice, official_choice, official_letter
from plait.scorers.judging.aspects import ASPECTS, aspects, official_aspects
from plait.scorers.judging.criteria import official_ruling, ruling
from plait.scorers.judging.gedit import Marks as GeditMarks
from plait.scorers.judging.gedit import marks, official_marks
from plait.scorers.judging.imgedit import ASPECTS as EDIT_MARKS
from plait.scorers.judging.imgedit import marks as imgedit_marks
from plait.scorers.judging.imgedit import official_marks as official_imgedit_marks
from plait.scorers.judging.imug import (
    form_weight,
    letters_in,
    official_letters,
    official_points,
    points_in,
    share_of_letters,
)
from plait.scorers.judging.isg import (
    FLOORS,
    IsgJudge,
    Level,
    official_mean,
    official_overall,
    official_yes,
)
from plait.scorers.judging.mmie import Released
from plait.scorers.judging.replies import RubricVerdict, Unreadable, read_reply
from plait.scorers.judging.rubrics import OWN
from plait.scorers.judging.sources import Mode
from plait.scorers.judging.specifications import answers, official_answers
from plait.scorers.judging.unison import (
    edit_in,
    match_in,
    official_edit,
    official_match,
    official_yes_or_no,
    yes_or_no_in,
)
from plait.scorers.letters import find_letter
from plait.scorers.pairwise.readers import (
    Verdict,
    better,
    lean,
    level,
    official_better,
    official_creation,
    official_lean,
    official_probench,
    official_vote,
    vote,
)
from plait.scorers.vqa.dpg import PROPOSITIONS, DpgScorer
from plait.scorers.vqa.geneval2 import (
    answers_to_read,
    corrected_probability,
    official_probability,
)
from plait.scorers.vqa.questions import YES_NO

RUBRIC = OWN["SA"]
Reader = Callable[[str], Any]
MOVES = ["right", "down", "left"]


def of_level(level: Level) -> Reader:
    return IsgJudge(name=f"isg-{level}:any", stage=chat_spec()).read_reply


def image(reply: str) -> Any:
    yes = official_yes(reply)
    return "ends the item" if yes is None else "yes" if yes else "no"


def of_image(reply: str) -> Any:
    read = of_level("image")(reply)
    return ("no", "yes")[read] if isinstance(read, bool) else read


def block(reply: str) -> Any:
    mean = official_mean([reply])
    return FLOORS["block"] if mean is None else float(mean)


def whole(reply: str) -> Any:
    try:
        score = official_overall(reply)
    except TypeError:
        return "ends"
    return FLOORS["holistic"] if score is None else score


def of_whole(reply: str) -> Any:
    read = of_level("holistic")(reply)
    return read[0] if isinstance(read, tuple) else read


def share(reply: str, official: bool = False) -> Any:
    """The score of moves, by the scorer's own stage."""
    mode = "official" if official else "corrected"
    known = json.dumps({"form": "moves", "truth": MOVES})
    candidate = Candidate(Document((Text(reply),)), criteria=known)
    (outcome,) = AnswerReader(mode=mode)([candidate])
    return outcome.value.value if isinstance(outcome, Result) else outcome


def record_of(replies: dict[str, float], answers: tuple[str, ...]) -> Logprobs:
    """What the stage would record where replies, in tokens, are so likely."""
    tokens = {reply.replace("·", ""): tuple(reply.split("·")) for reply in replies}

    def chance(*ids: str) -> float:
        return sum(p for r, p in replies.items() if tuple(r.split("·"))[: len(ids)] == ids)

    def logprobs(ids: tuple[str, ...]) -> tuple[float, ...]:
        chances = [chance(*ids[:n]) for n in range(1, len(ids) + 1)]
        pairs = zip(chances, [1.0, *chances[:-1]], strict=True)
        return tuple(math.log(now / before) if now else -math.inf for now, before in pairs)

    own = {answer: tokens.get(answer, (answer,)) for answer in answers}
    # Words stand for the tokens' ids, which are only compared.
    return Logprobs({a: AnswerTokens(ids, logprobs(ids)) for a, ids in own.items()})  # type: ignore[arg-type]


def atom(reply: str, read: Callable[[str, str, Logprobs], float]) -> float:
    question, answer, replies = json.loads(reply)
    return read(question, answer, record_of(replies, answers_to_read(question, answer)))


def dpg(reply: str, mode: Mode) -> Outcome[Score]:
    rows = json.loads(reply)
    stage = StageSpec(name="none", kind=Kind.SCORE, target="nothing:Nothing")
    scorer = DpgScorer.asking("dpg:any", stage, {"mode": mode})
    listed = json.dumps([[id, on, about, "?"] for id, on, about, _ in rows])
    query = Query(id="q", category="", field="", turns=(), metadata={PROPOSITIONS: listed})
    said = zip(*(row[3].split() for row in rows), strict=True)
    chances = {"yes": {"Yes": 0.9, "No": 0.1}, "no": {"Yes": 0.1, "No": 0.9}}
    return scorer.score(
        query, [[record_of(chances[a], YES_NO) for a in own] for own in said]
    )


def of_letters(reply: str) -> Any:
    """Of a turn whose right answer is `B`."""
    chosen = letters_in(reply)
    if isinstance(chosen, Unreadable):
        return chosen
    return share_of_letters({"B"}, chosen) * form_weight(reply)


def percent(points: list[float] | Unreadable) -> Any:
    """Of a turn's points."""
    return points if isinstance(points, Unreadable) else 20 * sum(points) / len(points)


def met(reply: str, read: Callable[[str, Sequence[int]], Any]) -> Any:
    """Of two specifications that expect a yes, in percent."""
    said = read(reply, (1, 2))
    return said if isinstance(said, Unreadable) else 50.0 * [*said.values()].count("Yes")


def lowest(reply: str, read: Callable[[str], Any]) -> Any:
    """The lowest score of one part."""
    found = read(reply)
    return float(found.lowest) if isinstance(found, GeditMarks) else found


def capped(reply: str) -> Any:
    """The marks of an addition, none of which counts for more than the first."""
    found = imgedit_marks(reply, tuple(EDIT_MARKS["add"]))
    if isinstance(found, Unreadable):
        return found
    first = next(iter(found.values()))
    return {name: min(mark, first) for name, mark in found.items()}


def met_or_not(reading: Any) -> Any:
    """Of a question that expects a yes."""
    return reading if isinstance(reading, Unreadable) else reading == "yes"


READERS: dict[str, tuple[Reader, Reader]] = {
    "MMIE": (lambda r: Released(OWN).read(r, RUBRIC), lambda r: read_reply(r, RUBRIC)),
    "UEval": (official_ruling, ruling),
    "ISG-Bench": (image, of_image),
    "ISG-Bench's blocks": (block, of_level("block")),
    "ISG-Bench's whole answers": (whole, of_whole),
    "RealUnify": (lambda r: official_letter(r) or "wrong", lambda r: find_letter(r, 4)),
    "Uni-MMMU's jigsaws": (
        lambda r: "wrong" if (n := official_choice(r)) is None else float(n),
        lambda r: n if isinstance(n := choice(r), Unreadable) else float(n),
    ),
    "Uni-MMMU's moves": (lambda r: share(r, official=True), share),
    "SpecV": (lambda r: met(r, official_answers), lambda r: met(r, answers)),
    "GEdit-Bench": (lambda r: lowest(r, official_marks), lambda r: lowest(r, marks)),
    "ImgEdit": (official_imgedit_marks, capped),
    "Unison": (
        lambda r: met_or_not(official_yes_or_no(r)),
        lambda r: met_or_not(yes_or_no_in(r)),
    ),
    "Unison's edits": (official_edit, lambda r: edit_in(r, tuple(EDIT_MARKS["add"]))),
    "Unison's mismatches": (official_match, match_in),
    "IMUG-Bench's letters": (lambda r: official_letters("B", r), of_letters),
    "IMUG-Bench's points": (
        lambda r: percent(official_points(r)),
        lambda r: percent(points_in(r, 2)),
    ),
    "OpenING": (official_aspects, aspects),
    "OpenING's arena": (official_lean, lean),
    "GenEval 2": (
        lambda r: f"{atom(r, official_probability):.2f}",
        lambda r: f"{atom(r, corrected_probability):.2f}",
    ),
    "DPG-Bench": (lambda r: dpg(r, "official"), lambda r: dpg(r, "corrected")),
    "MMRB2": (lambda r: official_better(r, json.loads), better),
    "Creation-MMBench": (official_creation, level),
    "ProBench": (official_probench, level),
    "MLLM-Bench": (official_vote, vote),
}
_ROW = re.compile(r"^\| `(?P<reply>.+)` \| (?P<official>.+) \| (?P<corrected>.+) \|$", re.M)


def rows() -> Iterator[tuple[str, str, str, str]]:
    page = (CHECKOUT / "benchmarks" / "tasks" / "OFFICIAL.md").read_text()
    for section in page.split("\n## ")[1:]:
        for row in _ROW.finditer(section):
            yield section.split(" (")[0], *row.groups()


def told(reading: object) -> str:
    match reading:
        case RubricVerdict():
            return str(reading.raw)
        case Verdict():
            return f"{reading.preference:+d}" if reading.preference else "0"
        case dict():
            return f"{sum(reading.values()) / len(reading):.3g}"
        case Result(value=Score() as score):
            categories = score.parts["criteria"].items()
            each = ", ".join(f"{name} {100 * share:.0f}" for name, share in categories)
            return f"{score.value:.0f} ({each})"
        case bool():
            return "met" if reading else "not met"
        case str():
            return reading
        case float():
            return f"{reading:.2g}" if reading < 1 else f"{reading:g}"
    return "-"


MEMBERS = [f'"{name}": {{"Score": 4}}' for name in ASPECTS]
SHORT = {"seven": ", ".join(MEMBERS), "six": ", ".join(MEMBERS[:-1])}


@pytest.mark.parametrize(("benchmark", "reply", "official", "corrected"), rows())
def test_a_reply_is_read_as_the_page_says(
    benchmark: str, reply: str, official: str, corrected: str
) -> None:
    text = reply.replace("\\n", "\n")
    for short in ("seven", "six"):
        text = text.replace(f"{{{short}", f"{{{SHORT[short]}")
    readings = tuple(told(read(text)) for read in READERS[benchmark])
    assert readings == (official, corrected)


def test_every_benchmark_has_rows() -> None:
    assert {benchmark for benchmark, *_ in rows()} == set(READERS)
