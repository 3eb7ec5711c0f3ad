"""Sentences as words, in one spelling, and a cursor that reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from scorers.truth.scene import BACKGROUNDS, COLOURS, PLACES, SHAPES, SIZES

_SYNONYMS = {
    "big": "large",
    "little": "small",
    "gray": "grey",
    "upper": "top",
    "lower": "bottom",
    "image": "picture",
    **{f"{thing}s": thing for thing in (*SHAPES, "shape", "picture")},
    **{str(n): word for n, word in enumerate(("zero", "one", "two", "three", "four"))},
}
_ENDS = re.compile(r"[.!?;:\n]+")
_STEP = re.compile(r"\bstep +\d+ *:")
_WORD = re.compile(r"[^\W\d_]+|\d+|,|[^\w\s-]")
_WORLD = {*COLOURS, *SHAPES, *SIZES, *BACKGROUNDS, "background", "shape", "corner"}
_WORLD |= {word for place in PLACES for word in place.split()}


class NotInGrammar(Exception):
    """Words that a rule does not cover."""


def sentences(text: str) -> list[tuple[str, ...]]:
    """The words of each sentence, small and singular, without the numbers of steps.

    A colon ends a sentence, as in `The wind blows: the red circle moves ...`.
    """
    parts = _ENDS.split(_STEP.sub("\n", text.lower()))
    words = (tuple(_SYNONYMS.get(w, w) for w in _WORD.findall(part)) for part in parts)
    return [sentence for sentence in words if sentence]


def is_about_world(sentence: Iterable[str]) -> bool:
    """Whether a sentence has a word of the miniature world."""
    return not _WORLD.isdisjoint(sentence)


class Cursor:
    """Reads words one phrase after the other."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = tuple(words)
        self._at = 0

    def take(self, phrases: Iterable[str]) -> str | None:
        """The phrase that comes next, if it is one of these; the longest of several."""
        for phrase in sorted(phrases, key=len, reverse=True):
            words = tuple(phrase.split())
            if self._words[self._at : self._at + len(words)] == words:
                self._at += len(words)
                return phrase
        return None

    def need(self, *phrases: str) -> str:
        """The phrase that must come next; NotInGrammar where another does."""
        phrase = self.take(phrases)
        if phrase is None:
            raise NotInGrammar
        return phrase

    def end(self) -> None:
        """NotInGrammar where words are left."""
        if self._at < len(self._words):
            raise NotInGrammar
