"""Two readings compared: precision, recall and F1 over the attributes of scenes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product, zip_longest
from typing import Any

from plait.scorers.truth.reading import ItemReading, Reading
from plait.scorers.truth.text_reader import Count, Fact, Location, TextReading, YesOrNo

ATTRIBUTES = ("colour", "shape", "size", "place")
BACKGROUND = "background"
FACT = "fact"


@dataclass(frozen=True, slots=True)
class AttributeCounts:
    """How many attributes are right, by name; readings of several scenes add up."""

    right: Counter[str] = field(default_factory=Counter)
    """Stated as they are in truth."""
    stated: Counter[str] = field(default_factory=Counter)
    """Stated where truth is known; of things that are not there in truth all."""
    true: Counter[str] = field(default_factory=Counter)
    """Known in truth."""

    def __add__(self, other: "AttributeCounts") -> "AttributeCounts":
        return AttributeCounts(
            self.right + other.right, self.stated + other.stated, self.true + other.true
        )

    @property
    def precision(self) -> float:
        """Right ones of those stated, 0 to 1; 0 where none is."""
        return _share(self.right.total(), self.stated.total())

    @property
    def recall(self) -> float:
        """Right ones of those known in truth, 0 to 1."""
        return _share(self.right.total(), self.true.total())

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 0 to 1."""
        return _share(2 * self.right.total(), self.stated.total() + self.true.total())

    def as_json(self) -> dict[str, Any]:
        """Precision, recall, and per attribute how many are right, stated and true."""
        names = [
            n for n in (*ATTRIBUTES, BACKGROUND, FACT) if self.stated[n] + self.true[n]
        ]
        counts = {n: [self.right[n], self.stated[n], self.true[n]] for n in names}
        return {"precision": self.precision, "recall": self.recall, "attributes": counts}


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def scenes_compared(
    own: Sequence[Reading], true: Sequence[Reading]
) -> list[AttributeCounts]:
    """Compare scenes paired in order; attributes of those left over count as wrong."""
    pairs = zip_longest(own, true, fillvalue=Reading())
    return [scene_compared(o, t) for o, t in pairs]


def scene_compared(own: Reading, true: Reading) -> AttributeCounts:
    """Compare one scene with its truth.

    What truth does not state cannot be wrong; what only truth states is missed. Items are
    paired by place, and those left over by the most attributes in common.
    """
    there = bool(true.items) or true.background is not None
    items = (
        _compare(_attributes(o), _attributes(t), t is not None)
        for o, t in _pair(own.items, true.items)
    )
    sides = ({BACKGROUND: own.background}, {BACKGROUND: true.background})
    return sum(items, _compare(*sides, there))


_Values = Mapping[str, str | None]


def _compare(own: _Values, true: _Values, there: bool) -> AttributeCounts:
    """`there` tells whether truth holds the thing at all."""
    known = Counter(name for name, value in true.items() if value is not None)
    stated = Counter(
        name
        for name, value in own.items()
        if value is not None and (name in known or not there)
    )
    right = Counter(name for name in known if own.get(name) == true[name])
    return AttributeCounts(right, stated, known)


def _attributes(item: ItemReading | None) -> dict[str, str | None]:
    return {} if item is None else {name: getattr(item, name) for name in ATTRIBUTES}


def _pair(
    own: Iterable[ItemReading], true: Iterable[ItemReading]
) -> Iterator[tuple[ItemReading | None, ItemReading | None]]:
    """Items of both sides, the most alike first; None where one is left over."""
    lone = list(own)
    missing = list(true)
    while lone and missing:
        best = max(product(lone, missing), key=lambda pair: _alike(*pair))
        lone.remove(best[0])
        missing.remove(best[1])
        yield best
    yield from ((o, None) for o in lone)
    yield from ((None, t) for t in missing)


def _alike(own: ItemReading, true: ItemReading) -> tuple[bool, int]:
    same = [_attributes(own)[n] == v for n, v in _attributes(true).items() if v is not None]
    return own.place is not None and own.place == true.place, sum(same)


def texts_compared(own: TextReading, true: TextReading) -> list[AttributeCounts]:
    """Compare what two texts say: the asked fact where truth states one, else their scenes.

    Where truth says yes or no, the numbers it says beside it are working, and do not count.
    """
    if not true.facts:
        return scenes_compared(own.scenes, true.scenes)
    asked: Sequence[Fact] = [f for f in true.facts if isinstance(f, YesOrNo)] or true.facts
    # The places of lone items are facts too: `There is a red circle at the top left`.
    lone = (scene.items[0] for scene in own.scenes if len(scene.items) == 1)
    places = (Location(i.place, f"{i.colour} {i.shape}") for i in lone if i.place)
    answers = [f for f in (*own.facts, *places) if isinstance(f, type(asked[0]))]

    def is_answered(fact: Fact) -> bool:
        return any(_agree(answer, fact) for answer in answers)

    counts = AttributeCounts(
        right=Counter({FACT: sum(map(is_answered, asked))}),
        stated=Counter({FACT: len(answers)}),
        true=Counter({FACT: len(asked)}),
    )
    return [counts]


def _agree(own: Fact, true: Fact) -> bool:
    """Equal, where a name that is not stated is the one that was asked about."""
    if isinstance(own, Count | Location) and own.name is None:
        own = replace(own, name=getattr(true, "name", None))
    return own == true
