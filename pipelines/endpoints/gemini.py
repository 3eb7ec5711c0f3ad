"""Gemini's generateContent: ordered parts of text and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic.alias_generators import to_camel

from plait.generators.document import Request
from plait.pipelines.endpoints.batch_apis import BatchApi, GeminiBatches
from plait.pipelines.endpoints.errors import MalformedReply, StatusError
from plait.pipelines.endpoints.media import Media
from plait.pipelines.endpoints.replies import (
    EndpointReply,
    at,
    count_usage,
    finish_at,
    of_type,
    read_body,
    read_reply,
    text_at,
    words_of,
)
from plait.pipelines.endpoints.settings import GeminiSettings
from plait.pipelines.endpoints.stage import (
    ConversationEndpoint,
    Message,
    SentImage,
    without_none,
)

_BESIDE = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution")
"""Fields of a part that say something about its content."""
_NO_ROUTE = (404, 405, 501)
_ROLES = {"user": "user", "assistant": "model"}
_USAGE = {
    "input_tokens": "promptTokenCount",
    # Thoughts are billed as output.
    "output_tokens": "candidatesTokenCount + thoughtsTokenCount",
    "cached_tokens": "cachedContentTokenCount",
    "reasoning_tokens": "thoughtsTokenCount",
}
_LEFT_OUT = dict.fromkeys(
    ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"), 0
)
"""Counts that the API leaves out where they are 0."""


class GeminiEndpoint(ConversationEndpoint):
    """Answers with text and images by `models/MODEL:generateContent`."""

    settings_class: ClassVar[type[GeminiSettings]] = GeminiSettings
    settings: GeminiSettings
    own_images: ClassVar[bool] = True

    @property
    def _path(self) -> str:
        model = self.settings.model
        named = model.startswith(("models/", "tunedModels/"))
        return f"/{self.settings.api_version}/{model if named else f'models/{model}'}"

    async def probe(self) -> None:
        """Ask for the model: shows whether server, key and model are usable."""
        try:
            content = await self._client.exchange(self._path)
        except StatusError as error:
            if error.status in _NO_ROUTE and self.settings.model not in str(error):
                # A gateway that answers questions, but none about models.
                return
            raise
        read_body(dict, content)

    def body(self, messages: Sequence[Message], request: Request) -> dict[str, Any]:
        """Return what `generateContent` is sent, without what is left to the server."""
        settings = self.settings
        textual = request.modality == "text"
        image = without_none(
            aspectRatio=settings.aspect_ratio, imageSize=settings.image_size
        )
        config = without_none(
            responseModalities=["TEXT"] if textual else ["TEXT", "IMAGE"],
            imageConfig=None if textual else image or None,
            temperature=settings.temperature,
            topP=settings.top_p,
            maxOutputTokens=settings.max_tokens,
            seed=self.seed(request),
        )
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        contents = [_content(m) for m in messages if m["role"] in _ROLES]
        instruction = {"role": "user", "parts": [{"text": system}]} if system else None
        body = {"contents": contents, "generationConfig": config}
        return _merge(
            body | without_none(systemInstruction=instruction), settings.extra_body
        )

    def text_part(self, text: str) -> dict[str, Any]:
        """Return a text as a part."""
        return {"text": text}

    def part(self, image: SentImage) -> dict[str, Any]:
        """Return an image by its bytes."""
        return {"inlineData": {"mimeType": image.mime, "data": image.data}}

    async def send(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return the server's reply."""
        content = await self._client.exchange(f"{self._path}:generateContent", body)
        return self.parse(content)

    def parse(self, content: bytes) -> EndpointReply:
        """Return what the answer to a body says; MalformedReply, SaidError."""
        return read_reply(read_generated, content)

    def batch_api(self) -> BatchApi:
        """Return Gemini's own."""
        return GeminiBatches(self._client, self._path, self.settings.api_version)


def _content(message: Message) -> dict[str, Any]:
    content = message["content"]
    parts = [{"text": content}] if isinstance(content, str) else content
    return {"role": _ROLES[message["role"]], "parts": parts}


def _merge(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return `body` with the fields of `extra`, of nested objects too, in either case."""
    merged = dict(body)
    for key, value in extra.items():
        name = to_camel(key) if to_camel(key) in body else key
        nested = isinstance(value, Mapping) and isinstance(body.get(name), Mapping)
        merged[name] = _merge(body[name], value) if nested else value
    return merged


def read_generated(body: Mapping[str, Any]) -> EndpointReply:
    """Return what generateContent gave; MalformedReply without candidates or a reason."""
    reply = EndpointReply()
    counts = _counts(body.get("usageMetadata"))
    candidates = of_type(body.get("candidates") or [], list, "candidates")
    if not candidates and not body.get("error"):
        if (reason := text_at(body, "promptFeedback.blockReason")) is None:
            raise MalformedReply("neither candidates nor a block reason")
        reply.blocked.append(f"the prompt was blocked ({reason})")
        return reply.complete(counts, reason, None)
    candidate = of_type(candidates[0] if candidates else {}, Mapping, "a candidate")
    for part in of_type(at(candidate, "content.parts") or [], list, "parts"):
        _add_part(reply, of_type(part, Mapping, "a part"))
    finish = finish_at(candidate, "finishReason")
    reply.add_finish(finish, text_at(candidate, "finishMessage"))
    reply.add_error(body.get("error"), counts[0])
    return reply.complete(counts, finish, text_at(body, "modelVersion"))


def _counts(usage: Any) -> tuple[dict[str, float], dict[str, Any]]:
    if not isinstance(usage, Mapping):
        return {}, {}
    counts, refused = count_usage(
        {**_LEFT_OUT, **usage}, _USAGE, positive=["reasoning_tokens"]
    )
    details = usage.get("candidatesTokensDetails")
    of_images: list[float] = []
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping) and detail.get("modality") == "IMAGE":
            own, _ = count_usage(detail, {"tokens": "tokenCount"})
            of_images.append(own.get("tokens", 0))
    drawn = sum(of_images)
    return counts | ({"image_output_tokens": drawn} if drawn else {}), refused


def _add_part(reply: EndpointReply, part: Mapping[str, Any]) -> None:
    if part.get("thought"):
        reply.add_thought(words_of(part.get("text")))
        return
    inline = part.get("inlineData")
    file = part.get("fileData")
    if isinstance(part.get("text"), str):
        reply.add_text(part["text"])
    elif isinstance(inline, Mapping) and isinstance(inline.get("data"), str):
        # The API writes bytes in the alphabet for URLs as well.
        data = inline["data"].replace("-", "+").replace("_", "/")
        reply.segments.append(Media(data, inline.get("mimeType")))
    elif isinstance(file, Mapping) and isinstance(file.get("fileUri"), str):
        reply.segments.append(Media(file["fileUri"], file.get("mimeType")))
    elif names := [name for name in part if name not in _BESIDE]:
        reply.unreadable.append(f"a part of type {names[0]!r}")
