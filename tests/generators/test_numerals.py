"""Numbers that people and models write as text."""

from __future__ import annotations

import math

import pytest

from plait.generators.numerals import number_of


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *((str(n), float(n)) for n in (0, 7, -2, 0.5, 1e-5, 1e22)),
        *((" 3\t", 3.0), ("+1", 1.0), ("5.", 5.0), (".5", 0.5), ("1E3", 1000.0)),
        ("9" * 401, math.inf),
    ],
)
def test_numbers(text, number):
    assert number_of(text) == number


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ".", "1_0", "1,5", "1 0", "0x1", "1e", "--1", "nan", "inf", "Infinity"),
        *("\uff11", "\u0661", "\u00b2", "\u22121", "1\n2", "one", "5/6"),
    ],
)
def test_what_is_no_number(text):
    assert number_of(text) is None
