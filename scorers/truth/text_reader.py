"""From English to what it says: the grammar of `language.py` with small variation.

A sentence with words of the miniature world that the grammar does not cover makes the whole
text unreadable; sentences without such words are passed over. Stories and instructions
(`the red circle moves to the top left`) are in the grammar, and describe no scene.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from scorers.truth.language import NUMBERS
from scorers.truth.reading import Illegible, ItemReading, Reading
from scorers.truth.scene import BACKGROUNDS, COLOURS, PLACES, SHAPES, SIZES

_OPENINGS = ("now", "then", "next", "finally", "here", "so", "the answer is", "therefore")
_LEADS = (
    *("there is", "there are", "there remains", "here is", "here are", "this is", "it is"),
    *("the picture shows", "the picture now shows", "the picture has", "it shows"),
    *("the new picture shows", "the next picture shows", "we see", "you see"),
)
_ARTICLES = ("a", "an", "one", "another", "the")
_STANDS = ("is", "stands", "lies")
_AND = ("and", ",", ", and")
_AT = ("at the", "in the", "on the")
_THINGS = (*SHAPES, "shape")


@dataclass(frozen=True, slots=True)
class Count:
    """How many there are of a thing."""

    number: int
    name: str | None = None
    """`circle`, `red shape`, `shape`; None where the text does not say."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where the item of a name is."""

    place: str
    name: str | None = None
    """`red circle`; None where the text does not say."""


@dataclass(frozen=True, slots=True)
class YesOrNo:
    """Yes or no."""

    yes: bool


Fact = Count | Location | YesOrNo


@dataclass(frozen=True, slots=True)
class TextReading:
    """What a text says, in its order."""

    scenes: tuple[Reading, ...] = ()
    facts: tuple[Fact, ...] = ()


def read_text(text: str) -> TextReading | Illegible:
    """Read scenes and facts of a text; Illegible names a sentence beyond the grammar."""
    scenes: list[Reading] = []
    facts: list[Fact] = []
    for sentence in sentences(text):
        try:
            said = _said(sentence)
        except NotInGrammar:
            if is_about_world(sentence):
                shown = " ".join(sentence)
                return Illegible(f"the sentence {shown!r} is not in the grammar")
            continue
        if isinstance(said, str):
            scenes[-1:] = [replace(scene, background=said) for scene in scenes[-1:]]
        elif isinstance(said, Reading):
            scenes.append(said)
        else:
            facts += said
    return TextReading(tuple(scenes), tuple(facts))


_Said = Reading | Sequence[Fact] | str
"""A scene, facts (none of a story), or the background of the scene before."""


def _said(sentence: Sequence[str]) -> _Said:
    """Return what one sentence says, by the first rule that covers all of it."""
    rules: tuple[Callable[[Cursor], _Said], ...] = (
        *(_counts, _verdict, _location, _story, _instruction, _background, _scene),
    )
    for rule in rules:
        words = Cursor(sentence)
        while words.take((*_OPENINGS, ",")):
            pass
        try:
            said = rule(words)
            words.end()
        except NotInGrammar:
            continue
        return said
    raise NotInGrammar


def _scene(words: Cursor) -> Reading:
    """`There is a large red circle at the top left and ... on a white background`."""
    background = _on_background(words)
    words.take(_LEADS)
    words.take(("now",))
    items = [_item(words)]
    while words.take(_AND):
        if after := _on_background(words):
            return Reading.of(background or after, items)
        items.append(_item(words))
    return Reading.of(background or _on_background(words), items)


def _on_background(words: Cursor) -> str | None:
    if words.take(("on a", "all on a", "against a")) is None:
        return None
    words.take(("plain",))
    background = words.need(*BACKGROUNDS)
    words.need("background")
    words.take((",",))
    return background


def _background(words: Cursor) -> str:
    """`The background is white`."""
    words.need("the background is")
    return words.need(*BACKGROUNDS)


def _item(words: Cursor) -> ItemReading:
    """`a large red circle at the top left`; at least a colour or a shape."""
    words.need(*_ARTICLES)
    size = words.take(SIZES)
    colour, shape = words.take(COLOURS), words.take(_THINGS)
    if shape is None or (colour is None and shape == "shape"):
        raise NotInGrammar
    words.take(_STANDS)
    place = _place(words) if words.take(_AT) else None
    return ItemReading(place, size, colour, shape if shape in SHAPES else None)


def _place(words: Cursor) -> str:
    place = words.need(*PLACES)
    words.take(("corner", "quarter"))
    return place


