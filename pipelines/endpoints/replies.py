"""What a server answers: its replies, read leniently."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, ValidationError

from generators.base import Failure, Fault, Outcome, Result
from generators.document import Draft, Text
from pipelines.endpoints.errors import MalformedReply

_SHOWN_OF_BODY = 200


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message = Field(default_factory=_Message)
    finish_reason: str | None = None


class _Details(BaseModel):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class TokenCounts(BaseModel):
    """What the server says it used."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
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
        }
        return {k: v for k, v in counts.items() if v is not None}


class ChatCompletion(BaseModel):
    """A chat completion."""

    choices: list[_Choice]
    model: str | None = None
    """The model that answered: often a dated version of the one requested."""
    usage: TokenCounts | None = None

    @property
    def finish(self) -> str | None:
        """Why the text ends: `stop`, `length`, `content_filter`, ..."""
        return self.choices[0].finish_reason if self.choices else None


def parsed(body: bytes) -> ChatCompletion:
    """The reply; MalformedReply shows the start of a body that is not one."""
    try:
        return ChatCompletion.model_validate_json(body)
    except ValidationError as error:
        start = body[:_SHOWN_OF_BODY].decode(errors="replace")
        reason = error.errors(include_url=False)[0]["msg"]
        raise MalformedReply(f"{reason}: {start!r}") from None


def outcome(
    reply: ChatCompletion, usage: dict[str, float], notes: dict[str, Any]
) -> Outcome[Draft]:
    """The draft, or the failure that a refused or empty reply is."""
    if not reply.choices:
        # So Gemini's endpoint answers a prompt that it blocks.
        return Failure(
            "the prompt was blocked: no answer given", Fault.REFUSED, usage, notes
        )
    message = reply.choices[0].message
    text = (message.content or "").strip()
    if message.refusal:
        return Failure(f"refused: {message.refusal}", Fault.REFUSED, usage, notes)
    if (reply.finish or "").startswith("content_filter"):
        notes = notes | {"text": text}
        reason = f"stopped by the content filter ({reply.finish})"
        return Failure(reason, Fault.REFUSED, usage, notes)
    if not text:
        reason = f"the reply is empty (finish reason {reply.finish})"
        if reply.finish == "length":
            reason += ": all tokens went into reasoning; raise max_tokens"
        return Failure(reason, Fault.ERROR, usage, notes)
    return Result(Draft((Text(text),)), usage, notes)
