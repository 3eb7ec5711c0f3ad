"""From English to what it says: the grammar of `language.py` with small variation.

A sentence with words of the miniature world that the grammar does not cover makes the whole
text unreadable; sentences without such words are passed over. Stories and instructions
(`the red circle moves to the top left`) are in the grammar, and describe no scene.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from plait.scorers.truth.language import NUMBERS
from plait.scorers.truth.reading import Illegible, ItemReading, Reading
from plait.scorers.truth.scene import BACKGROUNDS, COLOURS, PLACES, SHAPES, SIZES


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


def reason_without_truth(text: TextReading | Illegible) -> str:
    """Say why an answer cannot be compared with a ground truth of this text, or nothing."""
    if isinstance(text, Illegible):
        return text.reason
    return "" if text.scenes or text.facts else "its text describes no scene"


def _one(*phrases: str, name: str = "") -> str:
    """A pattern of one of these phrases, the longest first, and the space after it."""
    ordered = "|".join(sorted(phrases, key=len, reverse=True))
    return f"(?{f'P<{name}>' if name else ':'}{ordered}) "


_AND = _one("and", ",", ", and")
_AT = _one("at the", "in the", "on the")
_STANDS = _one("is", "stands", "lies")
_SIZE = _one(*SIZES)
_COLOUR = _one(*COLOURS)
_SHAPE = _one(*SHAPES)
_PLACE = _one(*PLACES)
_THING = _one(*SHAPES, "shape")
_CORNER = "(?:corner |quarter )?"
_LOOKS = f"(?:{_SIZE})?(?:{_COLOUR}{_THING}|{_SHAPE})"
_WHERE = f"(?:{_AT}{_PLACE}{_CORNER})?"
_ITEM = f"{_one('a', 'an', 'one', 'another', 'the')}{_LOOKS}(?:{_STANDS})?{_WHERE}"
"""`a large red circle at the top left`; at least a colour or a shape."""
_NAME = f"the (?:{_SIZE})?{_COLOUR}{_SHAPE}"
"""`the red circle`, with a size or without."""
_COUNT = f"(?:{_one(*NUMBERS, 'no')}(?:{_COLOUR})?{_THING}|{_one(*NUMBERS)})"


def _on(name: str) -> str:
    """A pattern of where items lie, as `on a white background`; the group of that name."""
    return (
        f"(?:{_one('on a', 'all on a', 'against a')}(?:plain )?"
        f"{_one(*BACKGROUNDS, name=name)}background (?:, )?)"
    )


_LEADS = _one(
    *("there is", "there are", "there remains", "here is", "here are", "this is", "it is"),
    *("the picture shows", "the picture now shows", "the picture has", "it shows"),
    *("the new picture shows", "the next picture shows", "we see", "you see"),
)
_OPENING = _one(
    *("now", "then", "next", "finally", "here", "so", "the answer is", "therefore", ",")
)
_MORE = f"{_SHAPE}than {_SHAPE}"
# In the order in which they are tried.
_RULES = {
    # `There is one circle and two squares, so no`; a number alone.
    "counts": f"(?:{_one('there is', 'there are', 'it is')})?{_COUNT}"
    f"(?:{_AND}{_COUNT})*(?:{_AND}so {_one('yes', 'no', name='therefore')})?",
    # `Yes`; `No, there are not more circles than squares`.
    "verdict": f"yes (?:, there are more {_MORE})?|no (?:, there are not more {_MORE})?",
    # `The red circle is at the top left`; `at the top left`; a place alone.
    "location": f"(?:it is )?(?:{_PLACE}|(?:{_NAME}{_STANDS})?{_AT}{_PLACE}{_CORNER})",
    # `the red circle moves to the top left`; `a small blue star ... appears`.
    "story": f"{_NAME}(?:moves to the {_PLACE}|turns {_COLOUR}|grows |shrinks |goes away )"
    f"|(?!the ){_ITEM}appears ",
    # `add a large blue star at the top left`; `make the red circle green`.
    "instruction": f"add {_ITEM}|move {_NAME}to the {_PLACE}|take away {_NAME}"
    f"|make {_NAME}(?:{_COLOUR}|{_SIZE})",
    "background": f"the background is {_one(*BACKGROUNDS, name='background')}",
    # `There is a large red circle at the top left and ... on a white background`.
    "scene": f"{_on('before')}?(?:{_LEADS})?(?:now )?{_ITEM}(?:{_AND}{_ITEM})*"
    f"(?:{_AND}{_on('joined')}|(?(before)|{_on('after')}))?",
}
_SENTENCE = [
    (name, re.compile(f"(?:{_OPENING})*(?:{rule})")) for name, rule in _RULES.items()
]
"""The first that covers a whole sentence says what it is."""
_EACH_ITEM = re.compile(rf"\b{_ITEM}")
_EACH_COUNT = re.compile(rf"\b{_COUNT}")


def read_text(text: str) -> TextReading | Illegible:
    """Read scenes and facts of a text; Illegible names a sentence beyond the grammar."""
    scenes: list[Reading] = []
    facts: list[Fact] = []
    for words in sentences(text):
        # Patterns have a space after every word, also after the last one.
        said = " ".join((*words, ""))
        name, match = _match_rule(said)
        if match is None:
            if not _WORLD.isdisjoint(words):
                return Illegible(f"the sentence {said.strip()!r} is not in the grammar")
        elif name == "background":
            # Of the scene before it, where there is one.
            if scenes:
                scenes[-1] = replace(scenes[-1], background=match["background"])
        elif name == "scene":
            # Wherever the sentence names it.
            background = match["before"] or match["joined"] or match["after"]
            items = [_item(item[0]) for item in _EACH_ITEM.finditer(said)]
            scenes.append(Reading.of(background, items))
        else:
            facts += _facts(name, said, match)
    return TextReading(tuple(scenes), tuple(facts))


def _match_rule(said: str) -> tuple[str, re.Match[str] | None]:
    """Return the first rule that covers a sentence, and its match; None for none."""
    for name, rule in _SENTENCE:
        if match := rule.fullmatch(said):
            return name, match
    return "", None


def _item(said: str) -> ItemReading:
    """Return the item that a phrase describes, None for what it leaves open."""
    return ItemReading(
        place=_first_in(said, PLACES),
        size=_first_in(said, SIZES),
        colour=_first_in(said, COLOURS),
        shape=_first_in(said, SHAPES),
    )


def _first_in(said: str, phrases: Iterable[str]) -> str | None:
    """Return the first of the phrases that a sentence has; None for none."""
    for phrase in phrases:
        if f"{phrase} " in said:
            return phrase
    return None


def _facts(rule: str, said: str, match: re.Match[str]) -> list[Fact]:
    """Return the facts of a sentence; none of a story or an instruction."""
    if rule == "counts":
        facts: list[Fact] = []
        for count in _EACH_COUNT.finditer(said):
            number, *name = count[0].split()
            counted = 0 if number == "no" else NUMBERS.index(number)
            facts.append(Count(counted, " ".join(name) or None))
        if match["therefore"]:
            facts.append(YesOrNo(match["therefore"] == "yes"))
        return facts
    if rule == "verdict":
        return [YesOrNo("yes " in said)]
    if rule == "location":
        colour = _first_in(said, COLOURS)
        shape = _first_in(said, SHAPES)
        item = f"{colour} {shape}" if colour else None
        return [Location(str(_first_in(said, PLACES)), item)]
    return []


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
_WORLD |= set(" ".join(PLACES).split())
"""Words that only a sentence about the miniature world has."""


def sentences(text: str) -> list[tuple[str, ...]]:
    """Return the words of each sentence, small and singular, without the numbers of steps.

    A colon ends a sentence, as in `The wind blows: the red circle moves ...`.
    """
    found = []
    for part in _ENDS.split(_STEP.sub("\n", text.lower())):
        words = tuple(_SYNONYMS.get(word, word) for word in _WORD.findall(part))
        if words:
            found.append(words)
    return found
