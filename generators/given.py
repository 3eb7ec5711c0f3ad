"""Systems whose answers are there already: the ground truth, and those of others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from plait.generators.base import Failure, Outcome, Result, Skip, StageSpec, Walk
from plait.generators.document import AnswerForm, Document, Query
from plait.generators.errors import UsageError
from plait.generators.system import History, LaterJobs, Limits, Progress, Repetition, Role


@dataclass(frozen=True, kw_only=True)
class AnswersAtHand(ABC):
    """A system without stages: its answer to a query is looked up."""

    name: str
    lvlm: str | None = None
    t2i: str | None = None

    roles: ClassVar[Mapping[Role, StageSpec]] = {}
    stages: ClassVar[tuple[StageSpec, ...]] = ()
    limits: ClassVar[Limits] = Limits(rounds=0)
    opening: ClassVar[tuple[Any, ...]] = ()
    may_leave_images_out: ClassVar[bool] = False
    beside_stages: ClassVar[Mapping[str, Any]] = {}
    facts: ClassVar[Mapping[str, Any]] = {}

    @property
    @abstractmethod
    def reads_query(self) -> bool:
        """Whether there is no answer to a row of the data that cannot be read."""

    @abstractmethod
    def look_up(self, query: Query) -> Outcome[Document]:
        """Return the answer to a query, or why there is none."""

    def answer(self, query: Query, repetition: Repetition) -> Walk[Document]:
        """Walk to the answer, which asks nothing of any stage."""
        # A walk is a generator, which this makes of a function that yields nothing.
        yield from ()
        return self.look_up(query)

    def reply(self, query: Query, repetition: Repetition) -> Walk[Document]:
        """Walk to the last of the answers to a query's turns."""
        outcome = yield from self.answer(query, repetition)
        if not isinstance(outcome, Result):
            return outcome
        return Result(outcome.value.answers[-1])

    def answer_form(self, query: Query) -> AnswerForm | None:
        """Return what the answer holds; None where there is none."""
        given = self.look_up(query)
        return given.value.form if isinstance(given, Result) else None

    def most_images(self, query: Query) -> int:
        """Return how many images the answer holds."""
        given = self.look_up(query)
        return len(given.value.images) if isinstance(given, Result) else 0

    def expected_images(self, query: Query) -> int:
        """Return the same: it is known."""
        return self.most_images(query)

    def jobs_after(self, progress: Progress) -> tuple[LaterJobs, ...]:
        """Return no jobs."""
        return ()

    def with_stages(self, change: Callable[[StageSpec], StageSpec]) -> Self:
        """Return it as it is."""
        return self

    def as_variant(self, name: str) -> Self:
        """Return it under another name, as no cell of a matrix of pairings."""
        return replace(self, name=name, lvlm=None)

    def with_history(self, history: History) -> Self:
        """Return it as it is with its own history; UsageError for any other."""
        if history == "own":
            return self
        raise UsageError(
            f"{self.name!r} has answers that are there already, before which no other "
            "history can be put; history = 'given' is for models"
        )


@dataclass(frozen=True, kw_only=True)
class GroundTruth(AnswersAtHand):
    """The data's own answers."""

    reads_query: ClassVar[bool] = True

    def look_up(self, query: Query) -> Outcome[Document]:
        """Return the reference of a query; a Skip where it has none."""
        if query.reference is None:
            return Skip("the query has no ground truth")
        return Result(query.reference)


@dataclass(frozen=True, kw_only=True)
class GivenAnswers(AnswersAtHand):
    """Answers that were made elsewhere: by another tool, or of the ground truth."""

    answers: Mapping[str, Document | Skip | Failure]
    """By the query's id, or why there is none."""

    reads_query: ClassVar[bool] = False

    def look_up(self, query: Query) -> Outcome[Document]:
        """Return what is given for a query; a Skip where nothing is."""
        given = self.answers.get(query.id, Skip("no answer is given for it"))
        return Result(given) if isinstance(given, Document) else given
