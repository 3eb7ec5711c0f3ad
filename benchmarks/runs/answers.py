"""What systems made of one query, as values that a program or a notebook shows.

What failed, was skipped or is not made yet is there with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from plait.benchmarks.results.board import outcome_of, score_value
from plait.benchmarks.results.notebook import (
    NotebookDocument,
    beside,
    box,
    content_html,
    heading,
    missing_note,
    query_html,
)
from plait.benchmarks.wording import quantity
from plait.cluster.store import BlobReader
from plait.generators.base import Outcome, OutcomeName, Result, Unread
from plait.generators.content import text_with_marks
from plait.generators.document import Document, Malformed, Query, Score
from plait.generators.errors import PlaitError
from plait.generators.system import Prompter

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage


class NoDocument(PlaitError, RuntimeError):
    """A system failed on a query or cannot take it; the message says why.

    Examples:
        >>> truth = plait.system("gt")
        >>> try:
        ...     truth("Draw a cat.")
        ... except plait.NoDocument as error:
        ...     print(error)
        gt: skipped: the query has no ground truth
    """


@dataclass(frozen=True, kw_only=True)
class TaskQuery:
    """One query of a run, with the wording that its systems were asked in.

    Examples:
        >>> run = plait.open_run("runs/quickstart")
        >>> print(run.queries["MSR-0003"])
        MSR-0003
        user: <image>
        How many squares are there?
    """

    id: str
    """The query's id; of a malformed row also its number, since ids may repeat."""
    sample: Query | Malformed
    prompt: Prompter = field(repr=False)
    read: BlobReader = field(repr=False, compare=False)

    def __str__(self) -> str:
        if isinstance(self.sample, Malformed):
            return f"{self.id}\nmalformed: {self.sample.reason}"
        lines = [self.id]
        for turn in self.sample.turns:
            lines.append(f"{turn.role}: {text_with_marks(turn.content)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return box(heading(self.id), query_html(self.sample, self.read))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerVerdict:
    """What a scorer made of a document.

    Examples:
        >>> run = plait.open_run("runs/quickstart")
        >>> verdict = run.answer("SA-0001", "anole").scores["truth:match"]
        >>> verdict.outcome, round(verdict.value, 2), verdict.reason
        ('scored', 96.97, '')
        >>> print(run.answer("MSR-0003", "gt").scores["clipscore"])
        not applicable: the query asks for no images
    """

    outcome: str
    """`scored`, `unscored`, `not_applicable`, `failed`, `skipped` or `missing`."""
    value: float | None = None
    """On the scorer's scale; None unless it is scored."""
    reason: str = ""
    """Why there is no value."""
    fault: str = ""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """What the value was made of; of one that cannot be read, what of it can."""

    @classmethod
    def of(cls, outcome: Outcome[Score] | None) -> "ScorerVerdict":
        """Return the verdict in an outcome; None is that of a score not yet made."""
        name, reason, fault = outcome_of(outcome)
        parts: Mapping[str, Any] = {}
        if isinstance(outcome, Result):
            name = OutcomeName.SCORED
            parts = outcome.value.parts
        elif isinstance(outcome, Unread):
            parts = outcome.parts
        value = score_value(outcome)
        return cls(outcome=str(name), value=value, reason=reason, fault=fault, parts=parts)

    def __str__(self) -> str:
        return f"{self.value:.4g}" if self.value is not None else _why(self)


@dataclass(frozen=True, kw_only=True)
class QueryAnswer:
    """What one system made of one query.

    Examples:
        >>> answer = plait.open_run("runs/quickstart").answer("SA-0001", "anole")
        >>> answer.outcome
        'done'
        >>> print(answer.text)
        Now there is a large green star at the top left, ...
        >>> answer.images[0].size
        (64, 64)
        >>> round(answer.scores["clipscore"].value, 3)
        1.863
    """

    system: str
    query: TaskQuery
    repeat: int
    """Counted from 1."""
    outcome: str
    """`done`, `failed`, `skipped` or `missing`."""
    document: NotebookDocument | None = None
    """None unless it is done."""
    reason: str = ""
    """Why there is no document."""
    fault: str = ""
    scores: Mapping[str, ScorerVerdict] = field(default_factory=dict)
    """By scorer; none where there is no document."""
    notes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the stages noted (exact prompts, truncation), by the stage's name."""

    @classmethod
    def of(
        cls,
        system: str,
        query: TaskQuery,
        document: Outcome[Document] | None,
        repeat: int = 1,
        scores: Mapping[str, Outcome[Score] | None] = MappingProxyType({}),
    ) -> "QueryAnswer":
        """Return the answer in an outcome, with its scores; None is one not made yet."""
        outcome, reason, fault = outcome_of(document)
        shown = None
        if isinstance(document, Result):
            shown = NotebookDocument.showing(document.value, query.read)
        return cls(
            system=system,
            query=query,
            repeat=repeat,
            outcome=str(outcome),
            document=shown,
            reason=reason,
            fault=fault,
            scores={name: ScorerVerdict.of(score) for name, score in scores.items()},
            notes=getattr(document, "notes", {}),
        )

    @property
    def text(self) -> str:
        """The text, one segment a line; NoDocument where there is no answer."""
        return self._document.text

    @property
    def images(self) -> "list[PILImage]":
        """The images, decoded, in order; NoDocument where there is no answer.

        DamagedPart, StoreError, OSError or ImageError for one that cannot be read.
        """
        return self._document.pictures

    @property
    def _document(self) -> NotebookDocument:
        if self.document is None:
            raise NoDocument(
                f"{self.query.id} has no answer of {self.system}: {_why(self)}"
            )
        return self.document

    def __str__(self) -> str:
        content = text_with_marks(self.document.segments) if self.document else _why(self)
        return "\n".join([self._name, content, *self._score_lines])

    @property
    def _score_lines(self) -> list[str]:
        return [f"{name}: {verdict}" for name, verdict in self.scores.items()]

    @property
    def _name(self) -> str:
        return f"{self.system}, repeat {self.repeat}" if self.repeat > 1 else self.system

    def _repr_html_(self) -> str:
        return box(self.query._repr_html_(), self.html)

    @property
    def html(self) -> str:
        """The answer without its query."""
        name = heading(self._name)
        if self.document is None:
            return name + missing_note(_why(self))
        content = content_html(self.document.segments, self.document.read)
        scores = [heading(line) for line in self._score_lines]
        return "".join([name, content, *scores])


def _why(answer: ScorerVerdict | QueryAnswer) -> str:
    """`failed (worker died): the reason`."""
    fault = f" ({answer.fault})" if answer.fault else ""
    return f"{answer.outcome.replace('_', ' ')}{fault}: {answer.reason}"


@dataclass(frozen=True, eq=False, repr=False)
class QueryView:
    """One query and what systems answered to it: HTML in a notebook, text where printed.

    Examples:
        >>> view = plait.open_run("runs/quickstart").show("SA-0001", systems=["gt"])
        >>> print(view)
        SA-0001
        user: <image>
        There is a large blue star at the top left, ...
        gt
        Now there is a large blue star at the top left, ...
        <image>
        clipscore: 1.831
        truth:match: 100
        >>> view._repr_html_().count("<img")    # what a notebook shows
        2
    """

    query: TaskQuery
    answers: Sequence[QueryAnswer]

    def __repr__(self) -> str:
        return f"QueryView({self.query.id!r}: {quantity(len(self.answers), 'answer')})"

    def __str__(self) -> str:
        parts = [str(self.query)]
        for answer in self.answers:
            parts.append(str(answer))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        columns = [answer.html for answer in self.answers]
        return self.query._repr_html_() + beside(*columns)
