"""From a pair of answers to a judgement: write the requests, ask, read the replies."""

from __future__ import annotations

from typing import Any

from generators.base import Failure, Job, Outcome, Result, StageSpec, Walk
from generators.document import Document, Draft, Request, Sample
from generators.keys import derived_seed
from scorers.features import Style
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

    `drawing` is (seed, repeat). Every reading keeps its own outcome; a pair that cannot
    be asked about is a failure of the input.
    """
    try:
        asks = protocol.requests(sample, *answers)
    except ValueError as error:
        return Failure(str(error))
    replies = yield [_job(a, sample, chat, drawing) for a in asks]
    readings = tuple(
        Reading(a.aspect, a.swapped, _outcome(protocol, a.aspect, reply))
        for a, reply in zip(asks, replies, strict=True)
    )
    return Result(Judgement(readings, styles))


def _job(ask: Ask, sample: Sample, chat: StageSpec, drawing: tuple[int, int]) -> Job:
    seed = derived_seed(drawing[0], sample.id, drawing[1], _POSITION[ask.aspect])
    request = Request(ask.turns, seed if chat.seeded else None)
    return Job(chat, request, sample.id, f"{ask.aspect} {sample.id}")


def _outcome(
    protocol: Pairwise, aspect: Aspect, reply: Outcome[Any]
) -> Outcome[Verdict | Marks]:
    if not isinstance(reply, Result):
        return reply
    draft: Draft = reply.value
    found = protocol.read(draft.text, aspect)
    return Result(found) if isinstance(found, Verdict | Marks) else found
