"""Published figures beside a run's own: whether a run repeats them, by a stated rule.

A figure is repeated where it lies inside the 95% interval of the run's mean, else the run
is off by the difference. Nothing is claimed of random and mini weights, of another judge,
nor where the published judge is none of plait's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from plait.benchmarks.protocols.differences import (
    differences_of_scorer,
    differences_of_system,
)
from plait.benchmarks.protocols.pinned import PinnedProtocol, PublishedFigure
from plait.benchmarks.results.board import MINI, Board
from plait.benchmarks.results.numbers import NumberForm, estimate_of
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn
from plait.generators.base import RANDOM
from plait.generators.system import DescribedSystem
from plait.scorers.base import Scorer, bounds
from plait.scorers.statistics.estimate import Estimate

Verdict = Literal["repeated", "off", "undecided", "not comparable"]
RULE = (
    "Repeated: the published figure lies inside the 95% interval of the mean here, which "
    "is by query alone. Else the mean is off by the difference, here minus published."
)
_OTHER_WEIGHTS = (*RANDOM, MINI)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedComparison:
    """One published figure and what the run says of it."""

    protocol: str
    system: str
    scorer: str
    """By which the figure is."""
    published: float
    """On the scale of the run's scorer where that is comparable, else on the figure's."""
    scale: str
    here: Estimate
    """The run's mean; without a value where nothing can be compared."""
    verdict: Verdict
    reason: str = ""
    """Why it is undecided or not comparable."""
    differs: tuple[str, ...] = ()
    """In what the run differs from the protocol."""
    unmet: tuple[str, ...] = ()
    """In what it differs whatever is set, or what nobody states."""
    source: str

    @property
    def off(self) -> float | None:
        """The mean here minus the published figure; None unless it is off."""
        if self.verdict != "off" or self.here.value is None:
            return None
        return self.here.value - self.published

    @property
    def text(self) -> str:
        """`repeated`, `off by -3.20`, or why neither can be said."""
        if self.off is not None:
            return f"off by {NumberForm.of(self.scale, signed=True).number(self.off)}"
        return f"{self.verdict}: {self.reason}" if self.reason else self.verdict

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        reason = {"reason": self.reason} if self.reason else {}
        return {
            "protocol": self.protocol,
            "scorer": self.scorer,
            "published": self.published,
            "scale": self.scale,
            "here": self.here.as_json("mean"),
            "verdict": self.verdict,
            "off": self.off,
            **reason,
            "differs": [*self.differs],
            "unmet": [*self.unmet],
            "source": self.source,
        }


def verdict_of(here: Estimate, published: float) -> tuple[Verdict, str]:
    """Return by the rule above whether a mean repeats a figure, and why it cannot be told.

    An end of the interval is inside it. Without a mean nothing is compared; without an
    interval nothing is decided.
    """
    if here.value is None:
        return "not comparable", here.reason or "no value here"
    if here.ci95 is None:
        return "undecided", here.reason or "no interval here"
    low, high = here.ci95
    return ("repeated" if low <= published <= high else "off"), ""


def comparisons_of(
    board: Board, rows: Sequence[Mapping[str, Any]]
) -> list[PublishedComparison]:
    """Return the comparisons of all systems with a published figure, in the rows' order.

    `rows` are those of the leaderboard. None without a pinned protocol, or with one that
    this version of plait does not have.
    """
    protocol = board.pinned.pinned if board.pinned else None
    if protocol is None:
        return []
    systems = {system.name: system for system in board.systems}
    found = []
    for row in rows:
        system = systems[row["system"]]
        for figure in protocol.figures_of(system.name):
            found.append(_comparison(board, protocol, system, figure, row))
    return found


def _comparison(
    board: Board,
    protocol: PinnedProtocol,
    system: DescribedSystem,
    figure: PublishedFigure,
    row: Mapping[str, Any],
) -> PublishedComparison:
    """Return what a run says of one figure of a system; `row` is the leaderboard's."""
    table = protocol.scorers[figure.scorer]
    by_name = {scorer.name: scorer for scorer in board.scorers}
    scorer = by_name.get(figure.scorer)
    about: dict[str, Any] = {
        "protocol": protocol.name,
        "system": system.name,
        "scorer": figure.scorer,
        "differs": tuple(_differences(board, protocol, system, scorer)),
        "unmet": tuple(unmet.text for unmet in protocol.unmet),
        "source": figure.source,
    }
    barred = _bar(board, protocol, system, scorer, figure.scorer)
    if barred or scorer is None:
        return PublishedComparison(
            published=figure.value,
            scale=table.scale,
            here=Estimate(None, reason=barred),
            verdict="not comparable",
            reason=barred,
            **about,
        )
    here = estimate_of(row["scores"][scorer.name][table.average])
    published = _on_scale(figure.value, table.scale, scorer.scale)
    verdict, reason = verdict_of(here, published)
    return PublishedComparison(
        published=published,
        scale=table.scale if bounds(scorer.scale) is None else scorer.scale,
        here=here,
        verdict=verdict,
        reason=reason,
        **about,
    )


