"""A request for pictures as jobs of the stage that draws, and the reply to it."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.serving.conversation import QUERY
from benchmarks.serving.refusals import fixed, invalid, unsupported
from benchmarks.serving.replies import mime_of, size_of
from benchmarks.serving.schemas import MOST_SEEDS, ImageGenerationRequest
from benchmarks.serving.served import ServedModel
from generators.base import Job, Outcome, Result, StageSpec, Walk
from generators.document import Image, ImageRequest

_FIXED = {
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "negative_prompt": "negative_prompt",
    "max_sequence_length": "max_sequence_length",
    "width": "width",
    "height": "height",
}
"""Fields of a request -> settings of the stage, which cannot change while it is loaded."""


def seeds_of(request: ImageGenerationRequest) -> list[int]:
    """One seed a picture: `seed`, `seed + 1`, ...; drawn at random where none is given."""
    first = secrets.randbelow(2**31) if request.seed is None else request.seed
    return [(first + i) % MOST_SEEDS for i in range(request.n)]


def refuse_other_settings(request: ImageGenerationRequest, stage: StageSpec) -> None:
    """RequestRefused for what the loaded stage cannot do, or does otherwise."""
    if request.response_format not in (None, "b64_json"):
        raise unsupported(
            f"response_format {request.response_format!r}: pictures are sent as b64_json",
            "response_format",
        )
    settings = stage.settings
    arguments: Mapping[str, Any] = settings.get("arguments") or {}
    for field, value in _asked(request).items():
        name = _FIXED.get(field)
        own = arguments.get(field) if name is None else settings.get(name)
        if own is None or own != value:
            raise fixed(stage, name or f"arguments.{field}", field, value, own)


def _asked(request: ImageGenerationRequest) -> dict[str, Any]:
    """The settings that the request names; a size as width and height."""
    asked = {f: getattr(request, f) for f in (*_FIXED, "true_cfg_scale")}
    if request.size not in (None, "auto"):
        width, height = _size(request.size or "")
        for name, value in (("width", width), ("height", height)):
            if asked[name] not in (None, value):
                raise invalid(f"{name} {asked[name]} and size {request.size} differ", name)
            asked[name] = value
    return {name: value for name, value in asked.items() if value is not None}


def _size(text: str) -> tuple[int, int]:
    width, x, height = text.lower().partition("x")
    if not (x and width.isdecimal() and height.isdecimal()):
        raise invalid(f"size {text!r} is not of the form 1024x1024", "size")
    return int(width), int(height)


def pictures(
    stage: StageSpec, prompt: str, seeds: Sequence[int]
) -> Walk[tuple[Image, ...]]:
    """Walk of one request: all its pictures, or what the first one lacks."""
    requests = [ImageRequest(prompt, seed=s if stage.seeded else None) for s in seeds]
    outcomes: list[Outcome[Image]] = yield [Job(stage, r, QUERY) for r in requests]
    drawn: list[Image] = []
    for outcome in outcomes:
        if not isinstance(outcome, Result):
            return outcome
        drawn.append(outcome.value)
    return Result(tuple(drawn))


def images_reply(
    model: ServedModel,
    images: Sequence[Image],
    seeds: Sequence[int],
    usage: Mapping[str, float],
    seconds: float,
) -> dict[str, Any]:
    """The reply of `/v1/images/generations`, with the seed of each picture."""
    data = [
        {"b64_json": base64.b64encode(image.read()).decode(), "seed": seed}
        for image, seed in zip(images, seeds, strict=True)
    ]
    width, height = size_of(images[0])
    return {
        "created": int(time.time()),
        "model": model.artist_name,
        "data": data,
        "output_format": mime_of(images[0]).partition("/")[2],
        "size": f"{width}x{height}",
        "usage": {"image_count": len(data), **usage},
        "inference_time_s": round(seconds, 4),
        "system_fingerprint": model.fingerprint,
    }
