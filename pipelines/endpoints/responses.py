"""OpenAI's Responses API with its image_generation tool: ordered output items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from plait.generators.document import Request
from plait.pipelines.chat.endings import Ending, ending
from plait.pipelines.endpoints.errors import REFUSAL_CODES
from plait.pipelines.endpoints.media import Media
from plait.pipelines.endpoints.replies import (
    EndpointReply,
    count_usage,
    finish_at,
    list_at,
    of_type,
    read_reply,
    text_at,
    words_of,
)
from plait.pipelines.endpoints.settings import ResponsesSettings
from plait.pipelines.endpoints.stage import (
    ConversationEndpoint,
    Message,
    SentImage,
    without_none,
)
from plait.pipelines.endpoints.streams import response_body

_SILENT = ("compaction", "web_search_call", "file_search_call")
"""Items that are no part of the answer."""
_TOOL = "image_generation"
_OF_TOOL = ("size", "quality", "output_format", "background")
"""Settings that the tool takes."""
_USAGE = {
    "input_tokens": "model.input_tokens + tool.input_tokens",
    "output_tokens": "model.output_tokens + tool.output_tokens",
    "cached_tokens": "model.input_tokens_details.cached_tokens",
    "reasoning_tokens": "model.output_tokens_details.reasoning_tokens",
    "image_output_tokens": "tool.output_tokens",
}
"""Tokens of the model and of the tool are billed alike, by their prices."""


class ResponsesEndpoint(ConversationEndpoint):
    """Answers with text and images by the Responses API."""

    settings_class: ClassVar[type[ResponsesSettings]] = ResponsesSettings
    settings: ResponsesSettings

    def body(self, messages: Sequence[Message], request: Request) -> dict[str, Any]:
        """Return what `/responses` is sent, without what is left to the server."""
        settings = self.settings
        # Nothing of a benchmark is to be kept by the provider.
        body = {
            "model": settings.model,
            "input": list(messages),
            "store": False,
            "stream": False,
        }
        body |= without_none(
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_output_tokens=settings.max_tokens,
        )
        if request.modality != "text":
            tool = {name: getattr(settings, name) for name in _OF_TOOL}
            body["tools"] = [without_none(type=_TOOL, model=settings.image_model, **tool)]
            if settings.must_draw:
                body["tool_choice"] = {"type": _TOOL}
        return body | settings.extra_body

    def text_part(self, text: str) -> dict[str, Any]:
        """Return a text beside images."""
        return {"type": "input_text", "text": text}

    def part(self, image: SentImage) -> dict[str, Any]:
        """Return an image by its data URL."""
        detail = self.settings.image_detail
        return {"type": "input_image", "image_url": image.url, "detail": detail}

    async def send(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return the server's reply."""
        content = await self._client.exchange("/responses", body)
        return read_reply(response, response_body(content))


def response(body: Mapping[str, Any]) -> EndpointReply:
    """Return what a response says; MalformedReply where an item has another shape."""
    reply = EndpointReply()
    items = [of_type(item, Mapping, "an item") for item in list_at(body, "output")]
    status = finish_at(body, "status")
    reason = finish_at(body, "incomplete_details.reason")
    for item in items:
        _add_item(reply, item)
        # The message at which the whole reply is cut is not complete either.
        if item.get("type") == "message" and ending(reason) is not Ending.CUT:
            reply.add_finish(finish_at(item, "status"))
    for ended in [reason or status] if status == "incomplete" else [reason, status]:
        reply.add_finish(ended)
    tools = of_type(body.get("tool_usage") or {}, Mapping, "tool_usage")
    drawing = of_type(tools.get("image_gen") or {}, Mapping, "image_gen")
    tool = {"input_tokens": 0, "output_tokens": 0, **drawing}
    used = {"model": body.get("usage"), "tool": tool}
    counts = count_usage(used, _USAGE, positive=["image_output_tokens"])
    reply.add_error(body.get("error"), counts[0])
    return reply.complete(counts, reason or status, text_at(body, "model"))


def _add_problem(reply: EndpointReply, code: str | None, reason: str) -> None:
    """Add an error: final where the provider blocks the content."""
    problems = reply.blocked if code in REFUSAL_CODES else reply.stopped
    problems.append(f"{code}: {reason}" if code else reason)


def _add_item(reply: EndpointReply, item: Mapping[str, Any]) -> None:
    kind = item.get("type")
    if kind == "message":
        for part in of_type(item.get("content"), list, "a message's content"):
            reply.add_part(part)
    elif kind == "image_generation_call":
        _add_image(reply, item)
    elif kind == "reasoning":
        reply.add_thought(words_of(item))
    elif kind not in _SILENT:
        reply.unreadable.append(f"an item of type {kind!r}")


def _add_image(reply: EndpointReply, item: Mapping[str, Any]) -> None:
    result = item.get("result")
    if isinstance(result, str) and result:
        reply.segments.append(Media(result))
        if revised := item.get("revised_prompt"):
            reply.notes.setdefault("revised_prompts", []).append(revised)
        return
    error = item.get("error")
    about: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    reason = about.get("message") or f"status {item.get('status')}"
    _add_problem(reply, about.get("code"), f"an image was not drawn: {reason}")
