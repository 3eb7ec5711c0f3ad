"""Replies of the chat completions API and its dialects, read leniently."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, ValidationError

from pipelines.endpoints.errors import MalformedReply
from pipelines.endpoints.parts import ReplyParts, add_message
from pipelines.endpoints.replies import EndpointReply

_SHOWN_OF_BODY = 200


class _Choice(BaseModel):
    message: dict[str, Any] = Field(default_factory=dict)
    finish_reason: str | None = None


class _Details(BaseModel):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    image_tokens: int | None = None


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
        tokens = None if self.usage is None else self.usage.as_usage()
        if not self.choices and not self.segments:
            # So Gemini's endpoint answers a prompt that it blocks.
            blocked = "the prompt was blocked: no answer given"
            return EndpointReply(blocked=blocked, model=self.model, tokens=tokens)
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
            notes=parts.notes,
        )


def _blocked(parts: ReplyParts, finish: str | None) -> str | None:
    if parts.refusals:
        return f"refused: {' '.join(parts.refusals)}"
    if (finish or "").startswith("content_filter"):
        return f"stopped by the content filter ({finish})"
    return None


def parsed(body: bytes) -> EndpointReply:
    """The reply; MalformedReply shows the start of a body that is not one."""
    try:
        return ChatCompletion.model_validate_json(body).reply()
    except (ValidationError, MalformedReply) as error:
        raise MalformedReply(body_start(error, body)) from None


def body_start(error: ValidationError | MalformedReply, body: bytes) -> str:
    """What is wrong with a body, and its start."""
    reason = str(error)
    if isinstance(error, ValidationError):
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
    return f"{reason}: {body[:_SHOWN_OF_BODY].decode(errors='replace')!r}"
