"""Stages behind a server: many requests at once, each answered alone.

Conversations are written as the OpenAI chat API takes them, images as data URLs; APIs of
another form are given what follows from these messages.
"""

from __future__ import annotations

import asyncio
import base64
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

import openai
from PIL import ExifTags
from PIL import Image as Pillow

from generators.base import Failure, Outcome, Skip, Weights
from generators.document import Draft, Image, Request, Text, Turn
from generators.pictures import PictureError, decode
from pipelines.chat.settings import ConversationSettings, ServerSettings
from pipelines.chat.turns import ControlTokens, too_many_images, turns_of
from pipelines.endpoints.client import LISTING_FAILURES, EndpointClient
from pipelines.endpoints.media import MediaReader
from pipelines.endpoints.replies import Account, EndpointReply, interleaved_outcome
from pipelines.endpoints.settings import InterleavedSettings

Message = dict[str, Any]
"""A message as the OpenAI chat API takes it."""
Messages = Sequence[Message]
_MIME = {"JPEG": "image/jpeg", "PNG": "image/png"}
_JPEG_QUALITY = 95
_LARGEST_SEED = 2**31
"""Most servers read the seed as a 32-bit integer."""
NO_SEED = "not taken by the server"
In = TypeVar("In")
Prepared = TypeVar("Prepared")
Out = TypeVar("Out")


class EndpointStage(ABC, Generic[In, Prepared, Out]):
    """A stage by a server; calls may come from several threads."""

    concurrent: ClassVar[bool] = True

    def __init__(self, settings: ServerSettings) -> None:
        """Ask the server what `begin` asks; EndpointError where it cannot be used."""
        self._client = EndpointClient(settings)
        try:
            self._client.run(self.begin())
        except BaseException:
            self.close()
            raise

    @abstractmethod
    async def begin(self) -> None:
        """Find out whether server, key, model and settings are usable."""

    @abstractmethod
    def prepared(self, request: In) -> Prepared | Skip | Failure:
        """What is sent for a request; runs in the caller's thread."""

    @abstractmethod
    async def answer(self, call: Prepared) -> Outcome[Out]:
        """The server's answer to one request, retried and counted by the client."""

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        self._client.continue_from(usage)

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._client.close()

    def __call__(self, inputs: Sequence[In]) -> list[Outcome[Out]]:
        """One outcome per input, in order; what cannot be answered fails alone."""
        calls = [self.prepared(request) for request in inputs]
        return self._client.run(self._all(calls))

    async def _all(self, calls: Sequence[Prepared | Skip | Failure]) -> list[Outcome[Out]]:
        async def one(call: Prepared | Skip | Failure) -> Outcome[Out]:
            return call if isinstance(call, Skip | Failure) else await self.answer(call)

        return list(await asyncio.gather(*map(one, calls)))


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """One request, ready to be sent, and what its record notes of it."""

    body: Mapping[str, Any]
    notes: dict[str, Any]


