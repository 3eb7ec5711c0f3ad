"""The page about official evaluators: every row of its tables is what both modes read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from judging_helpers import chat_spec
from opening_helpers import UPSTREAM
from pairwise_helpers import game, judged
from paths import CHECKOUT, DATA

from generators.base import Result
from generators.document import Candidate, Document, Text
from scorers.answers import (
    AnswerReader,
    choice,
    letter,
    official_choice,
    official_letter,
)
from scorers.judging.aspects import (
    ASPECTS,
    OVERALL,
    aspects,
    official_aspects,
    official_summary,
)
from scorers.judging.criteria import official_ruling, ruling
from scorers.judging.isg import (
    FLOORS,
    IsgJudge,
    Level,
    official_mean,
    official_overall,
    official_yes,
)
from scorers.judging.released import Released
from scorers.judging.replies import RubricVerdict, Unreadable, read_reply
from scorers.judging.rubrics import OWN
from scorers.pairwise.opening import Opening, official_rates
from scorers.pairwise.readers import (
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

RUBRIC = OWN["SA"]
Reader = Callable[[str], Any]
MOVES = ["right", "down", "left"]


def of_level(level: Level) -> Reader:
    return IsgJudge(name="isg", stage=chat_spec(), level=level).read_reply


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


READERS: dict[str, tuple[Reader, Reader]] = {
    "MMIE": (lambda r: Released(OWN).read(r, RUBRIC), lambda r: read_reply(r, RUBRIC)),
    "UEval": (official_ruling, ruling),
    "ISG-Bench": (image, of_image),
    "ISG-Bench's blocks": (block, of_level("block")),
    "ISG-Bench's whole answers": (whole, of_whole),
    "RealUnify": (lambda r: official_letter(r) or "wrong", lambda r: letter(r, 4)),
    "Uni-MMMU's jigsaws": (
        lambda r: "wrong" if (n := official_choice(r)) is None else float(n),
        lambda r: n if isinstance(n := choice(r), Unreadable) else float(n),
    ),
    "Uni-MMMU's moves": (lambda r: share(r, official=True), share),
    "OpenING": (official_aspects, aspects),
    "OpenING's arena": (official_lean, lean),
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
        case bool():
            return "met" if reading else "not met"
        case None:
            return "not sure"
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
        text = text.replace(short, SHORT[short])
    readings = tuple(told(read(text)) for read in READERS[benchmark])
    assert readings == (official, corrected)


def test_every_benchmark_has_rows() -> None:
    assert {benchmark for benchmark, *_ in rows()} == set(READERS)


def test_the_figures_of_crafted_texts_are_those_of_the_page() -> None:
    page = " ".join((CHECKOUT / "benchmarks" / "tasks" / "OFFICIAL.md").read_text().split())
    texts = json.loads((DATA / "known_answers_upstream.json").read_text())
    for form, truth, read in (
        ("letter", "B", (official_letter, lambda t: letter(t, 4))),
        ("choice", 1, (official_choice, choice)),
    ):
        official, corrected = ([one(text) for text in texts[form]] for one in read)
        known = [r for r in corrected if not isinstance(r, Unreadable)]
        told = (
            f"{official.count(truth)} of {len(official)} officially; of the {len(known)} "
            f"that corrected mode reads, {known.count(truth)}"
        )
        assert told in page
    values = [share(text, official=True) for text in texts["moves"]]
    known = [v for v in map(share, texts["moves"]) if isinstance(v, float)]
    mean, own = sum(values) / len(values), sum(known) / len(known)
    assert f"the mean is {mean:.2f} officially, and {own:.2f} of the {len(known)}" in page


def overall(replies: list[str], read: Reader) -> str:
    read_replies = [scores for r in replies if isinstance(scores := read(r), dict)]
    summary = official_summary(pair for own in read_replies for pair in own.items())
    return f"{summary[OVERALL]:.2f}"


def win_rate(system: str, mode: Any) -> str:
    games = [
        game(id, judged(Opening(mode=mode), [reply]), first=a, second=b)
        for id, a, b, reply in UPSTREAM["matches"]
        if system in (a, b)
    ]
    own = [g if g.second == system else g.flipped for g in games]
    return f"{official_rates(own)['win_rate'].value:.1f}"


def test_the_made_up_systems_differ_as_the_page_says() -> None:
    page = (CHECKOUT / "benchmarks" / "tasks" / "OFFICIAL.md").read_text()
    found = re.findall(r"^\| ([a-z]\d?) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    (case,) = UPSTREAM["summaries"]
    told = [
        (name, overall(replies, official_aspects), overall(replies, aspects))
        for name, replies in case["replies"].items()
    ]
    told += [(x, win_rate(x, "official"), win_rate(x, "corrected")) for x in "xyz"]
    assert found == told
