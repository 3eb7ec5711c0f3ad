"""What images servers answer: one picture, its cost, and what the server notes about it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from generators.base import Failure, Fault, Outcome, Result
from generators.document import Image
from generators.pictures import decode
from pipelines.endpoints.completions import body_start
from pipelines.endpoints.errors import MalformedReply
from pipelines.endpoints.fetching import MediaReader
from pipelines.endpoints.media import Media, MediaError
from pipelines.endpoints.replies import Account


class _Picture(BaseModel):
    b64_json: str | None = None
    url: str | None = None
    revised_prompt: str | None = None


class _Tokens(BaseModel):
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
    usage: _Tokens | None = None
    inference_time_s: float | None = None
    peak_memory_mb: float | None = None
    metrics: _Metrics | None = None

    def as_usage(self) -> dict[str, float]:
        """What the server says it used; every picture it drew counts, wanted or not."""
        tokens, metrics = self.usage or _Tokens(), self.metrics or _Metrics()
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


def images_reply(body: bytes) -> ImagesReply:
    """The reply; MalformedReply shows the start of a body that is not one."""
    try:
        return ImagesReply.model_validate_json(body)
    except ValidationError as error:
        raise MalformedReply(body_start(error, body)) from None


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
    remarks: dict[str, Any] = {}
    # SGLang repeats the prompt as it was.
    if given.revised_prompt not in (None, "", asked.prompt):
        remarks["revised_prompt"] = given.revised_prompt
    if reply.metrics is not None and reply.metrics.stage_durations:
        remarks["stage_durations"] = reply.metrics.stage_durations
    return remarks
