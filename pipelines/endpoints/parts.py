"""The parts of a reply: text and pictures in order, whatever the server calls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from generators.document import Text
from pipelines.endpoints.errors import MalformedReply
from pipelines.endpoints.media import Media

ORDER_UNKNOWN = "unknown: the server gives pictures apart from the text"

_TEXTS = ("text", "output_text", "input_text")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text")
_PICTURES = ("image_url", "image", "output_image", "input_image")
_SOURCES = ("image_url", "url", "b64_json", "image", "data", "source", "result")
_TYPES = ("mime_type", "media_type", "mimeType")


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
