"""Rulings of a judgement: what each of its replies says of two answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from plait.benchmarks.results.files.rulings import Ruling, Side
from plait.benchmarks.results.files.writing import job_row
from plait.cluster.store import Store
from plait.generators.base import Failure, Outcome, Result, outcome_name
from plait.generators.document import Document
from plait.generators.system import DescribedSystem
from plait.pipelines.systems import parts_of
from plait.scorers.features import words
from plait.scorers.pairwise.games import Judgement, Verdict
from plait.scorers.pairwise.matchup import Matchup


def lvlm_of(system: DescribedSystem) -> str:
    """Return the model that writes a system's text."""
    return parts_of(system.lvlm or system.name).lvlm


def side_of(system: str, writer: str, document: Document) -> Side:
    """Return the side of a system that answered with `document`."""
    size = words(document.text)
    images = len(document.images)
    return Side(system=system, writer=writer, words=size, images=images)


def rulings(
    series: Mapping[str, Any],
    matchup: Matchup,
    judging: int,
    outcome: Outcome[Judgement],
    store: Store,
) -> Iterator[Ruling]:
    """Yield one ruling per reply; none where nothing was asked.

    `series` holds what all rulings of a comparison share, and the `writers` by system;
    `store` holds the records of the judge.
    """
    if not isinstance(outcome, Result) or not isinstance(matchup.pair, Result):
        return
    shared = {**series}
    writers = shared.pop("writers")
    of_first, of_second = matchup.pair.value
    first = side_of(matchup.first, writers[matchup.first], of_first)
    second = side_of(matchup.second, writers[matchup.second], of_second)
    for reading in outcome.value.readings:
        found = reading.outcome
        said = dict[str, Any]()
        if not isinstance(found, Result):
            said["said"] = found.reason
            said["fault"] = found.fault.value if isinstance(found, Failure) else ""
        elif isinstance(verdict := found.value, Verdict):
            said |= {"said": verdict.word, "preference": verdict.preference}
        else:
            said["marks"] = verdict.first, verdict.second
        yield Ruling(
            **shared,
            question=matchup.query.id,
            repeat=matchup.repeat,
            judging=judging,
            first=first,
            second=second,
            swapped=reading.swapped,
            aspect=reading.aspect,
            outcome=outcome_name(reading.outcome),
            jobs=tuple(job_row(job, store) for job in reading.jobs),
            **said,
        )
