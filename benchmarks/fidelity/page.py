"""The page of `plait bench fidelity`: one file, opened from disk without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.fidelity.comparison import DocumentPair, WayFidelity
from benchmarks.fidelity.diffs import DifferenceCard, card
from benchmarks.fidelity.report import FidelityReport
from benchmarks.fidelity.tables import tables_of
from benchmarks.provenance import provenance_facts
from benchmarks.results.templates import REPORT, page_environment, sources

WORST = 6
"""Pairs shown of each way."""


@dataclass(frozen=True, slots=True)
class WorstPairs:
    """The worst pairs of one way, against the reference or against itself."""

    title: str
    remark: str
    cards: tuple[DifferenceCard, ...]


def page_of(report: FidelityReport, worst: int = WORST) -> str:
    """The HTML, with the style of a run's report; it loads nothing."""
    environment = page_environment("benchmarks.fidelity", REPORT)
    return environment.get_template("fidelity.html.j2").render(
        report=report,
        tables=tables_of(report),
        groups=worst_pairs(report, worst),
        facts=facts_of(report.about),
        style=sources(environment, "report.css", "fidelity.css"),
    )


def facts_of(about: Mapping[str, Any]) -> dict[str, str]:
    """What a reader needs to repeat the measurement."""
    facts = {
        "command": " ".join(map(str, about.get("command", ()))),
        "finished": str(about.get("finished", "")),
        **provenance_facts(about),
        "device": str(about.get("device", "")),
    }
    return {name: fact for name, fact in facts.items() if fact}


def worst_pairs(report: FidelityReport, most: int) -> list[WorstPairs]:
    """The worst pairs of every way that differs, from the reference and from itself."""
    groups = []
    for way in report.ways:
        if way is not report.reference and not way.answers.problem:
            labels = (f"{report.reference.label} (reference)", way.label)
            groups.append(_group(way.label, way.pairs, labels, most))
        if any(pair.distance > 0 for pair in way.repeated):
            groups.append(_itself(way, most))
    return groups


def _itself(way: WayFidelity, most: int) -> WorstPairs:
    labels = (f"{way.label}, first run", f"{way.label}, run again")
    return _group(f"{way.label}, run again with the same seeds", way.repeated, labels, most)


def _group(
    title: str, pairs: Sequence[DocumentPair], labels: tuple[str, str], most: int
) -> WorstPairs:
    different = [pair for pair in pairs if pair.distance > 0]
    worst = sorted(different, key=lambda pair: -pair.distance)[:most]
    remark = f"{len(different):,} of {len(pairs):,} answers differ"
    if len(worst) < len(different):
        remark += f"; the {len(worst)} worst are shown"
    cards = tuple(card(pair, labels) for pair in worst)
    return WorstPairs(title, f"{remark}.", cards)
