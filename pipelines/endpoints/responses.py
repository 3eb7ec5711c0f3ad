"""OpenAI's Responses API with its image_generation tool: ordered output items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from generators.document import Request
from pipelines.endpoints.errors import REFUSAL_CODES
from pipelines.endpoints.media import Media
from pipelines.endpoints.replies import (
    Counts,
    EndpointReply,
    ReplyParts,
    of_type,
    read_body,
)
from pipelines.endpoints.settings import ResponsesSettings
from pipelines.endpoints.stage import ConversationEndpoint, Message, SentImage, given

_SILENT = ("compaction", "web_search_call", "file_search_call")
"""Items that are no part of the answer."""
_TOOL = "image_generation"
_OF_TOOL = ("size", "quality", "output_format", "background")
"""Settings that the tool takes."""
_USAGE = {
    "input_tokens": "model.input_tokens",
    "output_tokens": "model.output_tokens",
    "cached_tokens": "model.input_tokens_details.cached_tokens",
    "reasoning_tokens": "model.output_tokens_details.reasoning_tokens",
    "image_output_tokens": "tool.output_tokens",
    "tool_tokens": "tool.input_tokens",
}


class ResponsesEndpoint(ConversationEndpoint):
    """Answers with text and images by the Responses API."""

    settings_class: ClassVar[type[ResponsesSettings]] = ResponsesSettings
    settings: ResponsesSettings

    def body(self, messages: Sequence[Message], request: Request) -> dict[str, Any]:
        """Return what `/responses` is sent, without what is left to the server."""
        s = self.settings
        # Nothing of a benchmark is to be kept by the provider.
        body = {"model": s.model, "input": list(messages), "store": False}
        body |= given(
            temperature=s.temperature, top_p=s.top_p, max_output_tokens=s.max_tokens
        )
        if request.modality != "text":
            tool = {name: getattr(s, name) for name in _OF_TOOL}
            body["tools"] = [given(type=_TOOL, model=s.image_model, **tool)]
            body |= {"tool_choice": {"type": _TOOL}} if s.must_draw else {}
        return body | s.extra_body

    def text_part(self, text: str) -> dict[str, Any]:
        """Return a text beside images."""
        return {"type": "input_text", "text": text}

    def part(self, image: SentImage) -> dict[str, Any]:
        """Return an image by its data URL."""
        detail = self.settings.image_detail
        return {"type": "input_image", "image_url": image.url, "detail": detail}

    async def sent(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return the server's reply."""
        content = await self._client.exchange("/responses", body)
        return read_body(ResponseObject, ResponseObject.reply, content)


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
    usage: Any = None
    tool_usage: dict[str, dict[str, Any] | None] | None = None

    def reply(self) -> EndpointReply:
        """Return the reply; MalformedReply where an item has another shape."""
        parts = ReplyParts()
        for item in self.output:
            _add_item(parts, item)
        reason = self.incomplete_details and self.incomplete_details.reason
        if reason == "content_filter":
            parts.blocked.append("stopped by the content filter (content_filter)")
        if self.error is not None:
            message = self.error.message or "the response failed"
            _add_problem(parts, self.error.code, message)
        return parts.reply(self._counts(), reason or self.status, self.model)

    def _counts(self) -> Counts:
        """Return tokens of the model and of the tool, billed alike by their prices."""
        given = self.tool_usage.get("image_gen") if self.tool_usage else None
        tool = {"input_tokens": 0, "output_tokens": 0, **(given or {})}
        counts = Counts.of({"model": self.usage, "tool": tool}, _USAGE)
        return counts.changed(
            input_tokens=counts.total("input_tokens", "tool_tokens"),
            output_tokens=counts.total("output_tokens", "image_output_tokens"),
            image_output_tokens=counts.known.get("image_output_tokens") or None,
            tool_tokens=None,
        )


def _add_problem(parts: ReplyParts, code: str | None, reason: str) -> None:
    """Add an error: final where the provider blocks the content."""
    problems = parts.blocked if code in REFUSAL_CODES else parts.stopped
    problems.append(f"{code}: {reason}" if code else reason)


def _add_item(parts: ReplyParts, item: Mapping[str, Any]) -> None:
    kind = item.get("type")
    if kind == "message":
        for part in of_type(item.get("content"), list, "a message's content"):
            parts.add_part(part)
    elif kind == "image_generation_call":
        _add_image(parts, item)
    elif kind == "reasoning":
        parts.add_thought()
    elif kind not in _SILENT:
        parts.unreadable.append(f"an item of type {kind!r}")


def _add_image(parts: ReplyParts, item: Mapping[str, Any]) -> None:
    result = item.get("result")
    if isinstance(result, str) and result:
        parts.segments.append(Media(result))
        if revised := item.get("revised_prompt"):
            parts.notes.setdefault("revised_prompts", []).append(revised)
        return
    error = item.get("error")
    about: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    reason = about.get("message") or f"status {item.get('status')}"
    _add_problem(parts, about.get("code"), f"an image was not drawn: {reason}")