class ConversationEndpoint(EndpointStage[Request, PreparedCall, Draft]):
    """Request -> Draft, by a server.

    A subclass says what its API is sent, and how its replies are read.
    """

    settings_class: ClassVar[type[ConversationSettings]]
    settings: ConversationSettings
    own_pictures: ClassVar[bool] = False
    """Whether the API takes images in turns of the assistant."""

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """Ask the server what `begin` asks; `settings` are those of `settings_class`.

        Raises EndpointError when the server is dead or the key wrong. `weights` do not
        apply to endpoints.
        """
        self.settings = self.settings_class.model_validate(settings)
        self._control = ControlTokens(self.settings.control_tokens)
        super().__init__(self.settings)

    @abstractmethod
    def body(self, messages: Messages, request: Request) -> dict[str, Any]:
        """What the API is sent."""

    @abstractmethod
    async def sent(self, body: Mapping[str, Any]) -> EndpointReply:
        """The API's reply to a body."""

    @abstractmethod
    async def outcome(self, reply: EndpointReply, account: Account) -> Outcome[Draft]:
        """The draft that a reply holds, or the failure that it is."""

    def remarks(self, request: Request) -> dict[str, Any]:
        """What the record notes of a request besides its messages."""
        return {}

    def seed(self, request: Request) -> int | None:
        """The record's seed as servers take it; None where it is not sent."""
        if not getattr(self.settings, "send_seed", False) or request.seed is None:
            return None
        return request.seed % _LARGEST_SEED

    def prepared(self, request: Request) -> PreparedCall | Skip | Failure:
        """What the API is sent for a request, or why it cannot be sent."""
        if skip := too_many_images(request, self.settings.max_images):
            return skip
        turns, broken = self._control.neutralise(turns_of(request, self.settings.system))
        try:
            messages = messages_of(turns, self.settings, self.own_pictures)
        except PictureError as error:
            return Failure(str(error))
        notes: dict[str, Any] = {"prompt": _readable(messages, turns)}
        notes["images"] = len(request.images)
        if request.images:
            notes["image_sizes"] = _image_sizes(messages)
        if broken:
            notes["neutralised"] = broken
        return PreparedCall(self.body(messages, request), notes | self.remarks(request))

    async def answer(self, call: PreparedCall) -> Outcome[Draft]:
        """What the server's reply holds."""
        answered = await self._client.request(
            lambda: self.sent(call.body), lambda reply: reply.usage, call.notes
        )
        if isinstance(answered, Failure):
            return answered
        reply = answered.reply
        about = {"finish": reply.finish, "model": reply.model, **reply.notes}
        notes = call.notes | about | {"attempts": answered.attempts}
        return await self.outcome(reply, Account(answered.usage, notes))


class InterleavedEndpoint(ConversationEndpoint):
    """Request -> Draft of text and images, by a server."""

    settings_class: ClassVar[type[InterleavedSettings]]
    settings: InterleavedSettings

    async def begin(self) -> None:
        """Send a request that costs nothing."""
        self._media = MediaReader(self.settings.image_hosts)
        await self._client.preflight(self.probe)

    async def probe(self) -> Any:
        """A request that costs nothing and shows whether server and key are usable."""
        try:
            return await self._client.openai.get("/models", cast_to=object)
        except openai.APIStatusError as error:
            if error.status_code in LISTING_FAILURES:
                raise
            return None

    def remarks(self, request: Request) -> dict[str, Any]:
        """The seed, and whether text alone is asked for."""
        seed = self.seed(request)
        remarks: dict[str, Any] = {"seed": NO_SEED if seed is None else seed}
        return remarks | ({"modality": request.modality} if request.modality else {})

    async def outcome(self, reply: EndpointReply, account: Account) -> Outcome[Draft]:
        """The text and images, in order."""
        return await interleaved_outcome(reply, account, self._media)


def messages_of(
    turns: Sequence[Turn], settings: ConversationSettings, own_pictures: bool = False
) -> list[Message]:
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


def _message(role: str, turn: Turn, settings: ConversationSettings) -> Message:
    """Text alone as a plain string, which every server takes."""
    texts = [s.text for s in turn.content if isinstance(s, Text)]
    if len(texts) == len(turn.content):
        return {"role": role, "content": "".join(texts)}
    return {"role": role, "content": [_part(s, settings) for s in turn.content]}


def _part(segment: Text | Image, settings: ConversationSettings) -> Message:
    if isinstance(segment, Text):
        return {"type": "text", "text": segment.text}
    url = data_url(segment, settings.image_max_side, settings.image_format)
    image = {"url": url}
    if settings.image_detail != "auto":
        image["detail"] = settings.image_detail
    return {"type": "image_url", "image_url": image}


def _image_sizes(messages: Messages) -> list[list[int]]:
    """Width and height of every image as sent, in order."""
    contents = (m["content"] for m in messages if isinstance(m["content"], list))
    parts = (part for content in contents for part in content)
    return [_size_of(p["image_url"]["url"]) for p in parts if p["type"] == "image_url"]


def _readable(messages: Messages, turns: Sequence[Turn]) -> list[Message]:
    """The messages with each image's digest in place of its bytes, for the notes."""
    digests = iter([s.digest for t in turns for s in t.content if isinstance(s, Image)])

    def shown(part: Message) -> Message:
        return (
            part if part["type"] == "text" else {"type": "image", "sha256": next(digests)}
        )

    return [
        m if isinstance(m["content"], str) else m | {"content": [*map(shown, m["content"])]}
        for m in messages
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


def _size_of(url: str) -> list[int]:
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