def _differences(
    board: Board,
    protocol: PinnedProtocol,
    system: DescribedSystem,
    scorer: Scorer | None,
) -> Iterator[str]:
    """Say in what a run differs from a protocol, as far as it concerns one system."""
    if board.pinned is not None:
        yield from board.pinned.differences(protocol)
    yield from differences_of_system(protocol, system)
    if scorer is not None:
        # A scorer that is no judge has no settings of its own.
        settings = getattr(scorer, "settings", {})
        yield from differences_of_scorer(protocol, scorer.name, scorer.stages, settings)


def _bar(
    board: Board,
    protocol: PinnedProtocol,
    system: DescribedSystem,
    scorer: Scorer | None,
    named: str,
) -> str:
    """Say why nothing is claimed of a system; empty where something may be."""
    stages = [*system.stages]
    if scorer is not None:
        stages += scorer.stages
    others = {str(stage.weights) for stage in stages if stage.weights in _OTHER_WEIGHTS}
    if others:
        return f"{' and '.join(sorted(others))} weights"
    if board.pinned is not None and board.pinned.task != protocol.data.task:
        return f"data {board.pinned.task}, not {protocol.data.task}"
    if barred := protocol.scorers[named].barred:
        return barred
    if scorer is None:
        there = ", ".join(board.scorer_names) or "nothing"
        return f"judged by {there}, not by {named}"
    return ""


def _on_scale(value: float, scale: str, other: str) -> float:
    """Return a value of one scale on another; as it is where that declares no ends."""
    own = bounds(scale)
    ends = bounds(other)
    if own is None or ends is None or own == ends:
        return value
    share = (value - own[0]) / (own[1] - own[0])
    return ends[0] + share * (ends[1] - ends[0])


def published_table(comparisons: Sequence[PublishedComparison]) -> ResultTable | None:
    """Return published figures beside the run's own; None where there is none."""
    if not comparisons:
        return None
    several = len({one.scorer for one in comparisons}) > 1
    head: list[str | TableColumn] = ["system"]
    if several:
        head.append("scorer")
    head += [TableColumn("published", numeric=True), TableColumn("here", numeric=True)]
    head.append("repeated?")
    rows: list[list[str | TableCell]] = []
    for one in comparisons:
        form = NumberForm.of(one.scale)
        row: list[str | TableCell] = [one.system]
        if several:
            row.append(one.scorer)
        here = TableCell.of(one.here, form, counted=one.here.value is not None)
        rows.append([*row, form.number(one.published), here, one.text])
    first = comparisons[0]
    by = "" if several else f", by {first.scorer} ({first.scale})"
    title = f"Published figures of {first.protocol}{by}"
    notes = [RULE, *_difference_notes(comparisons), *_source_notes(comparisons)]
    return ResultTable.of(title, head, rows, notes)


def _difference_notes(comparisons: Sequence[PublishedComparison]) -> Iterator[str]:
    """Say what differs from the protocol, and of which systems where not of all."""
    systems: dict[str, dict[str, None]] = {}
    for one in comparisons:
        for text in one.differs:
            systems.setdefault(text, {})[one.system] = None
    every = {one.system for one in comparisons}
    for text, own in systems.items():
        of = "" if len(own) == len(every) else f" ({', '.join(own)})"
        yield f"Differs{of}: {text}."
    # Said once, however many systems it is true of.
    unmet = chain.from_iterable(one.unmet for one in comparisons)
    for text in dict.fromkeys(unmet):
        yield f"Cannot be set: {text}."


def _source_notes(comparisons: Sequence[PublishedComparison]) -> Iterator[str]:
    for source in dict.fromkeys(one.source for one in comparisons):
        yield f"Published in {source}."
