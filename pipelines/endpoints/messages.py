"""Requests as the OpenAI chat API takes them, pictures as data URLs."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any, Literal

from PIL import ExifTags
from PIL import Image as Pillow

from generators.document import Image, Text, Turn
from generators.pictures import decode
from pipelines.chat.settings import ConversationSettings, EndpointSettings

_MIME = {"JPEG": "image/jpeg", "PNG": "image/png"}
_JPEG_QUALITY = 95


def messages_of(
    turns: Sequence[Turn], settings: ConversationSettings, own_pictures: bool = False
) -> list[dict[str, Any]]:
    """The messages of a request; PictureError for a picture that cannot be read.

    The API takes pictures only from users, so those of an assistant's turn follow it in
    a user's message; with `own_pictures` they stay in their place.
    """
    messages = []
    for turn in turns:
        if turn.role == "user" or (own_pictures and turn.role == "assistant"):
            messages.append(_message(turn.role, turn, settings))
            continue
        text = "".join(s.text for s in turn.content if isinstance(s, Text))
        messages.append({"role": turn.role, "content": text})
        pictures = tuple(s for s in turn.content if isinstance(s, Image))
        if pictures:
            messages.append(_message("user", Turn("user", pictures), settings))
    return messages


def _message(role: str, turn: Turn, settings: ConversationSettings) -> dict[str, Any]:
    """Text alone as a plain string, which every server takes."""
    texts = [s.text for s in turn.content if isinstance(s, Text)]
    if len(texts) == len(turn.content):
        return {"role": role, "content": "".join(texts)}
    return {"role": role, "content": [_part(s, settings) for s in turn.content]}


def _part(segment: Text | Image, settings: ConversationSettings) -> dict[str, Any]:
    if isinstance(segment, Text):
        return {"type": "text", "text": segment.text}
    url = data_url(segment, settings.image_max_side, settings.image_format)
    image = {"url": url}
    if settings.image_detail != "auto":
        image["detail"] = settings.image_detail
    return {"type": "image_url", "image_url": image}


def image_sizes(messages: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Width and height of every picture as sent, in order."""
    contents = (m["content"] for m in messages if isinstance(m["content"], list))
    parts = (part for content in contents for part in content)
    return [size_of(p["image_url"]["url"]) for p in parts if p["type"] == "image_url"]


def body_of(
    messages: Sequence[dict[str, Any]],
    settings: EndpointSettings,
    seed: int | None,
    most_tokens: int | None = None,
) -> dict[str, Any]:
    """Arguments of the SDK's `chat.completions.create`, without those left open.

    The reply has at most `most_tokens` tokens, where the settings allow more.
    """
    limits = [n for n in (settings.max_tokens, most_tokens) if n is not None]
    body: dict[str, Any] = {
        "model": settings.model,
        "messages": list(messages),
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        settings.max_tokens_field: min(limits, default=None),
        "extra_body": settings.extra_body or None,
    }
    if settings.send_seed and seed is not None:
        # Most servers read the seed as a 32-bit integer.
        body["seed"] = seed % 2**31
    return {k: v for k, v in body.items() if v is not None}


def readable(messages: Sequence[dict[str, Any]], turns: Sequence[Turn]) -> list[Any]:
    """The messages with each picture's digest in place of its bytes, for the notes."""
    digests = iter([s.digest for t in turns for s in t.content if isinstance(s, Image)])
    return [m | {"content": _readable(m["content"], digests)} for m in messages]


def _readable(content: Any, digests: Any) -> Any:
    if isinstance(content, str):
        return content
    return [
        part if part["type"] == "text" else {"type": "image", "sha256": next(digests)}
        for part in content
    ]


def data_url(image: Image, max_side: int, encoding: Literal["png", "jpeg"]) -> str:
    """The picture as a data URL with neither side longer than `max_side` pixels.

    JPEG and PNG bytes that every server reads alike are sent unchanged; pictures that are
    too large, rotated, transparent or in another format are encoded again. PictureError
    for bytes that are not a picture.
    """
    picture = decode(image)
    mime = _sendable(image.read(), max_side)
    if mime is not None:
        return _url(image.read(), mime)
    picture.thumbnail((max_side, max_side), Pillow.Resampling.LANCZOS)
    file = io.BytesIO()
    if encoding == "jpeg":
        picture.save(file, "JPEG", quality=_JPEG_QUALITY)
    else:
        picture.save(file, "PNG")
    return _url(file.getvalue(), f"image/{encoding}")


def size_of(url: str) -> list[int]:
    """Width and height, in pixels, of the picture in a data URL of `data_url`."""
    data = base64.b64decode(url.partition(",")[2])
    with Pillow.open(io.BytesIO(data)) as picture:
        return list(picture.size)


def _sendable(data: bytes, max_side: int) -> str | None:
    """Media type of bytes that need no change."""
    with Pillow.open(io.BytesIO(data)) as picture:
        upright = picture.getexif().get(ExifTags.Base.Orientation, 1) == 1
        opaque = picture.mode in ("RGB", "L") and "transparency" not in picture.info
        if not (upright and opaque) or max(picture.size) > max_side:
            return None
        return _MIME.get(picture.format or "")


def _url(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"
