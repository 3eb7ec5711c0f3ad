"""What servers answer: the parts of a reply, its usage, and the outcome that follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from generators.base import Failure, Fault, Outcome, Result
from generators.content import joined
from generators.document import Draft, Image, Text
from pipelines.endpoints.errors import MalformedReply, start_of
from pipelines.endpoints.media import Media, MediaError, MediaReader

ORDER_UNKNOWN = "unknown: the server gives pictures apart from the text"

_TEXTS = ("text", "output_text", "input_text")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text")
_PICTURES = ("image_url", "image", "output_image", "input_image")
_SOURCES = ("image_url", "url", "b64_json", "image", "data", "source", "result")
_TYPES = ("mime_type", "media_type", "mimeType")
_SHOWN_OF_BODY = 200
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReply:
    """One answer of any API."""

    segments: tuple[Text | Media, ...] = ()
    finish: str | None = None
    """Why it ends: `stop`, `length`, `content_filter`, ..."""
    model: str | None = None
    """The model that answered: often a dated version of the one requested."""
    tokens: Mapping[str, float] = field(default_factory=dict)
    """The server's own counts of tokens, those that it gives."""
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
    def usage(self) -> dict[str, float]:
        """Tokens and pictures."""
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


class Counts(BaseModel):
    """Numbers that a server gives; a negative one counts as not given."""

    refused: list[str] = Field(default_factory=list)
    """The negative ones, as `completion_tokens: -7000`."""

    @model_validator(mode="before")
    @classmethod
    def _without_negative(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        wrong = {k: v for k, v in given.items() if isinstance(v, int | float) and v < 0}
        shown = [f"{name}: {value}" for name, value in wrong.items()]
        return {**given, **dict.fromkeys(wrong), "refused": shown}

    @property
    def notes(self) -> dict[str, Any]:
        """What a record says of refused numbers."""
        return {"usage_refused": self.refused} if self.refused else {}


def total(*counts: int | None) -> int | None:
    """The sum of counts, unknown where one of them is."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


@dataclass
class ReplyParts:
    """Collects what a reply holds."""

    segments: list[Text | Media] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """What is neither text nor a picture, or a picture without its bytes."""
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All text, joined."""
        return "".join(s.text for s in self.segments if isinstance(s, Text))

    def add_text(self, text: Any) -> None:
        """Text; what is not a string cannot be read."""
        if isinstance(text, str):
            self.segments.append(Text(text))
        else:
            self.unreadable.append(f"a text that is a {type(text).__name__}")

    def add_media(self, media: Media | None, what: str) -> None:
        """A picture; `what` names it where its bytes are missing."""
        if media is None:
            self.unreadable.append(f"{what} without picture data")
        else:
            self.segments.append(media)

    def add_late(self, media: Media | None, what: str) -> None:
        """A picture that stands apart from the text, unless it is there already."""
        if media is not None and any(media == s for s in self.segments):
            return
        if self.text.strip():
            self.notes["order"] = ORDER_UNKNOWN
        self.add_media(media, what)

    def add_thought(self) -> None:
        """A thought of the model, which is no part of its answer."""
        self.notes["thoughts"] = self.notes.get("thoughts", 0) + 1

    def add_part(self, part: Any) -> None:
        """A part of a list `content`."""
        if isinstance(part, str):
            self.add_text(part)
            return
        kind = _object(part, "a part").get("type")
        if kind in _TEXTS:
            self.add_text(part.get("text"))
        elif kind in _PICTURES:
            self.add_media(media_of(part), f"a part of type {kind!r}")
        elif kind == "refusal":
            self.refusals.append(str(part.get("refusal")))
        elif kind in _THOUGHTS:
            self.add_thought()
        else:
            self.unreadable.append(f"a part of type {kind!r}")

    def add_segment(self, segment: Any) -> None:
        """A segment of SGLang-Omni: `kind` and `data`."""
        data = _object(segment, "a segment").get("data")
        match segment.get("kind"):
            case "text":
                self.add_text(data.get("text") if isinstance(data, Mapping) else data)
            case "image":
                self.add_media(media_of(segment), "a segment of kind 'image'")
            case kind:
                self.unreadable.append(f"a segment of kind {kind!r}")


def media_of(part: Any) -> Media | None:
    """The picture in a JSON object of a reply, None where there is none."""
    if isinstance(part, str):
        return Media(part) if part else None
    if not isinstance(part, Mapping):
        return None
    mime = next((part[t] for t in _TYPES if isinstance(part.get(t), str)), None)
    for name in _SOURCES:
        value = part.get(name)
        if isinstance(value, str) and value:
            digest = part.get("sha256")
            return Media(value, mime, digest if isinstance(digest, str) else None)
        if isinstance(value, Mapping) and (inner := media_of(value)):
            return inner
    return None


def add_message(
    parts: ReplyParts, message: Mapping[str, Any], segments: Any = None
) -> None:
    """Read a message of a chat completion; `segments` are those beside it, if any.

    Ordered segments come before a list `content`, that before `images`: what a later one
    repeats is left out, what only it holds is added. MalformedReply for other shapes.
    """
    ordered = _list(message.get("segments") or segments, "segments")
    content = message.get("content")
    for segment in ordered:
        parts.add_segment(segment)
    if ordered:
        for part in content if isinstance(content, list) else ():
            if isinstance(part, Mapping) and part.get("type") in _PICTURES:
                parts.add_late(media_of(part), "a part of the content")
    elif isinstance(content, list):
        for part in content:
            parts.add_part(part)
    elif content is not None:
        parts.add_text(_string(content, "content"))
    for image in _list(message.get("images"), "images"):
        parts.add_late(media_of(image), "an item of images")
    if message.get("audio"):
        parts.unreadable.append("audio")
    if message.get("refusal"):
        parts.refusals.append(str(message["refusal"]))


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MalformedReply(f"{what} is a {type(value).__name__}, not an object")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedReply(f"{what} is a {type(value).__name__}, not a list")
    return value


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise MalformedReply(f"{what} is a {type(value).__name__}, not text")
    return value


class _Choice(BaseModel):
    message: dict[str, Any] = Field(default_factory=dict)
    finish_reason: str | None = None


class _Details(Counts):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    image_tokens: int | None = None


class TokenCounts(Counts):
    """What the server says it used."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None

    def as_usage(self) -> dict[str, float]:
        """The counts as plait names them, without those the server does not give."""
        read = self.prompt_tokens_details or _Details()
        written = self.completion_tokens_details or _Details()
        counts = {
            "input_tokens": self.prompt_tokens,
            "output_tokens": self.completion_tokens,
            "cached_tokens": read.cached_tokens,
            "reasoning_tokens": written.reasoning_tokens,
            "image_output_tokens": written.image_tokens,
        }
        return {k: v for k, v in counts.items() if v is not None}


class ChatCompletion(BaseModel):
    """A chat completion."""

    choices: list[_Choice]
    model: str | None = None
    usage: TokenCounts | None = None
    segments: list[Any] | None = None
    """SGLang-Omni's, where they do not stand in the message."""

    def reply(self) -> EndpointReply:
        """The reply; MalformedReply where the message has another shape."""
        usage = self.usage or TokenCounts()
        tokens = usage.as_usage()
        if not self.choices and not self.segments:
            stopped = "the reply has no choices"
            return EndpointReply(
                stopped=stopped, model=self.model, tokens=tokens, notes=usage.notes
            )
        choice = self.choices[0] if self.choices else _Choice()
        parts = ReplyParts()
        add_message(parts, choice.message, self.segments)
        return EndpointReply(
            segments=tuple(parts.segments),
            finish=choice.finish_reason,
            model=self.model,
            tokens=tokens,
            blocked=_blocked(parts, choice.finish_reason),
            unreadable=parts.unreadable,
            notes=parts.notes | usage.notes,
        )


def _blocked(parts: ReplyParts, finish: str | None) -> str | None:
    if parts.refusals:
        return f"refused: {' '.join(parts.refusals)}"
    if (finish or "").startswith("content_filter"):
        return f"stopped by the content filter ({finish})"
    return None


def read_body(kind: type[M], read: Callable[[M], T], body: bytes) -> T:
    """`read` of the body as a `kind`; MalformedReply shows the start of another one."""
    try:
        return read(kind.model_validate_json(body))
    except (ValidationError, MalformedReply) as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        start = body[: 10 * _SHOWN_OF_BODY].decode(errors="replace")
        shown = start_of(start, _SHOWN_OF_BODY)
        raise MalformedReply(f"{reason}: {shown!r}") from None
