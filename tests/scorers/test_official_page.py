"""The page about official evaluators: every row of its tables is what both modes read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paths import CHECKOUT

from scorers.judging.criteria import official_ruling, ruling
from scorers.judging.released import Released
from scorers.judging.replies import RubricVerdict, read_reply
from scorers.judging.rubrics import OWN
from scorers.pairwise.readers import (
    Verdict,
    better,
    level,
    official_better,
    official_creation,
    official_probench,
    official_vote,
    vote,
)

RUBRIC = OWN["SA"]
Reader = Callable[[str], Any]
READERS: dict[str, tuple[Reader, Reader]] = {
    "MMIE": (lambda r: Released(OWN).read(r, RUBRIC), lambda r: read_reply(r, RUBRIC)),
    "UEval": (official_ruling, ruling),
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
        case bool():
            return "met" if reading else "not met"
        case None:
            return "not sure"
    return "-"


@pytest.mark.parametrize(("benchmark", "reply", "official", "corrected"), rows())
def test_a_reply_is_read_as_the_page_says(
    benchmark: str, reply: str, official: str, corrected: str
) -> None:
    text = reply.replace("\\n", "\n")
    readings = tuple(told(read(text)) for read in READERS[benchmark])
    assert readings == (official, corrected)


def test_every_benchmark_has_rows() -> None:
    assert {benchmark for benchmark, *_ in rows()} == set(READERS)
