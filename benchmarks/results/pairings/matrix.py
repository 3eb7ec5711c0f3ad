"""Which systems of a run form a matrix of LVLMs and text-to-image models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.results.board import composition_of
from generators.system import System


@dataclass(frozen=True, kw_only=True)
class PairingMatrix:
    """LVLMs x text-to-image models under one composition protocol; every cell is there."""

    protocol: str
    writers: tuple[str, ...]
    artists: tuple[str, ...]
    systems: tuple[tuple[System, ...], ...]
    """By LVLM and text-to-image model."""
    left_aside: tuple[str, ...] = ()
    """Systems of the protocol that are not in the largest full matrix."""

    @property
    def cells(self) -> list[System]:
        """All systems, row by row."""
        return [system for row in self.systems for system in row]

    @property
    def is_crossed(self) -> bool:
        """Whether there are several of both, so that there is an interaction."""
        return len(self.writers) > 1 < len(self.artists)

    @property
    def shape(self) -> str:
        """`2 LVLMs x 1 text-to-image model`."""
        writers, artists = len(self.writers), len(self.artists)
        return (
            f"{writers} {'LVLM' if writers == 1 else 'LVLMs'} x {artists} "
            f"text-to-image {'model' if artists == 1 else 'models'}"
        )


def matrices_of(systems: Sequence[System]) -> list[PairingMatrix]:
    """The largest full matrix of each composition protocol, in the order of the systems.

    Systems that compose nothing (natives, controls, text alone) are none of it. Of a matrix
    with holes the largest part without holes is taken: one with several rows and columns
    before one with a single row or column, then the one with most cells, then the one that
    is named first. A protocol with a single cell has none.
    """
    found = []
    for protocol, cells in _by_protocol(systems).items():
        matrix = _largest(protocol, cells)
        if matrix is not None:
            found.append(matrix)
    return found


_Cells = dict[tuple[str, str], System]


def _by_protocol(systems: Iterable[System]) -> dict[str, _Cells]:
    """Composed systems by protocol, LVLM and text-to-image model."""
    protocols: dict[str, _Cells] = {}
    for system in systems:
        writer, artist, protocol = composition_of(system)
        if writer and artist and protocol:
            protocols.setdefault(protocol, {})[writer, artist] = system
    return protocols


def _largest(protocol: str, cells: _Cells) -> PairingMatrix | None:
    best = max(_full(cells), key=_rank)
    writers, artists = best
    if len(writers) * len(artists) < 2:
        return None
    chosen = {(w, a) for w in writers for a in artists}
    return PairingMatrix(
        protocol=protocol,
        writers=writers,
        artists=artists,
        systems=tuple(tuple(cells[w, a] for a in artists) for w in writers),
        left_aside=tuple(s.name for pair, s in cells.items() if pair not in chosen),
    )


_Sides = tuple[tuple[str, ...], tuple[str, ...]]


def _full(cells: _Cells) -> list[_Sides]:
    """Every full matrix that no row or column can be added to.

    The columns of each are the columns that some rows share.
    """
    rows: dict[str, frozenset[str]] = {}
    for writer, artist in cells:
        rows[writer] = rows.get(writer, frozenset()) | {artist}
    shared: dict[frozenset[str], None] = {}
    for columns in rows.values():
        for known in [columns, *(columns & other for other in shared)]:
            shared.setdefault(known)
    order = list(dict.fromkeys(artist for _, artist in cells))
    return [
        (
            tuple(w for w, own in rows.items() if columns <= own),
            tuple(a for a in order if a in columns),
        )
        for columns in shared
        if columns
    ]


def _rank(sides: _Sides) -> tuple[bool, int]:
    writers, artists = map(len, sides)
    return writers > 1 < artists, writers * artists
