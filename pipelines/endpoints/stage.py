"""Stages behind a server: many requests at once, each answered alone."""

from __future__ import annotations

import asyncio
import base64
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, cast

from PIL import ExifTags
from PIL import Image as Pillow

from plait.generators.base import (
    Failure,
    Fault,
    Outcome,
    Result,
    Skip,
    StageSpec,
    Weights,
)
from plait.generators.buckets import AnyPath
from plait.generators.content import answer_all, join_texts
from plait.generators.document import Draft, Image, Request, Text, Turn
from plait.generators.errors import UsageError
from plait.generators.images import ImageError, decode
from plait.pipelines.chat.settings import ConversationSettings, ServerSettings
from plait.pipelines.chat.turns import ControlTokens, too_many_images, turns_of
from plait.pipelines.endpoints.calls import BatchedStage, PreparedCall
from plait.pipelines.endpoints.client import EndpointClient
from plait.pipelines.endpoints.errors import StatusError
from plait.pipelines.endpoints.media import MediaError, MediaReader
from plait.pipelines.endpoints.replies import EndpointReply

if TYPE_CHECKING:
    from plait.pipelines.endpoints.batch_apis import BatchApi
    from plait.pipelines.endpoints.desk import BatchDesk

Message = dict[str, Any]
"""A role and a content: a plain text, or parts `{"type": "text", "text": ...}` and
`{"type": "image", "sha256": ...}`. So are prompts noted; each API is sent its own form."""
_LISTING_FAILURES = (401, 403, 408, 409, 429, 503)
"""Statuses of a listing that end or delay a stage; others say that there is no list."""
_MIME = {"JPEG": "image/jpeg", "PNG": "image/png"}
_LARGEST_SEED = 2**31
"""Most servers read the seed as a 32-bit integer."""
NO_SEED = "not taken by the server"
In = TypeVar("In")
Out = TypeVar("Out")


