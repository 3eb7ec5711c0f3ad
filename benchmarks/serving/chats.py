"""Chats: a request as a query and the limits of its answer; a document as the reply."""

from __future__ import annotations

import base64
import io
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, NamedTuple

from PIL import Image as Pillow

from plait.benchmarks.serving.refusals import RequestRefused, refuse_other
from plait.benchmarks.serving.schemas import (
    ChatMessage,
    ChatRequest,
    ImageData,
    ImageUrl,
    TextPart,
)
from plait.benchmarks.serving.served import ServedModel
from plait.generators.base import Result, StageSpec
from plait.generators.document import Document, Image, Query, Text, Turn
from plait.pipelines.endpoints.media import Media, MediaError, decode_embedded, image_of

QUERY = "query"
"""Id of every query: with it `seed` gives the answer that `LocalSystem` gives in Python
to `question(...)` with the same seed."""
_LIMITS = ("max_new_tokens", "max_tokens", "max_text_tokens")
"""What stages call the longest answer that they write."""


def query_of(request: ChatRequest, model: ServedModel) -> Query:
    """Return the conversation; RequestRefused where `model` cannot honour the request.

    Decodes all images once: call it outside the event loop.
    """
    wanted = request.modalities
    reason = "" if wanted is None else _refusal(wanted, model)
    if reason:
        raise RequestRefused("unsupported_value", reason, "modalities")
    turns = turns_of(request.messages)
    query = Query(id=QUERY, category=QUERY, field=QUERY, turns=turns)
    return replace(query, wants_images=wanted is None or "image" in wanted)


def _refusal(wanted: Sequence[str], model: ServedModel) -> str:
    """Return why the model cannot answer with exactly these; empty where it can."""
    if "text" not in wanted:
        return (
            f"{model.name} answers with text; for images alone use /v1/images/generations "
            "where the model has it"
        )
    if "image" in wanted:
        draws = model.system is not None and model.system.limits.images
        return "" if draws else f"{model.name} writes text only"
    if model.may_leave_images_out:
        return ""
    return (
        f"{model.name} decides itself where it draws and cannot be told to write text "
        "only; leave modalities out"
    )


def turns_of(messages: Sequence[ChatMessage], where: str = "messages") -> tuple[Turn, ...]:
    """Return a conversation that ends with the user's turn; RequestRefused.

    `where` is the messages' place in the request. All images are decoded once.
    """
    turns = []
    for number, message in enumerate(messages):
        turns.append(_turn(message, f"{where}[{number}]"))
    role = turns[-1].role
    if role != "user":
        reason = f"the last message must be the user's, not the {role}'s"
        raise RequestRefused("invalid_value", reason, where)
    return tuple(turns)


def _turn(message: ChatMessage, where: str) -> Turn:
    segments: list[Text | Image] = []
    holds_image = False
    for part in _parts(message):
        if isinstance(part, str):
            segments.append(Text(part))
        else:
            segments.append(decode_image(part.url, where))
            holds_image = True
    content = tuple(segments)
    if message.role == "user" or message.role == "assistant":
        return Turn(message.role, content)
    if holds_image:
        reason = f"{where}: images belong to a user's or an assistant's turn"
        raise RequestRefused("invalid_value", reason, where)
    return Turn("system", content)


def _parts(message: ChatMessage) -> list[str | ImageUrl | ImageData]:
    """Segments know the order of text and images; `images` come after the text."""
    if message.segments is not None:
        return [segment.data for segment in message.segments]
    content = message.content or ()
    parts: list[str | ImageUrl | ImageData] = []
    if isinstance(content, str):
        parts.append(content)
    else:
        for part in content:
            parts.append(part.text if isinstance(part, TextPart) else part.image_url)
    for image in message.images or ():
        parts.append(image.image_url)
    return parts


def decode_image(url: str, where: str) -> Image:
    """Return the image of a data URL; RequestRefused, which names the place `where`."""
    media = Media(url)
    reason = "only data URLs are read (data:image/png;base64,...); nothing is fetched"
    try:
        if not media.is_remote:
            return image_of(decode_embedded(media))
    except MediaError as error:
        reason = str(error)
    raise RequestRefused("invalid_image", f"{where}: {reason}", where)


def refuse_other_sampling(request: ChatRequest, stage: StageSpec) -> None:
    """RequestRefused where the request samples otherwise than the drafting stage does."""
    for name in ("temperature", "top_p"):
        refuse_other(stage, name, name, getattr(request, name), stage.settings.get(name))


def token_limit(
    request: ChatRequest, settings: Mapping[str, Any], takes_limit: bool
) -> int | None:
    """Return the limit that the stage must be told; RequestRefused where it takes none.

    A limit that is no lower than the stage's own holds anyway.
    """
    # Two names of one limit: OpenAI's older and newer one. The lower holds.
    limits = [*filter(None, (request.max_tokens, request.max_completion_tokens))]
    if not limits:
        return None
    asked = min(limits)
    own = _own_limit(settings)
    if own is not None and asked >= own:
        return None
    if takes_limit:
        return asked
    known = "not known to the server" if own is None else f"{own} tokens"
    reason = (
        f"the longest answer is fixed while the server runs ({known}); {asked} cannot "
        "be honoured: leave max_tokens out"
    )
    raise RequestRefused("unsupported_value", reason, "max_tokens")


