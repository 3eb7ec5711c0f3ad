"""Which systems of a run form a matrix of LVLMs and text-to-image models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import NamedTuple

from plait.generators.catalogue import planners
from plait.generators.system import DescribedSystem
from plait.pipelines.systems import parts_of

_Cells = dict[tuple[str, str], DescribedSystem]
"""By LVLM and text-to-image model."""


class _Sides(NamedTuple):
    """The rows and columns of a matrix."""

    lvlms: tuple[str, ...]
    t2is: tuple[str, ...]


class Composition(NamedTuple):
    """Of what a system is composed; None for what it has not."""

    lvlm: str | None
    t2i: str | None
    protocol: str | None


@dataclass(frozen=True, kw_only=True)
class PairingMatrix:
    """LVLMs x text-to-image models under one composition protocol; every cell is there."""

    protocol: str
    lvlms: tuple[str, ...]
    t2is: tuple[str, ...]
    systems: tuple[tuple[DescribedSystem, ...], ...]
    """By LVLM and text-to-image model."""
    left_aside: tuple[str, ...] = ()
    """Systems of the protocol that are not in the largest full matrix."""

    @property
    def cells(self) -> list[DescribedSystem]:
        """All systems, row by row."""
        return [*chain.from_iterable(self.systems)]

    @property
    def names(self) -> list[str]:
        """The names of all systems, row by row."""
        return [system.name for system in self.cells]

    @property
    def is_crossed(self) -> bool:
        """Whether there are several of both, so that there is an interaction."""
        return len(self.lvlms) > 1 < len(self.t2is)

    @property
    def shape(self) -> str:
        """`2 LVLMs x 1 text-to-image model`."""
        lvlms = len(self.lvlms)
        t2is = len(self.t2is)
        return (
            f"{lvlms} {'LVLM' if lvlms == 1 else 'LVLMs'} x {t2is} "
            f"text-to-image {'model' if t2is == 1 else 'models'}"
        )


def composition_of(system: DescribedSystem) -> Composition:
    """Return of what a system is composed, and by which protocol."""
    if not system.lvlm:
        alone = system.t2i and parts_of(system.name).protocol
        return Composition(None, system.t2i, alone)
    # A name without a protocol has that of MMIE; a planner is a protocol of its own.
    usual = "mmie" if system.t2i else None
    if system.lvlm in planners():
        usual = system.lvlm
    protocol = parts_of(system.name).protocol or usual
    t2i = None if protocol == "text" else system.t2i
    return Composition(system.lvlm.removesuffix(f"@{protocol}"), t2i, protocol)


def matrices_of(systems: Sequence[DescribedSystem]) -> list[PairingMatrix]:
    """Return the largest full matrix of each protocol, in the order of the systems.

    Systems that compose nothing (natives, controls, text alone) are none of it. Of a matrix
    with holes the largest part without holes is taken: one with several rows and columns
    before one with a single row or column, then the one with most cells, then the one that
    is named first. A protocol with a single cell has none.
    """
    protocols: dict[str, _Cells] = {}
    for system in systems:
        lvlm, t2i, protocol = composition_of(system)
        if lvlm and t2i and protocol:
            protocols.setdefault(protocol, {})[lvlm, t2i] = system
    matrices = []
    for protocol, cells in protocols.items():
        matrix = _largest(protocol, cells)
        if len(matrix.cells) > 1:
            matrices.append(matrix)
    return matrices


def _largest(protocol: str, cells: _Cells) -> PairingMatrix:
    """Return the largest full matrix of a protocol; of equal ones that named first."""

    def rank(sides: _Sides) -> tuple[bool, int]:
        rows = len(sides.lvlms)
        columns = len(sides.t2is)
        return rows > 1 < columns, rows * columns

    # Of equals `max` takes the first.
    largest = max(_full(cells), key=rank)
    rows = []
    for lvlm in largest.lvlms:
        rows.append(tuple(cells[lvlm, t2i] for t2i in largest.t2is))
    chosen = set(product(largest.lvlms, largest.t2is))
    left_aside = []
    for pair, system in cells.items():
        if pair not in chosen:
            left_aside.append(system.name)
    return PairingMatrix(
        protocol=protocol,
        lvlms=largest.lvlms,
        t2is=largest.t2is,
        systems=tuple(rows),
        left_aside=tuple(left_aside),
    )


def _full(cells: _Cells) -> list[_Sides]:
    """Return every full matrix that no row or column can be added to.

    The columns of each are the columns that some rows share.
    """
    rows: dict[str, frozenset[str]] = {}
    for lvlm, t2i in cells:
        rows[lvlm] = rows.get(lvlm, frozenset()) | {t2i}
    # All intersections of rows, as a set in the order in which they were found. With each
    # row, those of it with all that are there already: so none is missed.
    shared: dict[frozenset[str], None] = {}
    for columns in rows.values():
        # A list, as `shared` grows below.
        parts = [columns & other for other in shared]
        for part in (columns, *parts):
            shared.setdefault(part)
    order = dict.fromkeys(t2i for _, t2i in cells)
    full: list[_Sides] = []
    for columns in shared:
        if columns:
            lvlms = [lvlm for lvlm, own in rows.items() if columns <= own]
            t2is = [t2i for t2i in order if t2i in columns]
            full.append(_Sides(tuple(lvlms), tuple(t2is)))
    return full
