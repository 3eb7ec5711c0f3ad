"""From a pair of answers to a judgement: write the requests, ask, read the replies."""

from __future__ import annotations

from dataclasses import replace

from generators.base import Failure, Job, Outcome, Result, StageSpec, Unscored, Walk
from generators.document import Document, Draft, Request, Sample, Text, Turn
from generators.keys import derived_seed
from scorers.features import Style
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

    In corrected mode what cannot be read is asked for once more, then left unscored; in
    official mode the question itself is repeated as often as the released program does,
    with another seed. A stage that decodes greedily would give the same reply and is not
    asked again. `drawing` is (seed, repeat). Every reading keeps its own outcome; a pair
    that cannot be asked about is a failure of the input.
    """
    try:
        asks = protocol.requests(sample, *answers)
    except ValueError as error:
        return Failure(str(error))
    replies = yield [_job(a, sample, chat, drawing) for a in asks]
    outcomes = [_outcome(protocol, a, r) for a, r in zip(asks, replies, strict=True)]
    unread = dict(enumerate(zip(asks, replies, strict=True)))
    for attempt in range(1, protocol.attempts):
        again = {
            i: following
            for i, (ask, reply) in unread.items()
            if (following := _asked_again(protocol, ask, reply, outcomes[i], chat))
        }
        if not again:
            break
        replies = yield [_job(a, sample, chat, drawing, attempt) for a in again.values()]
        unread = dict(zip(again, zip(again.values(), replies, strict=True), strict=True))
        outcomes = [
            _outcome(protocol, asks[i], unread[i][1]) if i in unread else outcome
            for i, outcome in enumerate(outcomes)
        ]
    readings = (
        Reading(a.aspect, a.swapped, o) for a, o in zip(asks, outcomes, strict=True)
    )
    return Result(Judgement(tuple(readings), styles))


def most_questions(protocol: Pairwise) -> int:
    """Most questions about a pair one after another or, asked again, at once."""
    return 1 + 2 * len(_POSITION) * (protocol.attempts - 1)


def _asked_again(
    protocol: Pairwise,
    ask: Ask,
    reply: Outcome[Draft],
    outcome: Outcome[Verdict | Marks],
    chat: StageSpec,
) -> Ask | None:
    """What is asked after a reply that came and could not be read, if anything."""
    if not isinstance(reply, Result) or not isinstance(outcome, Unscored):
        return None
    if protocol.mode == "corrected":
        return _follow_up(protocol, ask, reply.value.text, outcome.reason)
    return ask if chat.seeded and protocol.repeats_after(reply.value.text) else None


def _follow_up(protocol: Pairwise, ask: Ask, reply: str, problem: str) -> Ask:
    """The conversation so far, with a turn that asks for the judgement in its form."""
    preference = ask.aspect == "preference"
    form = wording.FORMS[protocol.name] if preference else wording.FACTUALITY_FORM
    asking = wording.AGAIN.format(problem=problem, form=form)
    said = Turn("assistant", (Text(reply or "(empty reply)"),))
    return replace(ask, turns=(*ask.turns, said, Turn("user", (Text(asking),))))


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
