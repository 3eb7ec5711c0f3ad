"""Judgements as lines of JSON: one line per reply, with what it was about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.plan import outcome_name
from generators.base import Outcome, Result
from generators.document import Document
from generators.files import write_whole
from generators.names import UsageError
from scorers.features import words
from scorers.pairwise.games import Judgement, Marks, ReplyReading, Verdict
from scorers.pairwise.matchup import Matchup


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One system of a pair, and its answer's size."""

    system: str
    writer: str
    """The model that wrote the text."""
    words: int
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What one reply of a judge said of one pair, in one order of showing."""

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
    """How often the judge had been asked about the same before."""
    first: Side
    second: Side
    swapped: bool
    """Whether the second was shown first."""
    aspect: str
    outcome: str
    """`done`, `unscored`, `failed`, ..."""
    said: str = ""
    """The verdict in the protocol's words, or why there is none."""
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
    """What is the same for all rulings of a comparison."""

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
    sides = [
        _side(name, series.writers[name], document)
        for name, document in zip(
            (matchup.first, matchup.second), matchup.pair.value, strict=True
        )
    ]
    for reading in outcome.value.readings:
        yield Ruling(
            protocol=series.protocol,
            mode=series.mode,
            wording=series.wording,
            judge=series.judge,
            stage=series.stage,
            question=matchup.sample.id,
            repeat=matchup.repeat,
            judging=judging,
            first=sides[0],
            second=sides[1],
            swapped=reading.swapped,
            aspect=reading.aspect,
            **_said(reading),
        )


def _side(system: str, writer: str, document: Document) -> Side:
    return Side(
        system=system,
        writer=writer,
        words=words(document.text),
        images=len(document.images),
    )


def _said(reading: ReplyReading) -> dict[str, Any]:
    found = reading.outcome
    if not isinstance(found, Result):
        return {"outcome": outcome_name(found), "said": found.reason}
    match found.value:
        case Verdict(said, preference):
            return {"outcome": "done", "said": said, "preference": preference}
        case Marks(first, second):
            return {"outcome": "done", "marks": (first, second)}


def write_rulings(found: Iterable[Ruling], path: Path) -> None:
    """Write one line of JSON per ruling."""
    lines = (json.dumps(asdict(ruling), ensure_ascii=False) for ruling in found)
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
            raise UsageError(f"{path}, line {number}, is no ruling: {error}") from None
