"""From a pair of answers to a judgement: write the requests, ask, read the replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from generators.base import Failure, Job, Outcome, Result, StageSpec, Unscored, Walk
from generators.content import followed_up
from generators.document import Document, Draft, Request, Sample
from generators.keys import derived_seed
from scorers.features import Mode, Style
from scorers.pairwise import wording
from scorers.pairwise.protocol import (
    Ask,
    Aspect,
    Judgement,
    Marks,
    Pairwise,
    Reading,
    Verdict,
)

_POSITION: dict[Aspect, int] = {"preference": 0, "factuality": 1}
"""Position in `derived_seed`: the same for both orders, so that a pair named the other
way round asks for the very same records."""


def judged(
    protocol: Pairwise,
    sample: Sample,
    answers: tuple[Document, Document],
    chat: StageSpec,
    drawing: tuple[int, int],
    styles: tuple[Style, Style] | None = None,
) -> Walk[Judgement]:
    """Ask `chat` everything `protocol` wants to know of a pair, all at once.

    In corrected mode what cannot be read is asked for once more, then left unscored.
    `drawing` is (seed, repeat). Every reading keeps its own outcome; a pair that cannot
    be asked about is a failure of the input.
    """
    try:
        asks = protocol.requests(sample, *answers)
    except ValueError as error:
        return Failure(str(error))
    replies = yield [_job(a, sample, chat, drawing) for a in asks]
    found = [_outcome(protocol, a, r) for a, r in zip(asks, replies, strict=True)]
    again = _asked_again(protocol, asks, replies, found)
    if again:
        replies = yield [_job(a, sample, chat, drawing, 1) for a in again.values()]
        for i, reply in zip(again, replies, strict=True):
            found[i] = _outcome(protocol, asks[i], reply)
    readings = (Reading(a.aspect, a.swapped, o) for a, o in zip(asks, found, strict=True))
    return Result(Judgement(tuple(readings), styles))


def most_questions(mode: Mode) -> int:
    """Most questions about a pair one after another or, asked again, at once."""
    return 1 + (2 * len(_POSITION) if mode == "corrected" else 0)


def _asked_again(
    protocol: Pairwise,
    asks: Sequence[Ask],
    replies: Sequence[Outcome[Draft]],
    found: Sequence[Outcome[Verdict | Marks]],
) -> dict[int, Ask]:
    """By position, what is asked after replies that came and could not be read."""
    if protocol.mode == "official":
        return {}
    return {
        i: _follow_up(protocol, ask, reply.value.text, outcome.reason)
        for i, (ask, reply, outcome) in enumerate(zip(asks, replies, found, strict=True))
        if isinstance(reply, Result) and isinstance(outcome, Unscored)
    }


def _follow_up(protocol: Pairwise, ask: Ask, reply: str, problem: str) -> Ask:
    """The conversation so far, with a turn that asks for the judgement in its form."""
    preference = ask.aspect == "preference"
    form = wording.FORMS[protocol.name] if preference else wording.FACTUALITY_FORM
    asking = wording.AGAIN.format(problem=problem, form=form)
    return replace(ask, turns=followed_up(ask.turns, reply, asking))


def _job(
    ask: Ask, sample: Sample, chat: StageSpec, drawing: tuple[int, int], attempt: int = 0
) -> Job:
    position = _POSITION[ask.aspect] + attempt * len(_POSITION)
    seed = derived_seed(drawing[0], sample.id, drawing[1], position)
    request = Request(ask.turns, seed if chat.seeded else None)
    return Job(chat, request, sample.id, f"{ask.aspect} {sample.id}")


def _outcome(
    protocol: Pairwise, ask: Ask, reply: Outcome[Draft]
) -> Outcome[Verdict | Marks]:
    if not isinstance(reply, Result):
        return reply
    found = protocol.read(reply.value.text, ask.aspect)
    return Result(found) if isinstance(found, Verdict | Marks) else found
