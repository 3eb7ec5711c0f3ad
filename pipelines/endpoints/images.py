"""Draws with any text-to-image model behind `/v1/images/generations`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import BaseModel

from generators.base import Failure, Fault, Outcome, Result, Weights
from generators.document import Image, ImageRequest
from generators.images import decode
from pipelines.endpoints.errors import EndpointError, MalformedReply, StatusError
from pipelines.endpoints.media import Media, MediaError
from pipelines.endpoints.replies import Counts, EndpointReply, read_body
from pipelines.endpoints.settings import DIALECTS, ImagesSettings
from pipelines.endpoints.stage import NO_SEED, EndpointStage, PreparedCall, given
from pipelines.prompts import prompt_and_seed

_USAGE = {"input_tokens": "input_tokens", "output_tokens": "output_tokens"}
_OF_SGLANG = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}


class _Model(BaseModel):
    id: str


class _Listing(BaseModel):
    data: list[_Model]


class _Drawn(BaseModel):
    b64_json: str | None = None
    url: str | None = None
    revised_prompt: str | None = None


class _Metrics(BaseModel):
    """Of vLLM-Omni."""

    stage_durations: dict[str, float] | None = None
    """Seconds by the name of a method; that of the whole pipeline is `forward`."""
    peak_memory_mb: float | None = None


class ImagesReply(BaseModel):
    """An answer of `/v1/images/generations`, read leniently."""

    data: list[_Drawn]
    usage: dict[str, Any] | None = None
    inference_time_s: float | None = None
    peak_memory_mb: float | None = None
    metrics: _Metrics | None = None

    def read(self, prompt: str) -> EndpointReply:
        """Return the images drawn for `prompt`, and what the server says besides."""
        counts, durations = self._counts(), self.metrics and self.metrics.stage_durations
        revised = self.data[0].revised_prompt if self.data else None
        # SGLang repeats the prompt as it was.
        changed = None if revised == prompt else revised
        about = {"revised_prompt": changed, "stage_durations": durations}
        return EndpointReply(
            segments=[Media(d.b64_json or d.url or "") for d in self.data],
            usage=counts.known,
            notes=counts.notes | {name: value for name, value in about.items() if value},
        )

    def _counts(self) -> Counts:
        """Return what the server says it used; every image counts, wanted or not."""
        metrics = self.metrics or _Metrics()
        durations = metrics.stage_durations or {}
        # The stages inside the whole pipeline are not counted twice.
        whole = [s for name, s in durations.items() if name.endswith(".forward")]
        tokens = {_OF_SGLANG.get(n, n): count for n, count in (self.usage or {}).items()}
        counts = Counts.of(tokens, _USAGE)
        return counts.changed(
            images=len(self.data),
            server_seconds=self.inference_time_s or max(whole, default=None),
            peak_memory_mb=self.peak_memory_mb or metrics.peak_memory_mb,
        )


class ImagesEndpoint(EndpointStage[ImageRequest, Image]):
    """ImageRequest -> Image, by a server."""

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
        s = self.settings
        content = await self.listing("/models")
        if content is None:
            return
        try:
            names = read_body(
                _Listing, lambda listing: [m.id for m in listing.data], content
            )
        except MalformedReply as error:
            raise MalformedReply(f"/models gave no list: {error}") from None
        if DIALECTS[s.dialect].own_model and names and s.model not in names:
            raise EndpointError(
                f"endpoint {s.url}: it has no model {s.model!r}; it has {', '.join(names)}"
            )

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        super().continue_from(usage)
        self._accepted = self._accepted or usage.get("images", 0) > 0

    def prepared(self, request: ImageRequest) -> PreparedCall | Failure:
        """Return what the server is sent for a request."""
        s, dialect = self.settings, DIALECTS[self.settings.dialect]
        read = prompt_and_seed(request, s.prompt_prefix)
        if isinstance(read, Failure):
            return read
        prompt, seed = read
        body = given(prompt=prompt, model=s.model, size=s.size, **dialect.defaults)
        body |= {dialect.fields[name]: value for name, value in s.chosen.items()}
        notes = given(prompt=prompt, dialect=s.dialect, seed=NO_SEED)
        if dialect.own_model:
            # Not shortened: the same number gives the same noise as a stage run here.
            body["seed"] = notes["seed"] = seed
        return PreparedCall(body | s.extra_body, notes)

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

    async def sent(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return the server's reply."""
        form = self._response_format
        try:
            return await self._drawn(body, form)
        except StatusError as error:
            # LiteLLM rejects the field for models whose names do not tell.
            own_choice = form is not None and self.settings.response_format is None
            if not (own_choice and error.status == 400 and "response_format" in str(error)):
                raise
        self._response_format = None
        return await self._drawn(body, None)

    async def _drawn(self, body: Mapping[str, Any], form: str | None) -> EndpointReply:
        own = {} if form is None else {"response_format": form}
        content = await self._client.exchange("/images/generations", {**own, **body})
        return read_body(ImagesReply, lambda reply: reply.read(body["prompt"]), content)

    async def outcome(self, reply: EndpointReply) -> Outcome[Image]:
        """Return the one image asked for, or the failure that any other reply is."""
        self._accepted = True
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
        return await asyncio.to_thread(self._checked, image, reply)

    def _checked(self, image: Image, reply: EndpointReply) -> Outcome[Image]:
        """Return the image, with its size; a failure where it is wholly black."""
        pixels, asked = decode(image), self.settings.size
        notes = {**reply.notes, "size": list(pixels.size)}
        if asked not in (None, f"{pixels.width}x{pixels.height}"):
            notes["size_asked_for"] = asked
        if not pixels.getbbox():
            reason = "the image is wholly black"
            return Failure(reason, Fault.ERROR, reply.usage, notes)
        return Result(image, reply.usage, notes)
