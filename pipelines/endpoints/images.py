"""Draws with any text-to-image model behind `/v1/images/generations`.

A request with images is sent to `/v1/images/edits`, as a form.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from plait.generators.base import Failure, Fault, Outcome, Result, Weights
from plait.generators.content import prompt_and_seed
from plait.generators.document import Image, ImageRequest, Text
from plait.generators.images import ImageError, decode
from plait.pipelines.endpoints.calls import PreparedCall
from plait.pipelines.endpoints.client import FormFile
from plait.pipelines.endpoints.errors import (
    EndpointError,
    MalformedReply,
    MissingPath,
    StatusError,
    is_of_path,
)
from plait.pipelines.endpoints.media import Media, MediaError
from plait.pipelines.endpoints.replies import (
    EndpointReply,
    at,
    count_usage,
    is_count,
    list_at,
    of_type,
    read_body,
    text_at,
    without_error,
)
from plait.pipelines.endpoints.settings import DIALECTS, ImagesSettings
from plait.pipelines.endpoints.stage import (
    NO_SEED,
    EndpointStage,
    SentImage,
    without_none,
)

_GENERATIONS = "/images/generations"
_EDITS = "/images/edits"
_IMAGES = "image[]"
"""Field of the images of an edit, whose body is sent as a form; OpenAI's own client names
it so where there may be several, and SGLang and vLLM-Omni take it too."""
_MOST_BYTES = 50 << 20
"""Of an image that is edited, by OpenAI's documentation."""
_COUNTS = {
    # SGLang has the names of chat completions.
    "input_tokens": "usage.input_tokens | usage.prompt_tokens",
    "output_tokens": "usage.output_tokens | usage.completion_tokens",
    "server_seconds": "inference_time_s",
    "peak_memory_mb": "peak_memory_mb | metrics.peak_memory_mb",
}


def images_reply(body: Mapping[str, Any], prompt: str) -> EndpointReply:
    """Return the images drawn for `prompt`, and what the server says besides."""
    data = list_at(body, "data")
    counts, refused = count_usage(
        body, _COUNTS, positive=["server_seconds", "peak_memory_mb"]
    )
    # Of vLLM-Omni, by the name of a method; those inside the whole are not counted twice.
    given_s = at(body, "metrics.stage_durations") or {}
    durations = {}
    whole = []
    for name, seconds in of_type(given_s, Mapping, "stage_durations").items():
        if not is_count(seconds):
            continue
        durations[name] = seconds
        if name.endswith(".forward"):
            whole.append(seconds)
    if whole:
        counts.setdefault("server_seconds", max(whole))
    revised = text_at(data[0], "revised_prompt") if data else None
    # SGLang repeats the prompt as it was.
    changed = None if revised == prompt else revised
    notes = {**refused}
    for name, value in {"revised_prompt": changed, "stage_durations": durations}.items():
        if value:
            notes[name] = value
    segments: list[Text | Media] = []
    for image in data:
        place = text_at(image, "b64_json") or text_at(image, "url") or ""
        segments.append(Media(place))
    # Every image counts, wanted or not.
    usage = counts | {"images": len(data)}
    reply = EndpointReply(segments=segments, usage=usage, notes=notes)
    reply.add_error(body.get("error"), counts)
    return reply


def _models(body: Mapping[str, Any]) -> list[str]:
    data = of_type(body.get("data"), list, "data")
    return [of_type(at(model, "id"), str, "a model's id") for model in data]


def _in_form(value: Any) -> str:
    """Return a field of JSON as forms have it."""
    return value if isinstance(value, str) else json.dumps(value)


