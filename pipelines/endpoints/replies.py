"""What a server answers, and the outcome that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from generators.base import Failure, Fault, Outcome, Result
from generators.content import joined
from generators.document import Draft, Image, Text
from pipelines.endpoints.fetching import MediaReader
from pipelines.endpoints.media import Media, MediaError


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReply:
    """One answer of any API."""

    segments: tuple[Text | Media, ...] = ()
    finish: str | None = None
    """Why it ends: `stop`, `length`, `content_filter`, ..."""
    model: str | None = None
    """The model that answered: often a dated version of the one requested."""
    tokens: Mapping[str, float] | None = None
    """The server's own count of tokens, None where it gives none."""
    blocked: str | None = None
    """Why the server refuses to answer: asking again is no use."""
    stopped: str | None = None
    """Why the answer is not whole."""
    unreadable: Sequence[str] = ()
    """What it holds besides text and pictures."""
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All text, without white space around it."""
        return "".join(s.text for s in self.segments if isinstance(s, Text)).strip()

    @property
    def pictures(self) -> int:
        """How many pictures it holds."""
        return sum(isinstance(s, Media) for s in self.segments)

    @property
    def usage(self) -> dict[str, float] | None:
        """Tokens and pictures, None where the server does not count its tokens."""
        if self.tokens is None:
            return None
        drawn = {"images": float(self.pictures)} if self.pictures else {}
        return {**self.tokens, **drawn}


@dataclass(frozen=True, slots=True)
class Account:
    """What is recorded with an outcome besides its value."""

    usage: Mapping[str, float]
    notes: Mapping[str, Any]

    def failure(self, reason: str, fault: Fault, text: str = "") -> Failure:
        """The failure, with the text that came nevertheless."""
        notes = {**self.notes, "text": text} if text else self.notes
        return Failure(reason, fault, self.usage, notes)


def text_outcome(reply: EndpointReply, account: Account) -> Outcome[Draft]:
    """The draft of one text; a reply with pictures is a failure, never its text alone."""
    if failure := _not_answered(reply, account):
        return failure
    if reply.pictures:
        return account.failure(
            f"the reply holds {reply.pictures} picture(s), which an LVLM's answer cannot "
            "keep; as a system of its own, chat-images:MODEL, the model keeps them",
            Fault.ERROR,
            reply.text,
        )
    return Result(Draft((Text(reply.text),)), account.usage, account.notes)


async def interleaved_outcome(
    reply: EndpointReply, account: Account, reader: MediaReader
) -> Outcome[Draft]:
    """The draft of text and pictures; a failure where one picture cannot be read."""
    if failure := _not_answered(reply, account):
        return failure
    segments: list[Text | Image] = []
    for number, segment in enumerate(reply.segments, start=1):
        if isinstance(segment, Text):
            segments.append(segment)
            continue
        try:
            segments.append(await reader.read(segment))
        except MediaError as error:
            reason = f"picture (part {number} of the reply) cannot be read: {error}"
            return account.failure(reason, Fault.ENDPOINT, reply.text)
    trimmed = (Text(s.text.strip()) if isinstance(s, Text) else s for s in joined(segments))
    content = tuple(s for s in trimmed if isinstance(s, Image) or s.text)
    return Result(Draft(content), account.usage, account.notes)


def _not_answered(reply: EndpointReply, account: Account) -> Failure | None:
    """The failure that a refused, broken or empty reply is."""
    if reply.blocked:
        return account.failure(reply.blocked, Fault.REFUSED, reply.text)
    if reply.unreadable:
        parts = ", ".join(dict.fromkeys(reply.unreadable))
        reason = f"the reply holds what is neither text nor a picture: {parts}"
        return account.failure(reason, Fault.ERROR, reply.text)
    if reply.stopped:
        return account.failure(reply.stopped, Fault.ERROR, reply.text)
    if reply.text or reply.pictures:
        return None
    reason = f"the reply is empty (finish reason {reply.finish})"
    if reply.finish in ("length", "MAX_TOKENS", "max_output_tokens"):
        reason += ": all tokens went into reasoning; raise max_tokens"
    return account.failure(reason, Fault.ERROR)
