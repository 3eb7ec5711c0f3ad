"""What a judge said of two answers, one reply a line of JSON, as `plait bias` reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from generators.base import Outcome, Result, outcome_name
from generators.buckets import AnyPath
from generators.document import Document
from generators.errors import UsageError
from generators.files import write_whole
from generators.system import System
from pipelines.systems import parts_of
from scorers.features import words
from scorers.pairwise.games import Judgement, Verdict
from scorers.pairwise.matchup import Matchup

FOLDER = "compare"
"""Inside a run directory: judgements by protocol, each a store of its own."""
RULINGS = "judgements-*.jsonl"


def lvlm_of(system: System) -> str:
    """Return the model that writes a system's text."""
    return parts_of(system.lvlm or system.name).lvlm


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One system of a pair, and its answer's size."""

    system: str
    writer: str
    """The model that wrote the text, so named in the file."""
    words: int
    images: int

    @classmethod
    def of(cls, system: str, writer: str, document: Document) -> "Side":
        """Return the side of a system that answered with `document`."""
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


def rulings(
    series: Mapping[str, Any], matchup: Matchup, judging: int, outcome: Outcome[Judgement]
) -> Iterator[Ruling]:
    """Yield one ruling per reply; none where nothing was asked.

    `series` holds what all rulings of a comparison share, and the `writers` by system.
    """
    if not isinstance(outcome, Result) or not isinstance(matchup.pair, Result):
        return
    shared = {name: value for name, value in series.items() if name != "writers"}
    named = zip((matchup.first, matchup.second), matchup.pair.value, strict=True)
    first, second = (Side.of(n, series["writers"][n], document) for n, document in named)
    for reading in outcome.value.readings:
        found, said = reading.outcome, dict[str, Any]()
        if not isinstance(found, Result):
            said["said"] = found.reason
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
            **said,
        )


def write_rulings(rulings: Iterable[Ruling], path: AnyPath) -> None:
    """Write one line of JSON per ruling."""
    lines = (json.dumps(asdict(ruling), ensure_ascii=False) for ruling in rulings)
    write_whole(path, "".join(f"{line}\n" for line in lines))


def read_rulings(path: AnyPath) -> Iterator[Ruling]:
    """Yield the rulings in a file; UsageError where it holds anything else."""
    # What judges say may hold other characters at which `str.splitlines` ends a line.
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
            sides = {side: Side(**row[side]) for side in ("first", "second")}
            marks = row["marks"] and tuple(row["marks"])
            yield Ruling(**{**row, **sides, "marks": marks})
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path}, line {number}, is not a ruling: {error}") from None
