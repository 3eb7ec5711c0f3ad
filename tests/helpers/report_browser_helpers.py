"""A report in headless Chromium: a small run, and what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_helpers import MISSING, Browser
from report_helpers import (
    answer,
    board,
    evaluation,
    picture,
    sample,
    system,
)

from generators.base import Failure, Fault, NotApplicable, Skip, Unscored

BROWSER_MARKS = [pytest.mark.browser, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

CARDS = "[...document.querySelectorAll('.card')].map((c) => c.dataset.anchor)"
PBL, MSR = "project-based learning", "multi-step reasoning"


def by_hand():
    """Twelve queries of two systems, each with a reason to be found by a filter."""
    scores = {
        "a": [3, 0, 6, 2, 5, Unscored("unreadable"), Skip("judge is blind"), 1, 4, 4, 4, 4],
        "b": [3, 6, 6, 1, NotApplicable("no"), 2, 2, None, 4, 4, 4, "skip"],
    }
    found = []
    for i in range(12):
        category, field = (
            (PBL, "art") if i % 4 == 1 else ("situational analysis", "literature")
        )
        asked = sample(i, category, field)
        for name, given in scores.items():
            said = answer(f"Answer {i} of {name}", picture(i), "and the end.")
            score = given[i]
            if score is None:
                said, score = Failure("ran out", Fault.OUT_OF_MEMORY), None
            elif score == "skip":
                said, score = Skip("one picture only"), None
            found.append(evaluation(name, asked, score, document=said))
    found = [e for e in found if (e.system, e.sample.id) != ("b", "Q-0010")]
    return board(found, systems=[system("a"), system("b", "tiny")], missing=1)


def opened(chromium: Browser, page: Path, fragment: str = "") -> Browser:
    chromium.open(page, fragment)
    chromium.wait("!document.querySelector('#cards').hasAttribute('aria-busy')")
    return chromium


def ids(chromium: Browser, expected: list[int]) -> None:
    """Wait until exactly these queries are shown, in this order."""
    names = [f"Q-{i:04d}" for i in expected]
    chromium.wait(f"JSON.stringify({CARDS}) === JSON.stringify({names})")


def complaints(chromium: Browser) -> list[str]:
    return [e["message"] for e in chromium.logs("browser") if e["level"] != "INFO"]


def text_of(chromium: Browser, selector: str) -> str:
    return chromium.run("return document.querySelector(arguments[0]).innerText", selector)
