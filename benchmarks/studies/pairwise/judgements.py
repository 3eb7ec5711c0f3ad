"""A judge's verdicts as lines of JSON, and the questions that have no verdict."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.results.reasons import MissingValue, counted_reasons, missing_values_csv
from cluster.records import RecordRow
from generators.base import Failure, Fault, NotApplicable, Outcome, Result, outcome_name
from generators.document import Document, key_of
from generators.errors import UsageError
from generators.files import write_whole
from scorers.features import words
from scorers.pairwise.games import FactualityScores, Judgement, ReplyReading, Verdict
from scorers.pairwise.matchup import Matchup


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One system of a pair, and its answer's size."""

    system: str
    writer: str
    """The model that wrote the text."""
    words: int
    images: int

    @classmethod
    def of(cls, system: str, writer: str, document: Document) -> "Side":
        """The side of a system that answered with `document`."""
        size, images = words(document.text), len(document.images)
        return cls(system=system, writer=writer, words=size, images=images)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The verdict in one reply of a judge on one pair, in one order of showing."""

    protocol: str
    mode: str
    wording: str
    """Digest of the prompts."""
    judge: str
    stage: str
    """Digest of the judge's model and settings."""
    question: str
    repeat: int
    """Of the answers."""
    judging: int
    """Times that the judge had been asked about the same pair before."""
    first: Side
    second: Side
    swapped: bool
    """The second was shown first."""
    aspect: str
    outcome: str
    """`done`, `unscored`, `failed`, ..."""
    said: str = ""
    """The verdict in the protocol's wording, or why there is none."""
    preference: int | None = None
    """From -2 to 2; positive is for the answer shown first."""
    marks: tuple[float, float] | None = None
    """Out of 10, of the answer shown first and of the other."""

    @property
    def for_second(self) -> int | None:
        """The preference, positive for the pair's second."""
        if self.preference is None:
            return None
        return self.preference if self.swapped else -self.preference


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The fields that all rulings of a comparison share."""

    protocol: str
    mode: str
    wording: str
    judge: str
    stage: str
    writers: Mapping[str, str]
    """The writing model by system."""


def rulings(
    series: Series, matchup: Matchup, judging: int, outcome: Outcome[Judgement]
) -> Iterator[Ruling]:
    """One ruling per reply; none where nothing was asked."""
    if not isinstance(outcome, Result) or not isinstance(matchup.pair, Result):
        return
    common = asdict(series)
    writers = common.pop("writers")
    first, second = (
        Side.of(name, writers[name], document)
        for name, document in zip(
            (matchup.first, matchup.second), matchup.pair.value, strict=True
        )
    )
    for reading in outcome.value.readings:
        yield Ruling(
            **common,
            question=matchup.sample.id,
            repeat=matchup.repeat,
            judging=judging,
            first=first,
            second=second,
            swapped=reading.swapped,
            aspect=reading.aspect,
            **_verdict_fields(reading),
        )


def _verdict_fields(reading: ReplyReading) -> dict[str, Any]:
    outcome = reading.outcome
    if not isinstance(outcome, Result):
        return {"outcome": outcome_name(outcome), "said": outcome.reason}
    match outcome.value:
        case Verdict(said, preference):
            return {"outcome": "done", "said": said, "preference": preference}
        case FactualityScores(first, second):
            return {"outcome": "done", "marks": (first, second)}


def write_rulings(rulings: Iterable[Ruling], path: Path) -> None:
    """Write one line of JSON per ruling."""
    lines = (json.dumps(asdict(ruling), ensure_ascii=False) for ruling in rulings)
    write_whole(path, "".join(f"{line}\n" for line in lines))


def read_rulings(path: Path) -> Iterator[Ruling]:
    """The rulings in a file; UsageError where it holds anything else."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            sides = {side: Side(**row[side]) for side in ("first", "second")}
            marks = row["marks"] and tuple(row["marks"])
            yield Ruling(**{**row, **sides, "marks": marks})
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path}, line {number}, is not a ruling: {error}") from None


Judged = Sequence[tuple[Matchup, Outcome[Judgement]]]
"""Every pair of documents with the outcome of its judgement."""

_UNASKED = {Fault.BAD_INPUT, Fault.ENDPOINT, Fault.BUDGET, Fault.NOT_LOADED, Fault.UNREAD}
"""Faults of requests that did not reach a judge."""


@dataclass(frozen=True, slots=True)
class QuestionsAsked:
    """Questions that one command asked a judge."""

    judged: int
    """With a reply, a refusal, or a failure of the judge itself."""
    unasked: int
    """That did not reach a judge."""

    @classmethod
    def between(
        cls, before: Mapping[str, RecordRow], after: Mapping[str, RecordRow]
    ) -> "QuestionsAsked":
        """By the judge's records before and after the command."""
        new = [r for key, r in after.items() if key not in before or before[key].at != r.at]
        unasked = sum(row.fault in _UNASKED for row in new)
        return cls(len(new) - unasked, unasked)

    def __str__(self) -> str:
        lost = f", {self.unasked:,} could not be asked" if self.unasked else ""
        return f"{self.judged:,} judgements asked{lost}"


def anything_read(judged: Judged) -> bool:
    """True where any reply could be read."""
    return any(
        isinstance(reading.outcome, Result)
        for _, outcome in judged
        if isinstance(outcome, Result)
        for reading in outcome.value.readings
    )


def reasons_of(judged: Judged) -> dict[str, list[dict[str, Any]]]:
    """By pair, why it was not judged, and why replies failed or cannot be read.

    A question that does not apply in a protocol has no missing value there.
    """
    pairs = list(dict.fromkeys(_pair(matchup) for matchup, _ in judged))
    counted = counted_reasons(_missing_values(judged), pairs)
    return {pair: why for pair, why in counted.items() if why}


def failures_of(judged: Judged) -> str:
    """The same one by one, as CSV; the column `system` holds the pair."""
    pairs = list(dict.fromkeys(_pair(matchup) for matchup, _ in judged))
    return missing_values_csv(_missing_values(judged), pairs, {})


def _pair(matchup: Matchup) -> str:
    return f"{matchup.second} against {matchup.first}"


def _missing_values(judged: Judged) -> Iterator[MissingValue]:
    """The judgements, or their readings, that have no verdict."""
    for matchup, judgement in judged:
        for outcome in _readings(judgement):
            if not isinstance(outcome, Result | NotApplicable):
                yield MissingValue(
                    system=_pair(matchup),
                    query=key_of(matchup.sample),
                    category=matchup.sample.category,
                    field=matchup.sample.field,
                    repeat=matchup.repeat + 1,
                    scorer="",
                    outcome=outcome_name(outcome),
                    fault=outcome.fault.value if isinstance(outcome, Failure) else "",
                    reason=outcome.reason,
                )


def _readings(judgement: Outcome[Judgement]) -> Iterable[Outcome[Any]]:
    if not isinstance(judgement, Result):
        return [judgement]
    return [reading.outcome for reading in judgement.value.readings]