def _own_limit(settings: Mapping[str, Any]) -> int | None:
    """Return the tokens of a stage's longest answer; None where it declares none."""
    for name in _LIMITS:
        if settings.get(name) is not None:
            return int(settings[name])
    return None


@dataclass(frozen=True, kw_only=True)
class ChatReply:
    """An answer, and what is said about it."""

    model: ServedModel
    made: Result[Document]
    seed: int
    format: str | None = None
    """Where its images are; None for `segments` and `images`."""
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def whole(self) -> dict[str, Any]:
        """The reply in one piece."""
        choice = {"index": 0, "message": self._message(), "logprobs": None}
        return self._about(
            "chat.completion",
            choices=[choice | {"finish_reason": self._finish}],
            usage=self._usage,
        )

    def events(self, include_usage: bool) -> Iterator[str]:
        """Yield server-sent events: one for each segment, in order, then the end.

        The texts of all events, joined, are the `content` of the whole reply.
        """
        yield self._event({"role": "assistant", "content": ""})
        gap = ""
        for number, segment in enumerate(self.made.value.segments):
            delta: dict[str, Any] = {}
            if isinstance(segment, Text):
                delta["content"] = gap + segment.text
                gap = "\n"
            else:
                if self.format != "segments":
                    delta["images"] = [_part(segment) | {"index": number}]
                if self.format in (None, "segments"):
                    delta["segment"] = self._segment(segment, number)
            yield self._event(delta)
        yield self._event({}, self._finish)
        if include_usage:
            yield self._chunk(choices=[], usage=self._usage)
        yield "data: [DONE]\n\n"

    def _about(self, kind: str, **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model.name,
            "system_fingerprint": self.model.fingerprint,
            "seed": self.seed,
            **more,
        }

    def _event(self, delta: dict[str, Any], finish: str | None = None) -> str:
        return self._chunk(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])

    def _chunk(self, **content: Any) -> str:
        return f"data: {json.dumps(self._about('chat.completion.chunk', **content))}\n\n"

    def _message(self) -> dict[str, Any]:
        """Text is always in `content`; images besides, unless `content` holds them."""
        segments = self.made.value.segments
        images = self.made.value.images
        message: dict[str, Any] = {"role": "assistant", "content": self.made.value.text}
        if not images:
            return message
        if self.format == "content":
            message["content"] = [*map(_part, segments)]
        if self.format in (None, "images"):
            message["images"] = []
            for number, image in enumerate(images):
                message["images"].append(_part(image) | {"index": number})
        if self.format in (None, "segments"):
            message["segments"] = [*map(self._segment, segments, count())]
        return message

    def _segment(self, segment: Text | Image, number: int) -> dict[str, Any]:
        """As SGLang-Omni 0.1 writes it."""
        about = {"type": "segment", "execution_id": self.id, "segment_index": number}
        if isinstance(segment, Text):
            return about | {"kind": "text", "data": segment.text}
        data = {
            "kind": "image",
            "mime_type": image_facts(segment).media_type,
            "size_bytes": len(segment.read()),
            "sha256": segment.digest,
            "url": data_url(segment),
        }
        return about | {"kind": "image", "data": data}

    @property
    def _finish(self) -> str:
        """`length` where a draft reached its limit of tokens."""
        records = chain.from_iterable(self.made.notes.values())
        reached = any(record.get("finish") == "length" for record in records)
        return "length" if reached else "stop"

    @property
    def _usage(self) -> dict[str, Any]:
        usage = dict(self.made.usage)
        read = int(usage.pop("input_tokens", 0))
        written = int(usage.pop("output_tokens", 0))
        tokens = {"prompt_tokens": read, "completion_tokens": written}
        return tokens | {"total_tokens": read + written, **usage}


def _part(segment: Text | Image) -> dict[str, Any]:
    if isinstance(segment, Text):
        return {"type": "text", "text": segment.text}
    return {"type": "image_url", "image_url": {"url": data_url(segment)}}


def data_url(image: Image) -> str:
    """Return the image's own bytes, not encoded again."""
    encoded = base64.b64encode(image.read()).decode()
    return f"data:{image_facts(image).media_type};base64,{encoded}"


class ImageFacts(NamedTuple):
    """What the bytes of an image say of it."""

    media_type: str
    width: int
    height: int
    """Both in pixels."""


def image_facts(image: Image) -> ImageFacts:
    """Return media type and size of an image, of which only the head is decoded."""
    with Pillow.open(io.BytesIO(image.read())) as opened:
        kind = Pillow.MIME.get(opened.format or "", "application/octet-stream")
        return ImageFacts(kind, opened.width, opened.height)
