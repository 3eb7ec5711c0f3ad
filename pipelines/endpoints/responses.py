"""OpenAI's Responses API with its image_generation tool: ordered output items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from generators.document import Request
from pipelines.endpoints.errors import REFUSAL_CODES, MalformedReply
from pipelines.endpoints.media import Media
from pipelines.endpoints.replies import (
    Counts,
    EndpointReply,
    ReplyParts,
    read_body,
    total,
)
from pipelines.endpoints.settings import ResponsesSettings
from pipelines.endpoints.stage import InterleavedEndpoint, Messages

_SILENT = ("reasoning", "compaction", "web_search_call", "file_search_call")
"""Items that are no part of the answer."""


class ResponsesEndpoint(InterleavedEndpoint):
    """Answers with text and pictures by the Responses API."""

    settings_class: ClassVar[type[ResponsesSettings]] = ResponsesSettings
    settings: ResponsesSettings

    def body(self, messages: Messages, request: Request) -> dict[str, Any]:
        """Arguments of the SDK's `responses.create`, without those left open."""
        s = self.settings
        body: dict[str, Any] = {
            "model": s.model,
            "input": [_item(message) for message in messages],
            "temperature": s.temperature,
            "top_p": s.top_p,
            "max_output_tokens": s.max_tokens,
            # Nothing of a benchmark is to be kept by the provider.
            "store": False,
            "extra_body": s.extra_body or None,
        }
        if request.modality != "text":
            body["tools"] = [self._tool()]
            body["tool_choice"] = {"type": "image_generation"} if s.must_draw else None
        return {name: value for name, value in body.items() if value is not None}

    def _tool(self) -> dict[str, Any]:
        s = self.settings
        tool = {
            "type": "image_generation",
            "model": s.image_model,
            "size": s.size,
            "quality": s.quality,
            "output_format": s.output_format,
            "background": s.background,
        }
        return {name: value for name, value in tool.items() if value is not None}

    async def sent(self, body: Mapping[str, Any]) -> EndpointReply:
        """The server's reply."""
        raw = await self._client.openai.responses.with_raw_response.create(**body)
        return read_body(ResponseObject, ResponseObject.reply, raw.http_response.content)


def _item(message: Mapping[str, Any]) -> dict[str, Any]:
    """A chat message as an input item."""
    content = message["content"]
    if not isinstance(content, str):
        content = [_input_part(part) for part in content]
    return {"role": message["role"], "content": content}


def _input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    image: Mapping[str, Any] = part["image_url"]
    detail = image.get("detail", "auto")
    return {"type": "input_image", "image_url": image["url"], "detail": detail}


class _Cached(Counts):
    cached_tokens: int | None = None


class _Reasoned(Counts):
    reasoning_tokens: int | None = None


class _Tokens(Counts):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Cached | None = None
    output_tokens_details: _Reasoned | None = None


class _ToolTokens(Counts):
    """None are used where nothing is drawn."""

    input_tokens: int | None = 0
    output_tokens: int | None = 0


class _ToolUsage(BaseModel):
    image_gen: _ToolTokens = _ToolTokens()


class _Details(BaseModel):
    reason: str | None = None


class _Error(BaseModel):
    code: str | None = None
    message: str = ""


class ResponseObject(BaseModel):
    """A reply of the Responses API, read leniently."""

    output: list[dict[str, Any]]
    status: str | None = None
    incomplete_details: _Details | None = None
    error: _Error | None = None
    model: str | None = None
    usage: _Tokens = _Tokens()
    tool_usage: _ToolUsage = _ToolUsage()

    def reply(self) -> EndpointReply:
        """The reply; MalformedReply where an item has another shape."""
        parts, problems = ReplyParts(), _Problems()
        for item in self.output:
            _add_item(parts, problems, item)
        details = self.incomplete_details or _Details()
        if details.reason == "content_filter":
            problems.blocked.append("stopped by the content filter (content_filter)")
        if self.error is not None:
            problems.add(self.error.code, self.error.message or "the response failed")
        if parts.refusals:
            problems.blocked.append(f"refused: {' '.join(parts.refusals)}")
        return EndpointReply(
            segments=tuple(parts.segments),
            finish=details.reason or self.status,
            model=self.model,
            tokens=self._tokens(),
            blocked="; ".join(problems.blocked) or None,
            stopped="; ".join(problems.stopped) or None,
            unreadable=parts.unreadable,
            notes=parts.notes | self.usage.notes | self.tool_usage.image_gen.notes,
        )

    def _tokens(self) -> dict[str, float]:
        """Tokens of the model and of the tool, which are billed alike by their prices."""
        drawn = self.tool_usage.image_gen
        read = self.usage.input_tokens_details or _Cached()
        written = self.usage.output_tokens_details or _Reasoned()
        counts = {
            "input_tokens": total(self.usage.input_tokens, drawn.input_tokens),
            "output_tokens": total(self.usage.output_tokens, drawn.output_tokens),
            "cached_tokens": read.cached_tokens,
            "reasoning_tokens": written.reasoning_tokens,
            "image_output_tokens": drawn.output_tokens or None,
        }
        return {name: count for name, count in counts.items() if count is not None}


class _Problems:
    """Why there is no whole answer."""

    def __init__(self) -> None:
        self.blocked: list[str] = []
        self.stopped: list[str] = []

    def add(self, code: str | None, reason: str) -> None:
        """An error: final where the provider blocks the content."""
        if code in REFUSAL_CODES:
            self.blocked.append(f"{code}: {reason}")
        else:
            self.stopped.append(f"{code}: {reason}" if code else reason)


def _add_item(parts: ReplyParts, problems: _Problems, item: Mapping[str, Any]) -> None:
    kind = item.get("type")
    if kind == "message":
        _add_message(parts, item.get("content"))
    elif kind == "image_generation_call":
        _add_picture(parts, problems, item)
    elif kind == "reasoning":
        parts.add_thought()
    elif kind not in _SILENT:
        parts.unreadable.append(f"an item of type {kind!r}")


def _add_message(parts: ReplyParts, content: Any) -> None:
    if not isinstance(content, Sequence) or isinstance(content, str):
        raise MalformedReply(f"a message's content is a {type(content).__name__}")
    for part in content:
        parts.add_part(part)


def _add_picture(parts: ReplyParts, problems: _Problems, item: Mapping[str, Any]) -> None:
    result = item.get("result")
    if isinstance(result, str) and result:
        parts.segments.append(Media(result))
        if revised := item.get("revised_prompt"):
            parts.notes.setdefault("revised_prompts", []).append(revised)
        return
    error = item.get("error")
    about: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    reason = about.get("message") or f"status {item.get('status')}"
    problems.add(about.get("code"), f"a picture was not drawn: {reason}")