def _name(words: Cursor) -> str:
    """`the red circle`, with a size or without."""
    words.need("the")
    words.take(SIZES)
    return f"{words.need(*COLOURS)} {words.need(*SHAPES)}"


def _counts(words: Cursor) -> list[Fact]:
    """`There is one circle and two squares, so no`; a number alone."""
    words.take(("there is", "there are", "it is"))
    facts: list[Fact] = [_count(words)]
    while words.take(_AND):
        if words.take(("so",)):
            return [*facts, YesOrNo(words.need("yes", "no") == "yes")]
        facts.append(_count(words))
    return facts


def _count(words: Cursor) -> Count:
    number = words.need(*NUMBERS, "no")
    colour, thing = words.take(COLOURS), words.take(_THINGS)
    if thing is None and (colour is not None or number == "no"):
        raise NotInGrammar
    named = f"{colour} {thing}" if colour else thing
    return Count(0 if number == "no" else NUMBERS.index(number), named)


def _verdict(words: Cursor) -> list[Fact]:
    """`Yes`; `No, there are not more circles than squares`."""
    verdict = YesOrNo(words.need("yes", "no") == "yes")
    if words.take((",",)):
        words.need("there are more" if verdict.yes else "there are not more")
        words.need(*SHAPES)
        words.need("than")
        words.need(*SHAPES)
    return [verdict]


def _location(words: Cursor) -> list[Fact]:
    """`The red circle is at the top left`; `at the top left`; a place alone."""
    words.take(("it is",))
    if place := words.take(PLACES):
        return [Location(place)]
    name = None
    if words.take(_AT) is None:
        name = _name(words)
        words.need(*_STANDS)
        words.need(*_AT)
    return [Location(_place(words), name)]


def _story(words: Cursor) -> list[Fact]:
    """`the red circle moves to the top left`; `a small blue star ... appears`."""
    if words.take(("the",)) is None:
        _item(words)
        words.need("appears")
        return []
    words.take(SIZES)
    words.need(*COLOURS)
    words.need(*SHAPES)
    verb = words.need("moves to the", "turns", "grows", "shrinks", "goes away")
    _complement(words, {"moves to the": PLACES, "turns": (*COLOURS,)}.get(verb, ()))
    return []


def _instruction(words: Cursor) -> list[Fact]:
    """`add a large blue star at the top left`; `make the red circle green`."""
    verb = words.need("add", "move", "make", "take away")
    if verb == "add":
        _item(words)
        return []
    _name(words)
    if verb == "move":
        words.need("to the")
    _complement(words, {"move": PLACES, "make": (*COLOURS, *SIZES)}.get(verb, ()))
    return []


def _complement(words: Cursor, phrases: Sequence[str]) -> None:
    if phrases:
        words.need(*phrases)


_SYNONYMS = {
    "big": "large",
    "little": "small",
    "gray": "grey",
    "upper": "top",
    "lower": "bottom",
    "image": "picture",
    **{f"{thing}s": thing for thing in (*SHAPES, "shape", "picture")},
    **{str(n): word for n, word in enumerate(NUMBERS)},
}
_ENDS = re.compile(r"[.!?;:\n]+")
_STEP = re.compile(r"\bstep +\d+ *:")
_WORD = re.compile(r"[^\W\d_]+|\d+|,|[^\w\s-]")
_WORLD = {*COLOURS, *SHAPES, *SIZES, *BACKGROUNDS, "background", "shape", "corner"}
_WORLD |= {word for place in PLACES for word in place.split()}


class NotInGrammar(Exception):
    """Words that a rule does not cover."""


def sentences(text: str) -> list[tuple[str, ...]]:
    """Return the words of each sentence, small and singular, without the numbers of steps.

    A colon ends a sentence, as in `The wind blows: the red circle moves ...`.
    """
    parts = _ENDS.split(_STEP.sub("\n", text.lower()))
    words = (tuple(_SYNONYMS.get(w, w) for w in _WORD.findall(part)) for part in parts)
    return [sentence for sentence in words if sentence]


def is_about_world(sentence: Iterable[str]) -> bool:
    """Return whether a sentence has a word of the miniature world."""
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
        """Return the phrase that must come next; NotInGrammar where another does."""
        phrase = self.take(phrases)
        if phrase is None:
            raise NotInGrammar
        return phrase

    def end(self) -> None:
        """NotInGrammar where words are left."""
        if self._at < len(self._words):
            raise NotInGrammar
