"""How much of a scene an answer's text or picture has right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from benchmarks.miniature.training.judge.corruptions import NO_BACKGROUND, Damaged
from scorers.truth.scene import Scene, SceneItem


@dataclass(frozen=True, slots=True)
class Share:
    """Right attributes out of those expected and those there."""

    right: int
    expected: int
    there: int

    @property
    def f1(self) -> float:
        """In [0, 1]; 1 where nothing is expected and nothing is there."""
        every = self.expected + self.there
        return 2 * self.right / every if every else 1.0


def attributes(scene: Scene | None) -> int:
    """How many a scene has: four of each item and its background."""
    if scene is None:
        return 0
    return 4 * len(scene.items) + (scene.background != NO_BACKGROUND)


def share(expected: Scene, got: Scene | None) -> Share:
    """Of one scene; items are matched by place first, then by what they have in common."""
    if got is None:
        return Share(0, attributes(expected), 0)
    right = int(expected.background == got.background)
    left, others = [*expected.items], [*got.items]
    for item in expected.items:
        if (other := got.at(item.place)) is not None:
            right += _alike(item, other)
            left.remove(item)
            others.remove(other)
    pairs = sorted(((_alike(a, b), a, b) for a in left for b in others), reverse=True)
    for alike, a, b in pairs:
        if a in left and b in others:
            right += alike
            left.remove(a)
            others.remove(b)
    return Share(right, attributes(expected), attributes(got))


def _alike(item: SceneItem, other: SceneItem) -> int:
    return sum(a == b for a, b in zip(astuple(item), astuple(other), strict=True))


def pooled(shares: Iterable[Share]) -> Share:
    """Of several scenes together."""
    every = [*shares]
    return Share(
        sum(s.right for s in every),
        sum(s.expected for s in every),
        sum(s.there for s in every),
    )


def text_share(answer: Damaged) -> Share:
    """Of an answer's texts."""
    told = [p.told.scene if p.told else None for p in answer.parts]
    return pooled(map(share, answer.expected, told))


def picture_share(answer: Damaged) -> Share:
    """Of an answer's pictures; those that cannot be made out are not there."""
    shown = [p.shown for p in answer.parts]
    scenes = [s.scene if s and not s.spoiled else None for s in shown]
    return pooled(map(share, answer.expected, scenes))


def truth(answer: Damaged) -> float:
    """F1 over all attributes of texts and pictures; of a reasoning answer 1 or 0."""
    if answer.query.category == "MSR":
        return float(answer.text == answer.query.answer[0])
    return pooled([text_share(answer), picture_share(answer)]).f1