class ImagesEndpoint(EndpointStage[ImageRequest, Image]):
    """ImageRequest -> Image, by a server: drawn, or edited from the request's images."""

    settings_class: ClassVar[type[ImagesSettings]] = ImagesSettings
    settings: ImagesSettings

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """As for every endpoint; no image is drawn for it."""
        super().__init__(weights, **settings)
        self._response_format = self.settings.sent_response_format
        self._accepted = False
        """Whether the server has answered any request with a reply."""

    async def probe(self) -> None:
        """Ask for the models; EndpointError where the server's own is another one."""
        settings = self.settings
        content = await self.listing("/models")
        if content is None:
            return
        try:
            names = read_body(_models, content)
        except MalformedReply as error:
            raise MalformedReply(f"/models gave no list: {error}") from None
        if DIALECTS[settings.dialect].own_model and names and settings.model not in names:
            raise EndpointError(
                f"endpoint {settings.url}: it has no model {settings.model!r}; it has "
                f"{', '.join(names)}"
            )

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        super().continue_from(usage)
        self._accepted = self._accepted or usage.get("images", 0) > 0

    def prepare(self, request: ImageRequest) -> PreparedCall | Failure:
        """Return what the server is sent for a request."""
        settings = self.settings
        dialect = DIALECTS[self.settings.dialect]
        read = prompt_and_seed(request, settings.prompt_prefix, images=True)
        if isinstance(read, Failure):
            return read
        prompt, seed = read
        sources = [part for part in request.context if isinstance(part, Image)]
        if sources and (reason := settings.reason_not_to_edit):
            return Failure(reason, Fault.BAD_INPUT)
        try:
            sent = [SentImage.of(source, None) for source in sources]
        except ImageError as error:
            return Failure(str(error), Fault.BAD_INPUT)
        if any(len(image.content) > _MOST_BYTES for image in sent):
            most = _MOST_BYTES >> 20
            return Failure(f"an image is larger than {most} MiB", Fault.BAD_INPUT)
        body = without_none(
            prompt=prompt, model=settings.model, size=settings.size, **dialect.defaults
        )
        for name, value in settings.chosen.items():
            body[dialect.fields[name]] = value
        notes = without_none(prompt=prompt, dialect=settings.dialect, seed=NO_SEED)
        if dialect.own_model:
            # Not shortened: the same number gives the same noise as a stage run here.
            body["seed"] = notes["seed"] = seed
        body |= settings.extra_body
        if sources:
            notes["input_images"] = [source.digest for source in sources]
            notes["image_sizes"] = [list(image.size) for image in sent]
            body[_IMAGES] = sent
        return PreparedCall(body, notes)

    async def answer(self, call: PreparedCall) -> Outcome[Image]:
        """As for every endpoint.

        A rejection is final for its record only where the settings have worked once.
        """
        match await super().answer(call):
            case Failure(fault=Fault.BAD_INPUT) as failure if not self._accepted:
                advice = f"no request has been accepted yet; check {self.settings.checked}"
                reason = f"{failure.reason.rstrip('.')} ({advice})"
                return replace(failure, reason=reason, fault=Fault.ENDPOINT)
            case outcome:
                return outcome

    async def send(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return the server's reply."""
        form = self._response_format
        try:
            return await self._draw(body, form)
        except StatusError as error:
            # LiteLLM rejects the field for models whose names do not tell.
            own_choice = form is not None and self.settings.response_format is None
            if not (own_choice and error.status == 400 and "response_format" in str(error)):
                raise
        self._response_format = None
        return await self._draw(body, None)

    async def _draw(self, body: Mapping[str, Any], form: str | None) -> EndpointReply:
        fields = dict(body) if form is None else {"response_format": form, **body}
        if (images := fields.pop(_IMAGES, None)) is None:
            content = await self._client.exchange(_GENERATIONS, fields)
        else:
            content = await self._edit(fields, images)
        read = partial(images_reply, prompt=body["prompt"])
        return without_error(read_body(read, content))

    async def _edit(self, fields: Mapping[str, Any], images: Sequence[SentImage]) -> bytes:
        files = []
        for number, image in enumerate(images):
            name = f"image-{number}.{image.mime.partition('/')[2]}"
            files.append(FormFile(_IMAGES, name, image.content, image.mime))
        form = {name: _in_form(value) for name, value in fields.items()}
        try:
            return await self._client.upload(_EDITS, form, files)
        except StatusError as error:
            if not is_of_path(error):
                raise
            raise MissingPath(_EDITS, error) from error

    async def outcome(self, reply: EndpointReply) -> Outcome[Image]:
        """Return the one image asked for, or the failure that any other reply is."""
        self._accepted = True
        if failure := reply.stop():
            return failure
        if len(reply.images) != 1:
            count = len(reply.images) or "no"
            reason = f"the reply holds {count} images; one was asked for"
            return reply.failure(reason, Fault.ENDPOINT)
        try:
            image = await self._media.read(reply.images[0])
        except MediaError as error:
            reason = f"the image cannot be read: {error}"
            return reply.failure(reason, Fault.ENDPOINT)
        # Decoding megapixels would hold up the loop of all other requests.
        return await asyncio.to_thread(self._check, image, reply)

    def _check(self, image: Image, reply: EndpointReply) -> Outcome[Image]:
        """Return the image, with its size; a failure where it is wholly black."""
        pixels = decode(image)
        asked = self.settings.size
        notes = {**reply.notes, "size": list(pixels.size)}
        if asked not in (None, f"{pixels.width}x{pixels.height}"):
            notes["size_asked_for"] = asked
        if not pixels.getbbox():
            reason = "the image is wholly black"
            return Failure(reason, Fault.ERROR, reply.usage, notes)
        return Result(image, reply.usage, notes)
