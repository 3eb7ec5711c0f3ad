"""What a score is made of: every number among its `parts`, with its unit and its scale.

A scorer declares what its numbers are in a `PartTable`. Numbers that none declares are
parts too, without a unit; texts are none. True counts as 1 and false as 0.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

UNBOUNDED = "unbounded"
"""The scale of what declares none."""
PartKind = Literal["criterion", "penalty", "raw", "other"]
"""What a part is to its score: one criterion of several, what is taken off for, or the
score on the scale of its rubric."""
RULED: tuple[PartKind, ...] = ("criterion", "penalty", "raw")
"""The kinds that tables have rows of."""
KINDS: tuple[PartKind, ...] = (*RULED, "other")
"""In the order in which parts come."""
ANY = "*"
"""The step of a path that stands for every name and every number."""
_CRITERIA = "criteria"
_LONE: Mapping[str, PartKind] = {"penalty": "penalty", "raw": "raw"}
"""Kinds of single numbers beside a mapping of criteria, where none is declared."""


class ScorePart(NamedTuple):
    """One number that a score was made of."""

    name: str
    """The path among the score's `parts`, a JSON Pointer (RFC 6901) without the first
    slash: `pairs/0/cos`; lists count from 0. Of a criterion the path below its first step,
    as it stands: its own name."""
    kind: PartKind
    value: float
    """Finite."""
    unit: str
    """What it is, such as `images`; empty where that is not declared."""
    scale: str
    """The range that it is meant for, as `Scorer.scale` is written."""


@dataclass(frozen=True, slots=True)
class PartScale:
    """What the numbers at one place among the `parts` of scores are."""

    path: str
    """As a JSON Pointer without the first slash, where `*` is any step: `pairs/*/cos`."""
    unit: str | None = None
    """None where unit and scale are those of the score itself."""
    scale: str = UNBOUNDED
    """`LOW-HIGH`. Unlike scores, parts beyond it count as they are."""
    kind: PartKind | None = None
    """None where the path says it: what stands under `criteria` is a criterion, and
    `penalty` and `raw` beside them are such."""


@dataclass(slots=True)
class _Node:
    """What is declared at a path, and below it by the next step."""

    own: PartScale | None = None
    below: dict[str, _Node] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[PartScale]) -> _Node:
        root = cls()
        for row in rows:
            node = root
            for step in row.path.split("/"):
                key = step.replace("~1", "/").replace("~0", "~")
                node = node.below.setdefault(key, cls())
            node.own = row
        return root

    def step(self, key: str) -> _Node:
        """Return what is declared at `key`, or else of any key."""
        return self.below.get(key) or self.below.get(ANY) or _NOTHING


_NOTHING = _Node()
_UNDECLARED = PartScale("", unit="")


class _Place(NamedTuple):
    """A value among the parts."""

    path: tuple[str, ...]
    declared: _Node
    value: Any


@dataclass(frozen=True)
class PartTable:
    """What the numbers among the parts of a scorer's scores are."""

    rows: tuple[PartScale, ...] = ()

    @classmethod
    def of(cls, *rows: PartScale) -> Self:
        """Return the table of `rows`."""
        return cls(rows)

    def read(
        self,
        parts: Mapping[str, Any],
        unit: str,
        scale: str,
        kinds: Collection[PartKind] = KINDS,
    ) -> tuple[ScorePart, ...]:
        """Return the finite numbers in `parts` that are of `kinds`, in the kinds' order.

        `unit` and `scale` are those of the score itself.
        """
        beside_criteria = isinstance(parts.get(_CRITERIA), Mapping)
        if "other" not in kinds:
            # There may be thousands of others.
            parts = self._leave_out_others(parts, beside_criteria)
        if not parts:
            return ()
        by_kind = dict[PartKind, list[ScorePart]]((kind, []) for kind in KINDS)
        # Not by recursion: a user's scorer may nest its parts as deep as JSON goes.
        to_visit = [_Place((), self._declared, parts)]
        while to_visit:
            path, declared, value = to_visit.pop()
            if not _is_number(value):
                # Reversed, since the last one is visited first.
                for key, item in reversed(_items(value)):
                    to_visit.append(_Place((*path, key), declared.step(key), item))
                continue
            row = declared.own or _UNDECLARED
            kind = row.kind or (_usual_kind(path) if beside_criteria else "other")
            name = "/".join(path[1:] or path) if kind == "criterion" else _pointer(path)
            if row.unit is None:
                part = ScorePart(name, kind, float(value), unit, scale)
            else:
                part = ScorePart(name, kind, float(value), row.unit, row.scale)
            by_kind[kind].append(part)
        chosen: list[ScorePart] = []
        for kind in KINDS:
            if kind in kinds:
                chosen += by_kind[kind]
        return tuple(chosen)

    def _leave_out_others(
        self, parts: Mapping[str, Any], beside_criteria: bool
    ) -> dict[str, Any]:
        """Return the part of `parts` in which there may be others than `other` ones."""
        if ANY in self._ruled_steps:
            return dict(parts)
        names = set(self._ruled_steps)
        if beside_criteria:
            names |= {_CRITERIA, *_LONE}
        return {name: part for name, part in parts.items() if name in names}

    @cached_property
    def _ruled_steps(self) -> frozenset[str]:
        """The first steps of paths that are declared to be other than `other`."""
        ruled = [row for row in self.rows if row.kind in RULED]
        return frozenset(_Node.of(ruled).below)

    @cached_property
    def _declared(self) -> _Node:
        return _Node.of(self.rows)


NO_PARTS = PartTable()
"""Of a scorer that declares nothing."""


def _usual_kind(path: tuple[str, ...]) -> PartKind:
    """Return the kind of a number by its place, beside a mapping of criteria."""
    if len(path) == 1:
        return _LONE.get(path[0], "other")
    return "criterion" if len(path) == 2 and path[0] == _CRITERIA else "other"


def _pointer(path: tuple[str, ...]) -> str:
    name = "/".join(path)
    # Most steps hold neither sign, and there may be thousands of paths.
    if "~" not in name and name.count("/") < len(path):
        return name
    return "/".join(key.replace("~", "~0").replace("/", "~1") for key in path)


def _items(value: Any) -> list[tuple[str, Any]]:
    """Return what a list or mapping holds, by its step; nothing of anything else."""
    if isinstance(value, str) or value is None:
        return []
    if isinstance(value, list | tuple):
        return [(str(i), item) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return [(str(key), item) for key, item in value.items()]
    return []


def _is_number(value: Any) -> bool:
    # An integer may be beyond all floats.
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
