"""How a pair of answers is asked about, read and counted: the contract and the walk.

Every pair is shown to the judge in both orders (dual evaluation).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from generators.base import (
    Failure,
    Job,
    Outcome,
    Result,
    StageSpec,
    Unscored,
    Walk,
)
from generators.content import followed_up
from generators.document import Document, Draft, Request, Sample
from generators.keys import derived_seed
from scorers.features import Style
from scorers.judging.sources import Mode
from scorers.pairwise import prompts
from scorers.pairwise.games import (
    Aspect,
    FactualityScores,
    Game,
    Judgement,
    PairQuestion,
    ParsedReply,
    ReplyReading,
    Standings,
    Verdict,
)


class Pairwise(Protocol):
    """A protocol: how a pair is asked about, read, and counted.

    A protocol of one's own has a name, a mode, `requests`, `read` and `aggregate`.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """As the user names it."""
        ...

    @property
    def mode(self) -> Mode:
        """Whose constants and quirks apply."""
        ...

    def requests(
        self, sample: Sample, first: Document, second: Document
    ) -> tuple[PairQuestion, ...]:
        """Return what to ask; ValueError where it cannot be asked."""
        ...

    def read(self, reply: str, aspect: Aspect = "preference") -> ParsedReply:
        """Return what a reply says."""
        ...

    def aggregate(self, games: Iterable[Game], baseline: str | None = None) -> Standings:
        """Return every number of the protocol, with counts of what is missing."""
        ...

    @property
    def attempts(self) -> int:
        """Most times one question is asked, the first included.

        Twice in corrected mode; once officially, as Creation-MMBench does.
        """
        return 2 if self.mode == "corrected" else 1

    def repeats_after(self, reply: str) -> bool:
        """Return whether the released program repeats the question after this reply."""
        return False

    def form(self, aspect: Aspect) -> str:
        """Return how a reply must end, for follow-up questions; five levels by default."""
        if aspect == "factuality":
            return prompts.FACTUALITY_FORM
        return prompts.FORMS.get(self.name, prompts.LEVEL_FORM)

    def style_of(self, answer: Document, *, first: bool) -> Style | None:
        """Return the style of an answer, for a protocol that looks at it."""
        return None

    def judge(
        self,
        sample: Sample,
        first: Document,
        second: Document,
        chat: StageSpec,
        *,
        seed: int = 0,
        repeat: int = 0,
    ) -> Walk[Judgement]:
        """Walk to the judgement of one pair, asking the stage `chat`."""
        one, other = self.style_of(first, first=True), self.style_of(second, first=False)
        styles = None if one is None or other is None else (one, other)
        return judged(self, sample, (first, second), chat, (seed, repeat), styles)


_POSITION: dict[Aspect, int] = {"preference": 0, "factuality": 1}
"""Position in `derived_seed`: the same for both orders, so that a pair named the other
way round asks for the very same records."""


def judged(
    protocol: Pairwise,
    sample: Sample,
    answers: tuple[Document, Document],
    chat: StageSpec,
    sampling: tuple[int, int],
    styles: tuple[Style, Style] | None = None,
) -> Walk[Judgement]:
    """Ask `chat` all of `protocol`'s questions about a pair at once.

    In corrected mode an unreadable reply is followed up once, then left unscored; in
    official mode the question itself is repeated as often as the released program does,
    with another seed. A stage that decodes greedily would give the same reply and is not
    asked again. `sampling` is (seed, repeat). Every reading has its own outcome; a pair
    that cannot be asked about is a failure of the input.
    """
    try:
        questions = protocol.requests(sample, *answers)
    except ValueError as error:
        return Failure(str(error))
    replies = yield [_job(protocol, q, sample, chat, sampling) for q in questions]
    outcomes = [_outcome(protocol, q, r) for q, r in zip(questions, replies, strict=True)]
    unread = dict(enumerate(zip(questions, replies, strict=True)))
    for attempt in range(1, protocol.attempts):
        again = {
            i: following
            for i, (question, reply) in unread.items()
            if (following := _next_question(protocol, question, reply, outcomes[i], chat))
        }
        if not again:
            break
        replies = yield [
            _job(protocol, q, sample, chat, sampling, attempt) for q in again.values()
        ]
        unread = dict(zip(again, zip(again.values(), replies, strict=True), strict=True))
        outcomes = [
            _outcome(protocol, questions[i], unread[i][1]) if i in unread else outcome
            for i, outcome in enumerate(outcomes)
        ]
    readings = (
        ReplyReading(q.aspect, q.swapped, o)
        for q, o in zip(questions, outcomes, strict=True)
    )
    return Result(Judgement(tuple(readings), styles))


def most_questions(protocol: Pairwise) -> int:
    """Return an upper bound on the rounds of questions about a pair."""
    return 1 + 2 * len(_POSITION) * (protocol.attempts - 1)


def _next_question(
    protocol: Pairwise,
    question: PairQuestion,
    reply: Outcome[Draft],
    outcome: Outcome[Verdict | FactualityScores],
    chat: StageSpec,
) -> PairQuestion | None:
    """Return the question after an unreadable reply; None where nothing more is asked."""
    if not isinstance(reply, Result) or not isinstance(outcome, Unscored):
        return None
    if protocol.mode == "corrected":
        return _follow_up(protocol, question, reply.value.text, outcome.reason)
    return question if chat.seeded and protocol.repeats_after(reply.value.text) else None


def _follow_up(
    protocol: Pairwise, question: PairQuestion, reply: str, problem: str
) -> PairQuestion:
    """The conversation so far, with a turn that asks for the judgement in its form."""
    message = prompts.AGAIN.format(problem=problem, form=protocol.form(question.aspect))
    return replace(question, turns=followed_up(question.turns, reply, message))


def _job(
    protocol: Pairwise,
    question: PairQuestion,
    sample: Sample,
    chat: StageSpec,
    sampling: tuple[int, int],
    attempt: int = 0,
) -> Job:
    position = _POSITION[question.aspect] + attempt * len(_POSITION)
    seed = derived_seed(sampling[0], sample.id, sampling[1], position)
    request = Request(question.turns, seed if chat.seeded else None)

    def readable(reply: Outcome[Draft]) -> bool:
        return not isinstance(_outcome(protocol, question, reply), Unscored)

    return Job(chat, request, sample.id, f"{question.aspect} {sample.id}", readable)


def _outcome(
    protocol: Pairwise, question: PairQuestion, reply: Outcome[Draft]
) -> Outcome[Verdict | FactualityScores]:
    if not isinstance(reply, Result):
        return reply
    reading = protocol.read(reply.value.text, question.aspect)
    return Result(reading) if isinstance(reading, Verdict | FactualityScores) else reading


def both_orders(
    first: Document, second: Document
) -> tuple[tuple[bool, Document, Document], ...]:
    """Return (whether swapped, the answer shown first, the other) in both orders."""
    return (False, first, second), (True, second, first)