class EndpointStage(ABC, Generic[In, Out]):
    """A stage by a server; calls may come from several threads.

    A subclass says what its API is sent, and how its replies are read.
    """

    concurrent: ClassVar[bool] = True
    settings_class: ClassVar[type[ServerSettings]]
    settings: ServerSettings
    _desk: BatchDesk | None = None

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """Ask the server what `probe` asks; `settings` are those of `settings_class`.

        Raises EndpointError when the server is dead, or its key, model or settings are not
        accepted. `weights` do not apply to endpoints.
        """
        self.settings = self.settings_class.model_validate(settings)
        self._media = MediaReader(getattr(self.settings, "image_hosts", ()))
        self._client = EndpointClient(self.settings)
        try:
            self._client.run(self._client.begin(self.probe))
        except BaseException:
            self.close()
            raise

    async def probe(self) -> EndpointReply | None:
        """Ask for what costs nothing, to see whether server and key are usable."""
        await self.listing("/models")
        return None

    async def listing(self, path: str) -> bytes | None:
        """Return the server's answer to GET; None where it has none to give."""
        try:
            return await self._client.exchange(path)
        except StatusError as error:
            if error.status in _LISTING_FAILURES:
                raise
            return None

    @abstractmethod
    def prepare(self, request: In) -> PreparedCall | Skip | Failure:
        """Return what is sent for a request; runs in the caller's thread."""

    @abstractmethod
    async def send(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return the API's reply to a body."""

    @abstractmethod
    async def outcome(self, reply: EndpointReply) -> Outcome[Out]:
        """Return what a reply holds, or the failure that it is."""

    def parse(self, content: bytes) -> EndpointReply:
        """Return what the server's answer to a body says; of stages that use batches."""
        raise NotImplementedError

    def batch_api(self) -> BatchApi:
        """Return how the provider takes requests in batches; UsageError if it does not."""
        raise UsageError(f"{type(self).__name__} hands no requests in to batches")

    def desk(self, root: AnyPath, spec: StageSpec) -> BatchDesk:
        """Return where requests are handed in to batches, which `root` notes; UsageError.

        `spec` is that of this stage, which drafts.
        """
        from plait.pipelines.endpoints.desk import BatchDesk

        stage = cast(BatchedStage, self)
        self._desk = BatchDesk(stage, self.batch_api(), root, spec)
        return self._desk

    @property
    def client(self) -> EndpointClient:
        """What sends its requests."""
        return self._client

    async def answer(self, call: PreparedCall) -> Outcome[Out]:
        """Return what the server's reply holds, retried and counted by the client."""
        reply = await self._client.request(lambda: self.send(call.body), call.notes)
        return reply if isinstance(reply, Failure) else await self.outcome(reply)

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        self._client.continue_from(usage)

    def close(self) -> None:
        """Close the connections and end the thread."""
        if self._desk is not None:
            self._desk.close()
        self._client.close()

    def __call__(self, inputs: Sequence[In]) -> list[Outcome[Out]]:
        """Return one outcome per input; what cannot be answered fails alone."""
        calls = [self.prepare(request) for request in inputs]
        return answer_all(calls, lambda ready: self._client.run(self._all(ready)))

    async def _all(self, calls: Sequence[PreparedCall]) -> list[Outcome[Out]]:
        return list(await asyncio.gather(*map(self.answer, calls)))


class ConversationEndpoint(EndpointStage[Request, Draft]):
    """Request -> Draft of text and images, by a server."""

    settings: ConversationSettings
    own_images: ClassVar[bool] = False
    """Whether the API takes images in turns of the assistant."""

    @cached_property
    def _control(self) -> ControlTokens:
        return ControlTokens(self.settings.control_tokens)

    @abstractmethod
    def body(self, messages: Sequence[Message], request: Request) -> dict[str, Any]:
        """Return what the API is sent; images of the messages are in their API's form."""

    @abstractmethod
    def part(self, image: SentImage) -> dict[str, Any]:
        """Return an image as the API takes it in a message."""

    def messages(self, turns: Sequence[Turn], request: Request) -> list[Message]:
        """Return the messages of a request's turns."""
        return messages_of(turns, self.own_images)

    def text_part(self, text: str) -> dict[str, Any]:
        """Return a text as the API takes it beside images."""
        return {"type": "text", "text": text}

    def remarks(self, request: Request) -> dict[str, Any]:
        """Return what the record notes of a request besides its messages."""
        seed = self.seed(request)
        notes: dict[str, Any] = {"seed": NO_SEED if seed is None else seed}
        return notes | without_none(modality=request.modality)

    def seed(self, request: Request) -> int | None:
        """Return the record's seed as servers take it; None where it is not sent."""
        if not getattr(self.settings, "send_seed", False) or request.seed is None:
            return None
        return request.seed % _LARGEST_SEED

    def prepare(self, request: Request) -> PreparedCall | Skip | Failure:
        """Return what the API is sent for a request, or why it cannot be sent."""
        if skip := too_many_images(request, self.settings.max_images):
            return skip
        images = {}
        sizes = []
        try:
            for image in request.images:
                images[image.digest] = self._image_to_send(image)
                sizes.append(list(images[image.digest].size))
        except ImageError as error:
            return Failure(str(error))
        turns, broken = self._control.neutralise(turns_of(request, self.settings.system))
        messages = self.messages(turns, request)
        # The record notes messages with digests in the place of the images' bytes.
        notes: dict[str, Any] = {"prompt": messages, "images": len(request.images)}
        if sizes:
            notes["image_sizes"] = sizes
        if broken:
            notes["neutralised"] = broken
        sent = [self._in_form(message, images) for message in messages]
        body = self.body(sent, request)
        return PreparedCall(body, notes | self.remarks(request))

    async def outcome(self, reply: EndpointReply) -> Outcome[Draft]:
        """Return text and images, in order; a failure where one image cannot be read."""
        if failure := reply.problem():
            return failure
        segments: list[Text | Image] = []
        for number, segment in enumerate(reply.segments, start=1):
            if isinstance(segment, Text):
                segments.append(segment)
                continue
            try:
                segments.append(await self._media.read(segment))
            except MediaError as error:
                reason = f"image (part {number} of the reply) cannot be read: {error}"
                return reply.failure(reason, Fault.ENDPOINT)
        content: list[Text | Image] = []
        for part in join_texts(segments):
            if isinstance(part, Image):
                content.append(part)
            elif text := part.text.strip():
                content.append(Text(text))
        return Result(Draft(tuple(content)), reply.usage, reply.notes)

    def _image_to_send(self, image: Image) -> SentImage:
        settings = self.settings
        return SentImage.of(image, settings.image_max_side, settings.image_format)

    def _in_form(self, message: Message, images: Mapping[str, SentImage]) -> Message:
        """Return a message as the API takes it; `images` are by digest."""
        if isinstance(message["content"], str):
            return message
        parts: list[dict[str, Any]] = []
        for part in message["content"]:
            if part["type"] == "text":
                parts.append(self.text_part(part["text"]))
            else:
                parts.append(self.part(images[part["sha256"]]))
        return message | {"content": parts}


def without_none(**values: Any) -> dict[str, Any]:
    """Return the values that are not left to the server."""
    return {name: value for name, value in values.items() if value is not None}


def messages_of(turns: Sequence[Turn], own_images: bool = False) -> list[Message]:
    """Return the messages of a request.

    APIs take images only from users, so those of an assistant's turn follow it in a user's
    message; with `own_images` they stay in their place.
    """
    messages = []
    for turn in turns:
        if turn.role == "user" or (own_images and turn.role == "assistant"):
            messages.append(_message(turn.role, turn.content))
            continue
        texts = []
        images = []
        for part in turn.content:
            if isinstance(part, Text):
                texts.append(part)
            else:
                images.append(part)
        messages.append(_message(turn.role, texts))
        if images:
            messages.append(_message("user", images))
    return messages


def _message(role: str, content: Sequence[Text | Image]) -> Message:
    """Return text alone as a plain string, which every server takes."""
    texts = [part.text for part in content if isinstance(part, Text)]
    if len(texts) == len(content):
        return {"role": role, "content": "".join(texts)}
    parts: list[dict[str, Any]] = []
    for segment in content:
        if isinstance(segment, Text):
            parts.append({"type": "text", "text": segment.text})
        else:
            parts.append({"type": "image", "sha256": segment.digest})
    return {"role": role, "content": parts}


class SentImage(NamedTuple):
    """An image as servers are sent it."""

    mime: str
    content: bytes
    """The file."""
    size: tuple[int, int]
    """Width and height in pixels."""

    @property
    def data(self) -> str:
        """The file in base64."""
        return base64.b64encode(self.content).decode()

    @property
    def url(self) -> str:
        """A data URL."""
        return f"data:{self.mime};base64,{self.data}"

    @classmethod
    def of(cls, image: Image, max_side: int | None, encoding: str = "png") -> SentImage:
        """Encode an image with neither side longer than `max_side` pixels.

        JPEG and PNG bytes that every server reads alike are sent unchanged; images that
        are too large, rotated, transparent or in another format are encoded again.
        ImageError for bytes that are not an image.
        """
        pixels = decode(image)
        most = max(pixels.size) if max_side is None else max_side
        data = image.read()
        mime = _sendable(data, most)
        if mime is None:
            pixels.thumbnail((most, most), Pillow.Resampling.LANCZOS)
            file = io.BytesIO()
            pixels.save(file, encoding, quality=95)
            data = file.getvalue()
            mime = f"image/{encoding}"
        return cls(mime, data, pixels.size)


def _sendable(data: bytes, max_side: int) -> str | None:
    """Return the type of an image that can be sent as it is; None for any other."""
    with Pillow.open(io.BytesIO(data)) as image:
        upright = image.getexif().get(ExifTags.Base.Orientation, 1) == 1
        opaque = image.mode in ("RGB", "L") and "transparency" not in image.info
        if not (upright and opaque) or max(image.size) > max_side:
            return None
        return _MIME.get(image.format or "")
