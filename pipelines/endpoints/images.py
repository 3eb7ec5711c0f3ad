"""Draws with any text-to-image model behind `/v1/images/generations`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import openai
from pydantic import AliasChoices, BaseModel, Field

from generators.base import Failure, Fault, Outcome, Result, Weights
from generators.document import Image, ImageRequest
from generators.pictures import decode
from pipelines.endpoints.client import LISTING_FAILURES
from pipelines.endpoints.errors import EndpointError, MalformedReply
from pipelines.endpoints.media import Media, MediaError, MediaReader
from pipelines.endpoints.replies import Account, Counts, read_body
from pipelines.endpoints.settings import DIALECTS, ImagesSettings
from pipelines.endpoints.stage import EndpointStage
from pipelines.prompts import input_error, prompt_and_seed


class _Model(BaseModel):
    id: str


class _Listing(BaseModel):
    data: list[_Model]


class _Picture(BaseModel):
    b64_json: str | None = None
    url: str | None = None
    revised_prompt: str | None = None


class _Tokens(Counts):
    """As OpenAI names them, or as SGLang does."""

    read: int | None = Field(
        default=None, validation_alias=AliasChoices("input_tokens", "prompt_tokens")
    )
    written: int | None = Field(
        default=None, validation_alias=AliasChoices("output_tokens", "completion_tokens")
    )


class _Metrics(BaseModel):
    """Of vLLM-Omni."""

    stage_durations: dict[str, float] | None = None
    """Seconds by the name of a method; that of the whole pipeline is `forward`."""
    peak_memory_mb: float | None = None


class ImagesReply(BaseModel):
    """An answer of `/v1/images/generations`, read leniently."""

    data: list[_Picture]
    usage: _Tokens = _Tokens()
    inference_time_s: float | None = None
    peak_memory_mb: float | None = None
    metrics: _Metrics | None = None

    def as_usage(self) -> dict[str, float]:
        """What the server says it used; every picture it drew counts, wanted or not."""
        tokens, metrics = self.usage, self.metrics or _Metrics()
        counts = {
            "images": len(self.data),
            "input_tokens": tokens.read,
            "output_tokens": tokens.written,
            "server_seconds": self.inference_time_s or _whole(metrics.stage_durations),
            "peak_memory_mb": self.peak_memory_mb or metrics.peak_memory_mb,
        }
        return {name: count for name, count in counts.items() if count is not None}


def _whole(durations: dict[str, float] | None) -> float | None:
    """Seconds of the whole pipeline: the stages inside it are not counted twice."""
    named = [s for name, s in (durations or {}).items() if name.endswith(".forward")]
    return max(named, default=None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, to compare the reply with."""

    prompt: str
    size: str | None
    """`WIDTHxHEIGHT`."""


async def picture_outcome(
    reply: ImagesReply, asked: Asked, account: Account, reader: MediaReader
) -> Outcome[Image]:
    """The one picture asked for, or the failure that any other reply is."""
    if len(reply.data) != 1:
        count = len(reply.data) or "no"
        reason = f"the reply holds {count} pictures; one was asked for"
        return account.failure(reason, Fault.ENDPOINT)
    given = reply.data[0]
    account = replace(account, notes={**account.notes, **_remarks(reply, given, asked)})
    try:
        image = await reader.read(Media(given.b64_json or given.url or ""))
    except MediaError as error:
        return account.failure(f"the picture cannot be read: {error}", Fault.ENDPOINT)
    # Decoding megapixels would hold up the loop of all other requests.
    return await asyncio.to_thread(_checked, image, asked, account)


def _checked(image: Image, asked: Asked, account: Account) -> Outcome[Image]:
    """The picture, with its size; a failure where it is wholly black."""
    picture = decode(image)
    notes = {**account.notes, "size": list(picture.size)}
    if asked.size not in (None, f"{picture.width}x{picture.height}"):
        notes["size_asked_for"] = asked.size
    if not picture.getbbox():
        reason = "the picture is wholly black"
        return Failure(reason, Fault.ERROR, account.usage, notes)
    return Result(image, account.usage, notes)


def _remarks(reply: ImagesReply, given: _Picture, asked: Asked) -> dict[str, Any]:
    """What the server says besides the picture."""
    remarks = reply.usage.notes
    # SGLang repeats the prompt as it was.
    if given.revised_prompt not in (None, "", asked.prompt):
        remarks["revised_prompt"] = given.revised_prompt
    if reply.metrics is not None and reply.metrics.stage_durations:
        remarks["stage_durations"] = reply.metrics.stage_durations
    return remarks


