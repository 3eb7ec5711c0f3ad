"""Precision, recall and F1 of scenes, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plait.scorers.truth.comparison import AttributeCounts, compare_scene, compare_texts
from plait.scorers.truth.reading import ItemReading, Reading
from plait.scorers.truth.text_reader import TextReading, read_text

CIRCLE = ItemReading("top left", "large", "red", "circle")
STAR = ItemReading("bottom right", "small", "blue", "star")
TRUE = Reading("white", (CIRCLE, STAR))


def compared(own: Reading, true: Reading = TRUE) -> tuple[int, int, int]:
    counts = compare_scene(own, true)
    return counts.right.total(), counts.stated.total(), counts.true.total()


@pytest.mark.parametrize(
    ("own", "right", "stated"),
    [
        (TRUE, 9, 9),
        (Reading("grey", (CIRCLE, STAR)), 8, 9),
        (Reading("white", (CIRCLE,)), 5, 5),
        (Reading("white", (CIRCLE, STAR, replace(STAR, place="top right"))), 9, 13),
        # By place first: red for blue at one place is one wrong attribute.
        (Reading("white", (CIRCLE, replace(STAR, colour="red"))), 8, 9),
        # Places exchanged: colour, shape and size of either are wrong, its place right.
        (
            Reading(
                "white",
                (replace(STAR, place="top left"), replace(CIRCLE, place="bottom right")),
            ),
            3,
            9,
        ),
        # Moved to a free place: what is left over is paired by what it has in common.
        (Reading("white", (CIRCLE, replace(STAR, place="top right"))), 8, 9),
        # Not clear or not stated: missed, and not wrong.
        (Reading(None, (replace(CIRCLE, size=None), STAR)), 7, 7),
        (Reading(), 0, 0),
    ],
)
def test_attributes_are_counted(own: Reading, right: int, stated: int) -> None:
    assert compared(own) == (right, stated, 9)


def test_what_truth_does_not_state_cannot_be_wrong() -> None:
    true = Reading(None, (replace(CIRCLE, size=None),))
    assert compared(TRUE, true) == (3, 7, 3)
    assert compared(Reading("white", (CIRCLE,)), true) == (3, 3, 3)


def said(text: str) -> TextReading:
    found = read_text(text)
    assert isinstance(found, TextReading)
    return found


WHERE = "The red star is at the top left."
SEEN = "There is a large red star at the top left."
MORE = "There is one star and two circles, so no."


@pytest.mark.parametrize(
    ("own", "true", "f1"),
    [
        ("There are two stars.", "There are two stars.", 1),
        ("Two.", "There are two stars.", 1),
        ("There are three stars.", "There are two stars.", 0),
        ("There are two circles.", "There are two stars.", 0),
        ("Two. Three.", "There are two stars.", 2 / 3),
        ("No.", MORE, 1),
        ("There is one star and one circle, so no.", MORE, 1),
        ("Yes.", MORE, 0),
        ("At the top left.", WHERE, 1),
        ("The blue star is at the top left.", WHERE, 0),
        (SEEN, WHERE, 1),
        ("Hello.", WHERE, 0),
        (SEEN, SEEN, 1),
        (SEEN, "There is a small red star at the top left.", 3 / 4),
    ],
)
def test_the_asked_fact_counts(own: str, true: str, f1: float) -> None:
    counts = sum(compare_texts(said(own), said(true)), AttributeCounts())
    assert counts.f1 == pytest.approx(f1)
