"""Mismatches between an image and its caption, as a model tells them (Unison).

The rules are those of evaluate_me.py and common/judge.py of FudanCVL/Unison@407b7b5:
how a reply is split, which of several replies tell the same, and what a matrix of marks of
every mismatch told against every change made comes to.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MOST = 30
"""Most mismatches of one answer that are marked."""
_MATCHES = 0.5
"""The least mark with which a mismatch and a change are the same: 3 of 1 to 5."""
_ALIKE = 0.85
_SHARED = 0.6
"""How like two texts are, by letters and by words, that tell the same."""
_SHORTEST = 3
_ABSENT = ("", "nan", "none")
_NUMBERED = r"(?<!\d)\b\d{1,2}\s*[.\)](?!\d)"
_NUMBER = re.compile(r"^\d{1,2}\s*[.\)]\s*")
_MARKS_AFTER_NO = ".,:;"
_COMMON = """
a an the this that these those is are was were be been being has have had do does did
done in on of to and or but not no with without for from at as by it its he she they
them him her his their our your my me we you i image images picture photo caption text
scene mention mentions mentioned describe describes described state states stated say
says show shows shown showing depict depicts depicted appear appears appeared seen
visible present still now there here which while instead however whereas wearing wears
wear worn some any only both each all more less than then so such very much many few
mismatch mismatches discrepancy discrepancies difference differences between also one
"""
_COMMON_WORDS = frozenset(_COMMON.split())
"""Words of almost every mismatch, by which none is told from another."""


class Matches(NamedTuple):
    """How far the mismatches told are the changes made."""

    precision: float
    recall: float
    f1: float
    extra: int
    """Mismatches that are no change."""
    missed: int
    """Changes that no mismatch tells."""


def without_no(text: str) -> str:
    """Return what follows a `No` at the beginning, and the marks behind it."""
    text = text.strip()
    if re.match(r"no\b", text.lower()) is None:
        return text
    return after_marks(text[2:])


def after_marks(text: str) -> str:
    """Return a text without the marks of punctuation that it begins with."""
    text = text.strip()
    while text and text[0] in _MARKS_AFTER_NO:
        text = text[1:].strip()
    return text


def split_mismatches(reply: str) -> list[str]:
    """Return the mismatches in one reply: those with numbers, else its clauses."""
    if reply.strip().lower() in _ABSENT:
        return []
    text = without_no(reply)
    if text.strip().lower() in ("yes", ""):
        return []
    numbered = re.search(_NUMBERED, text)
    if numbered is None:
        clauses = _long_enough(re.split(r";\s*", text))
        return clauses if len(clauses) > 1 else _long_enough([text])
    items: list[str] = []
    for part in re.split(f"(?={_NUMBERED})", text[numbered.start() :]):
        items.append(_NUMBER.sub("", part.strip().strip(",;").strip()))
    return _long_enough(items)


def _long_enough(texts: Iterable[str]) -> list[str]:
    """Return texts without the blanks around them, if enough of them is left."""
    stripped = [text.strip() for text in texts]
    return [text for text in stripped if len(text) >= _SHORTEST]


class _Told(NamedTuple):
    text: str
    words: frozenset[str]

    @classmethod
    def of(cls, item: str) -> _Told:
        text = item.lower()
        words = {word for word in re.findall("[a-z]+", text) if len(word) >= 3}
        return cls(text, frozenset(words - _COMMON_WORDS))

    def same(self, earlier: _Told) -> bool:
        if difflib.SequenceMatcher(None, self.text, earlier.text).ratio() > _ALIKE:
            return True
        shared = len(self.words & earlier.words)
        return shared > 0 and shared / len(self.words | earlier.words) >= _SHARED


def different_mismatches(replies: Iterable[Sequence[str]]) -> list[str]:
    """Return the mismatches of several replies, each where it is told first."""
    items: list[str] = []
    told: list[_Told] = []
    for reply in replies:
        for item in reply:
            own = _Told.of(item)
            if not any(own.same(earlier) for earlier in told):
                items.append(item)
                told.append(own)
    return items


def count_matches(marks: Sequence[Sequence[float]]) -> Matches:
    """Return what marks from 0 to 1 come to, in a row of each mismatch by change.

    A mismatch and a change count with their best mark; one below 0.5 is none.
    """
    best_of_mismatches = [max(row) for row in marks]
    best_of_changes = [max(column) for column in zip(*marks, strict=True)]
    precision, extra = _share_of_matches(best_of_mismatches)
    recall, missed = _share_of_matches(best_of_changes)
    both = precision + recall
    f1 = 2 * precision * recall / both if both > 0 else 0.0
    return Matches(precision, recall, f1, extra=extra, missed=missed)


def _share_of_matches(best: Sequence[float]) -> tuple[float, int]:
    """Return the sum of the marks of matches over all marks, and how many are none."""
    matches = [mark for mark in best if mark >= _MATCHES]
    return sum(matches) / len(best), len(best) - len(matches)
