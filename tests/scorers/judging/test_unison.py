"""Unison's judge: replies in both modes, boxes and mismatches."""

from __future__ import annotations

import pytest

from plait.scorers.boxes import Box, Size, box_of, first_numbers, listed_numbers, overlap
from plait.scorers.judging.mismatches import count_matches, different_mismatches
from plait.scorers.judging.summaries import UnisonValue, unison_summary
from plait.scorers.judging.unison import (
    official_edit,
    official_option,
    official_yes_or_no,
    operations_of,
    yes_or_no,
)


@pytest.mark.parametrize(
    ("text", "official", "corrected"),
    [
        ("Yes.", "yes", "yes"),
        ("no, it is not", "no", "no"),
        ("There is no doubt: yes", "no", "unknown"),
        ("nothing", "unknown", "unknown"),
    ],
)
def test_yes_and_no(text: str, official: str, corrected: str) -> None:
    assert official_yes_or_no(text) == official
    assert yes_or_no(text) == corrected


def test_official_marks_and_options() -> None:
    assert official_edit("A: 3\nB: 5\nC: 1") == ((3 + 3 + 1) / 3 - 1) / 4
    assert official_edit("rating 5") == 1
    assert official_edit("ERROR: no reply") == 0
    assert official_option("A cube", {"A": "x", "B": "y"}) == "A"
    assert official_option("I think B", {"A": "x", "B": "y"}) == "unknown"


def test_boxes() -> None:
    assert box_of(first_numbers("[0.1, 0.2, 0.5, 0.9]")) == Box(100, 200, 500, 900)
    assert box_of([12, 8, 60, 40], Size(120, 80)) == Box(100, 100, 500, 500)
    assert listed_numbers("1. The box is [50, 9, 10, 20].") == [10, 9, 50, 20]
    assert overlap(Box(0, 0, 2, 1), Box(1, 0, 3, 1)) == pytest.approx(1 / 3)


def test_operations_and_mismatches() -> None:
    first, second = operations_of("1: Add, a hat, [1, 2, 3, 4]; 2: Change, it")
    assert first == ("add", "a hat", (1, 2, 3, 4))
    assert second == ("adjust", "it", ())
    told = different_mismatches([["the hat is red"], ["image shows the hat is red"]])
    assert told == ["the hat is red"]
    found = count_matches([[1.0, 0.25], [0.25, 0.0]])
    assert (found.precision, found.recall, found.extra, found.missed) == (0.5, 0.5, 1, 1)


def test_the_summary_is_the_mean_of_the_tasks_that_were_run() -> None:
    values = [UnisonValue("a", "Uni.", 0.5), UnisonValue("a", "Uni.", 1.0)]
    summary = unison_summary(["a", "b"], values)
    assert summary["a: Uni."] == summary["Overall"] == 0.75
    assert summary["b: Uni."] is None
