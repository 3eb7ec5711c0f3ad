"""Asking a chat stage questions, and again where a reply cannot be read.

Judges of one answer and judges of two ask in the same way: all questions at once, then in
further attempts those whose replies could not be read. What they ask, how a reply is read
and what is asked after it is their own: an `Interview`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from plait.generators.base import Job, Outcome, Result
from plait.generators.document import Draft

Q = TypeVar("Q")
X = TypeVar("X")


class Interview(Protocol[Q, X]):
    """How a judge asks, reads, and asks again."""

    def job(self, question: Q, attempt: int) -> Job:
        """Return the request that puts a question; attempts are counted from 0."""

    def read(self, question: Q, reply: Outcome[Draft]) -> X:
        """Return what a reply says, or what became of the request."""

    def ask_again(self, question: Q, reply: Result[Draft], reading: X) -> Q | None:
        """Return what is asked after a reply; None where nothing more is."""


class Asked(NamedTuple, Generic[X]):
    """What has become of one question."""

    reading: X
    """Of the last reply."""
    reply: Outcome[Draft]
    """The last one."""
    jobs: tuple[Job, ...]
    """What was asked for it, the last time last."""


def ask(
    interview: Interview[Q, X],
    questions: Sequence[Q],
    *,
    attempts: int,
    all_needed: bool = False,
) -> Generator[list[Job], list[Outcome[Any]], list[Asked[X]]]:
    """Walk to what became of each of `questions`, in their order.

    With `all_needed`, nothing is asked again once one of them has no reply.
    """
    asked: dict[int, Asked[X]] = {}
    open_questions = dict(enumerate(questions))
    for attempt in range(attempts):
        if not open_questions:
            break
        jobs = [interview.job(question, attempt) for question in open_questions.values()]
        replies = yield jobs
        unread: dict[int, Q] = {}
        for (i, question), job, reply in zip(
            open_questions.items(), jobs, replies, strict=True
        ):
            reading = interview.read(question, reply)
            # Every attempt has a record, and is shown with what came of it.
            earlier = asked[i].jobs if i in asked else ()
            asked[i] = Asked(reading, reply, (*earlier, job))
            if isinstance(reply, Result):
                following = interview.ask_again(question, reply, reading)
                if following is not None:
                    unread[i] = following
        # Asking the others again would cost money for a score that cannot be made any more.
        if all_needed and not all(isinstance(reply, Result) for reply in replies):
            break
        open_questions = unread
    return [asked[i] for i in range(len(questions))]
