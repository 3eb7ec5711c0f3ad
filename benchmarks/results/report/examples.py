"""The answers that the first screen of the page shows: those that a scorer sets apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from urllib.parse import quote

from benchmarks.results.board import Board, score_value
from benchmarks.results.numbers import NumberForm
from benchmarks.results.report.entries import ReportEntry
from benchmarks.results.report.pictures import Read, web_picture
from benchmarks.results.report.plots import Disagreement
from cluster.plan import Evaluation
from generators.base import Result
from generators.document import Content, Image, Sample
from scorers.base import Scorer

_EXAMPLES, _IMAGES, _SIDE = 2, 3, 256
"""Queries shown, images of each part, and the longer side of an image in pixels."""


@dataclass(frozen=True, slots=True)
class ExamplePart:
    """The question or an answer: text or the data URL of an image, in order."""

    heading: str
    content: Sequence[tuple[str, str]]
    scores: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Example:
    """A query with one or two of its answers."""

    query: str
    category: str
    link: str
    parts: Sequence[ExamplePart]


@dataclass(frozen=True, slots=True)
class Examples:
    """A few of them, and how they were chosen."""

    choice: str
    shown: Sequence[Example]


def examples_of(
    board: Board,
    entries: Sequence[ReportEntry],
    disagreements: Mapping[str, Sequence[Disagreement]],
    read: Read,
) -> Examples:
    """Return the widest disagreements of the first scorer that has some.

    Where there are none, the first answers of the first systems. An image that cannot be
    read is shown as the reason.
    """
    by_key = {entry.anchor: entry for entry in entries}
    for scorer, widest in disagreements.items():
        chosen = [(by_key[d.query], [d.best[0], d.worst[0]]) for d in widest]
        if chosen:
            choice = (
                f"the best and the worst answer where {scorer} sets them furthest apart"
            )
            break
    else:
        names = [s.name for s in board.systems]
        chosen, choice = [(entry, names) for entry in entries], ""
    examples = (_example(board, entry, systems, read) for entry, systems in chosen)
    answered = (example for example in examples if example is not None)
    return Examples(choice, list(islice(answered, _EXAMPLES)))


def _example(
    board: Board, entry: ReportEntry, systems: Sequence[str], read: Read
) -> Example | None:
    """The first two answers by one of `systems`; None where there is none."""
    found = [a for a in entry.answers if a is not None and isinstance(a.document, Result)]
    answers = [a for name in systems for a in found if a.system == name][:2]
    if not answers or not isinstance(entry.sample, Sample):
        return None
    parts = [ExamplePart("Question", _shown(entry.sample.question, read))]
    parts += [_answer(answer, board.scorers, read) for answer in answers]
    link = f"#{quote(entry.anchor, safe='')}"
    return Example(entry.anchor, entry.sample.category, link, parts)


def _answer(answer: Evaluation, scorers: Sequence[Scorer], read: Read) -> ExamplePart:
    values = {name: score_value(score) for name, score in answer.scores.items()}
    scores = [
        (s.name, NumberForm.of(s.scale).number(values[s.name]))
        for s in scorers
        if values.get(s.name) is not None
    ]
    assert isinstance(answer.document, Result)
    return ExamplePart(answer.system, _shown(answer.document.value.segments, read), scores)


def _shown(content: Content, read: Read) -> list[tuple[str, str]]:
    """Texts, and images as data URLs, up to the first image too many."""
    shown, images = [], 0
    for part in content:
        if not isinstance(part, Image):
            shown.append((part.text, ""))
            continue
        images += 1
        if images > _IMAGES:
            return [*shown, ("...", "")]
        try:
            shown.append(("", web_picture(read(part), _SIDE).url))
        except Exception as error:
            # Whatever a store or a file system raises, the page shows the reason.
            shown.append((f"The image cannot be read: {error}.", ""))
    return shown
