"""A document as the reply to a chat request, whole or as a stream of events."""

from __future__ import annotations

import base64
import io
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from PIL import Image as Pillow

from benchmarks.serving.served import ServedModel
from generators.document import Document, Image, Text

PictureFormat = Literal["segments", "images", "content"]


@dataclass(frozen=True, kw_only=True)
class ChatReply:
    """An answer, and what is said about it."""

    model: ServedModel
    document: Document
    notes: Mapping[str, Any]
    usage: Mapping[str, float]
    seed: int
    format: PictureFormat | None = None
    """Where its pictures are; None for `segments` and `images`."""
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def whole(self) -> dict[str, Any]:
        """The reply in one piece."""
        choice = {
            "index": 0,
            "message": self._message(),
            "finish_reason": self._finish,
            "logprobs": None,
        }
        return self._about("chat.completion") | {"choices": [choice], "usage": self._usage}

    def events(self, include_usage: bool) -> Iterator[str]:
        """Server-sent events: one for each segment, in order, then the end.

        The texts of all events, joined, are the `content` of the whole reply.
        """
        yield self._event({"role": "assistant", "content": ""})
        gap = ""
        for number, segment in enumerate(self.document.segments):
            if isinstance(segment, Text):
                yield self._event({"content": gap + segment.text})
                gap = "\n"
            else:
                yield self._event(self._picture_delta(segment, number))
        yield self._event({}, self._finish)
        if include_usage:
            about = self._about("chat.completion.chunk")
            yield _sent(about | {"choices": [], "usage": self._usage})
        yield "data: [DONE]\n\n"

    def _about(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model.name,
            "system_fingerprint": self.model.fingerprint,
            "seed": self.seed,
        }

    def _message(self) -> dict[str, Any]:
        """Text is always in `content`; pictures besides, unless `content` holds them."""
        segments = self.document.segments
        message: dict[str, Any] = {"role": "assistant", "content": self.document.text}
        images = self.document.images
        if not images:
            return message
        if self.format == "content":
            return message | {"content": [_part(s) for s in segments]}
        if self.format in (None, "images"):
            message["images"] = [_picture(i, number) for number, i in enumerate(images)]
        if self.format in (None, "segments"):
            message["segments"] = [self._segment(s, n) for n, s in enumerate(segments)]
        return message

    def _picture_delta(self, segment: Image, number: int) -> dict[str, Any]:
        delta: dict[str, Any] = {}
        if self.format != "segments":
            delta["images"] = [_picture(segment, number)]
        if self.format in (None, "segments"):
            delta["segment"] = self._segment(segment, number)
        return delta

    def _segment(self, segment: Text | Image, number: int) -> dict[str, Any]:
        """As SGLang-Omni 0.1 writes it."""
        about = {"type": "segment", "execution_id": self.id, "segment_index": number}
        if isinstance(segment, Text):
            return about | {"kind": "text", "data": segment.text}
        data = {
            "kind": "image",
            "mime_type": mime_of(segment),
            "size_bytes": len(segment.read()),
            "sha256": segment.digest,
            "url": data_url(segment),
        }
        return about | {"kind": "image", "data": data}

    def _event(self, delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _sent(self._about("chat.completion.chunk") | {"choices": [choice]})

    @property
    def _finish(self) -> str:
        """`length` where a draft reached its limit of tokens."""
        records = (r for records in self.notes.values() for r in records)
        return "length" if any(r.get("finish") == "length" for r in records) else "stop"

    @property
    def _usage(self) -> dict[str, Any]:
        usage = dict(self.usage)
        read, written = (int(usage.pop(k, 0)) for k in ("input_tokens", "output_tokens"))
        tokens = {"prompt_tokens": read, "completion_tokens": written}
        return tokens | {"total_tokens": read + written, **usage}


def _sent(event: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"


def _part(segment: Text | Image) -> dict[str, Any]:
    if isinstance(segment, Text):
        return {"type": "text", "text": segment.text}
    return {"type": "image_url", "image_url": {"url": data_url(segment)}}


def _picture(image: Image, number: int) -> dict[str, Any]:
    return {"index": number, "type": "image_url", "image_url": {"url": data_url(image)}}


def data_url(image: Image) -> str:
    """The picture's own bytes, not encoded again."""
    return f"data:{mime_of(image)};base64,{base64.b64encode(image.read()).decode()}"


def mime_of(image: Image) -> str:
    """The media type of the picture's bytes."""
    with Pillow.open(io.BytesIO(image.read())) as picture:
        return Pillow.MIME.get(picture.format or "", "application/octet-stream")


def size_of(image: Image) -> tuple[int, int]:
    """Width and height in pixels."""
    with Pillow.open(io.BytesIO(image.read())) as picture:
        return picture.size
