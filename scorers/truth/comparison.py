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
        counts = {}
        for name in (*ATTRIBUTES, BACKGROUND, FACT):
            if self.stated[name] or self.true[name]:
                counts[name] = [self.right[name], self.stated[name], self.true[name]]
        return {"precision": self.precision, "recall": self.recall, "attributes": counts}


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def compare_scenes(
    own: Sequence[Reading], true: Sequence[Reading]
) -> list[AttributeCounts]:
    """Compare scenes paired in order; attributes of those left over count as wrong."""
    counts = []
    # Beside an empty reading all attributes of the other are wrong, or missed.
    for own_scene, true_scene in zip_longest(own, true, fillvalue=Reading()):
        counts.append(compare_scene(own_scene, true_scene))
    return counts


def compare_scene(own: Reading, true: Reading) -> AttributeCounts:
    """Compare one scene with its truth.

    What truth does not state cannot be wrong; what only truth states is missed. Items are
    paired by place, and those left over by the most attributes in common.
    """
    counts = _compare(
        {BACKGROUND: own.background},
        {BACKGROUND: true.background},
        is_in_truth=bool(true.items) or true.background is not None,
    )
    for own_item, true_item in _pair(own.items, true.items):
        counts += _compare(
            _attributes(own_item),
            _attributes(true_item),
            is_in_truth=true_item is not None,
        )
    return counts


_Values = Mapping[str, str | None]
"""By attribute; None where it is not stated."""


def _compare(own: _Values, true: _Values, *, is_in_truth: bool) -> AttributeCounts:
    """Compare the attributes of one thing, which truth may not hold at all."""
    counts = AttributeCounts()
    for name, value in true.items():
        if value is not None:
            counts.true[name] += 1
            if own.get(name) == value:
                counts.right[name] += 1
    for name, value in own.items():
        # What truth leaves open of a thing that it holds cannot be wrong.
        if value is not None and (name in counts.true or not is_in_truth):
            counts.stated[name] += 1
    return counts


def _attributes(item: ItemReading | None) -> dict[str, str | None]:
    return {} if item is None else {name: getattr(item, name) for name in ATTRIBUTES}


def _pair(
    own: Iterable[ItemReading], true: Iterable[ItemReading]
) -> Iterator[tuple[ItemReading | None, ItemReading | None]]:
    """Items of both sides, the most alike first; None where one is left over."""
    lone = list(own)
    missing = list(true)
    while lone and missing:
        pairs = product(lone, missing)
        own_item, true_item = max(pairs, key=lambda pair: _alike(*pair))
        lone.remove(own_item)
        missing.remove(true_item)
        yield own_item, true_item
    for item in lone:
        yield item, None
    for item in missing:
        yield None, item


def _alike(own: ItemReading, true: ItemReading) -> tuple[bool, int]:
    """Return whether the place is the same, which goes first, and how many attributes."""
    stated = _attributes(own)
    same = 0
    for name, value in _attributes(true).items():
        if value is not None and stated[name] == value:
            same += 1
    return own.place is not None and own.place == true.place, same


def compare_texts(own: TextReading, true: TextReading) -> list[AttributeCounts]:
    """Compare what two texts say: the asked fact where truth states one, else their scenes.

    Where truth says yes or no, the numbers it says beside it are working, and do not count.
    """
    if not true.facts:
        return compare_scenes(own.scenes, true.scenes)
    yes_or_no = [fact for fact in true.facts if isinstance(fact, YesOrNo)]
    asked: Sequence[Fact] = yes_or_no or true.facts
    kind = type(asked[0])
    answers = [fact for fact in _all_facts(own) if isinstance(fact, kind)]
    counts = AttributeCounts()
    counts.stated[FACT] = len(answers)
    counts.true[FACT] = len(asked)
    for fact in asked:
        if any(_agree(answer, fact) for answer in answers):
            counts.right[FACT] += 1
    return [counts]


def _all_facts(reading: TextReading) -> Iterator[Fact]:
    """Yield what a text states, also the places of lone items in its scenes.

    `There is a red circle at the top left` answers where the red circle is.
    """
    yield from reading.facts
    for scene in reading.scenes:
        item = scene.items[0] if len(scene.items) == 1 else None
        if item is not None and item.place:
            yield Location(item.place, f"{item.colour} {item.shape}")


def _agree(own: Fact, true: Fact) -> bool:
    """Equal, where a name that is not stated is the one that was asked about."""
    if isinstance(own, Count | Location) and own.name is None:
        own = replace(own, name=getattr(true, "name", None))
    return own == true