@dataclass(frozen=True, slots=True)
class _Drawing:
    """One request, ready to be sent."""

    prompt: str
    body: Mapping[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)


class ImagesEndpoint(EndpointStage[ImageRequest, _Drawing, Image]):
    """ImageRequest -> Image, by a server."""

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """Ask for the server's models; `settings` are the fields of `ImagesSettings`.

        No picture is drawn for it. Raises EndpointError when the server is dead, the key
        wrong or the model unknown. `weights` do not apply to endpoints.
        """
        self.settings = ImagesSettings.model_validate(settings)
        self.dialect = DIALECTS[self.settings.dialect]
        self._reader = MediaReader(self.settings.image_hosts)
        self._response_format = self.settings.sent_response_format
        self._accepted = False
        """Whether the server has answered any request with a reply."""
        super().__init__(self.settings)

    async def begin(self) -> None:
        """Ask for the server's models."""
        await self._client.preflight(self._probe)

    async def _probe(self) -> None:
        """EndpointError where the server lists its models, and this is none of them."""
        try:
            raw = await self._client.openai.models.with_raw_response.list()
        except openai.APIStatusError as error:
            if error.status_code in LISTING_FAILURES:
                raise
            return
        names, model = _listed(raw.http_response.content), self.settings.model
        if self.dialect.own_model and names and model not in names:
            raise EndpointError(
                f"endpoint {self.settings.url}: it has no model {model!r}; it has "
                f"{', '.join(names)}"
            )

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        super().continue_from(usage)
        self._accepted = self._accepted or usage.get("images", 0) > 0

    def prepared(self, request: ImageRequest) -> _Drawing | Failure:
        """What the server is sent for a request."""
        if reason := input_error(request):
            return Failure(reason, Fault.BAD_INPUT)
        return self._drawing(request)

    async def answer(self, drawing: _Drawing) -> Outcome[Image]:
        """The picture of the server's reply."""
        answered = await self._client.request(
            lambda: self._sent(drawing), lambda reply: reply.as_usage(), drawing.notes
        )
        if isinstance(answered, Failure):
            return self._kept_open(answered)
        self._accepted = True
        notes = drawing.notes | {"attempts": answered.attempts}
        account = Account(answered.usage, notes)
        asked = Asked(drawing.prompt, self.settings.size)
        return await picture_outcome(answered.reply, asked, account, self._reader)

    def _kept_open(self, failure: Failure) -> Failure:
        """A rejection is final for its record only where the settings have worked once."""
        if failure.fault is not Fault.BAD_INPUT or self._accepted:
            return failure
        advice = f"no request has been accepted yet; check {self.settings.checked}"
        reason = f"{failure.reason.rstrip('.')} ({advice})"
        return replace(failure, reason=reason, fault=Fault.ENDPOINT)

    def _drawing(self, request: ImageRequest) -> _Drawing:
        s = self.settings
        prompt, seed = prompt_and_seed(request, s.prompt_prefix)
        body: dict[str, Any] = {"size": s.size, **self.dialect.defaults}
        body |= {self.dialect.fields[name]: value for name, value in s.chosen.items()}
        notes: dict[str, Any] = {"prompt": prompt, "dialect": self.dialect.name}
        if self.dialect.own_model:
            # Not shortened: the same number gives the same noise as a stage run here.
            body["seed"] = notes["seed"] = seed
        else:
            notes["seed"] = "not taken by the server"
        body = {name: value for name, value in body.items() if value is not None}
        return _Drawing(prompt, body | s.extra_body, notes)

    async def _sent(self, drawing: _Drawing) -> ImagesReply:
        sent = self._response_format
        try:
            return await self._drawn(drawing, sent)
        except openai.BadRequestError as error:
            # LiteLLM rejects the field for models whose names do not tell.
            own_choice = sent is not None and self.settings.response_format is None
            if not own_choice or "response_format" not in str(error):
                raise
        self._response_format = None
        return await self._drawn(drawing, None)

    async def _drawn(self, drawing: _Drawing, response_format: str | None) -> ImagesReply:
        form = {"response_format": response_format} if response_format else {}
        raw = await self._client.openai.images.with_raw_response.generate(
            prompt=drawing.prompt,
            model=self.settings.model,
            extra_body={**form, **drawing.body},
        )
        return read_body(ImagesReply, lambda reply: reply, raw.http_response.content)


def _listed(body: bytes) -> list[str]:
    """The names of a list of models; MalformedReply where it is none."""
    try:
        return read_body(_Listing, lambda listing: [m.id for m in listing.data], body)
    except MalformedReply as error:
        raise MalformedReply(f"/models gave no list: {error}") from None
