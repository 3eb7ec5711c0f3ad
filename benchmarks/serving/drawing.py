"""A request for images as jobs of the stage that draws, and the reply to it."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from plait.benchmarks.serving.chats import QUERY, image_facts
from plait.benchmarks.serving.refusals import RequestRefused, refuse_other
from plait.benchmarks.serving.schemas import MOST_SEEDS, ImageGenerationRequest
from plait.benchmarks.serving.served import ServedModel
from plait.generators.base import Job, Result, StageSpec, Walk
from plait.generators.document import Image, ImageRequest

_SETTINGS = {
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "negative_prompt": "negative_prompt",
    "max_sequence_length": "max_sequence_length",
    "width": "width",
    "height": "height",
    "true_cfg_scale": None,
}
"""Fields of a request -> settings of the stage, which cannot change while it is loaded;
None for one of its `arguments`."""


def seeds_of(request: ImageGenerationRequest) -> list[int]:
    """Return one seed an image: `seed`, `seed + 1`, ...; at random where none is given."""
    first = secrets.randbelow(2**31) if request.seed is None else request.seed
    return [(first + i) % MOST_SEEDS for i in range(request.n)]


def refuse_other_settings(request: ImageGenerationRequest, stage: StageSpec) -> None:
    """RequestRefused for what the loaded stage cannot do, or does otherwise."""
    if request.response_format not in (None, "b64_json"):
        reason = f"response_format {request.response_format!r}: images are sent as b64_json"
        raise RequestRefused("unsupported_value", reason, "response_format")
    arguments: Mapping[str, Any] = stage.settings.get("arguments") or {}
    for field, value in _settings_of(request).items():
        name = _SETTINGS[field]
        own = stage.settings.get(name) if name else arguments.get(field)
        refuse_other(stage, name or f"arguments.{field}", field, value, own)


def _settings_of(request: ImageGenerationRequest) -> dict[str, Any]:
    """Return the settings that the request names; a size as width and height."""
    asked = {name: getattr(request, name) for name in _SETTINGS}
    if request.size in (None, "auto"):
        return asked
    sides = str(request.size).lower().split("x")
    if len(sides) != 2 or not all(map(str.isdecimal, sides)):
        reason = f"size {request.size!r} is not of the form 1024x1024"
        raise RequestRefused("invalid_value", reason, "size")
    for name, value in zip(("width", "height"), map(int, sides), strict=True):
        if asked[name] not in (None, value):
            reason = f"{name} {asked[name]} and size {request.size} differ"
            raise RequestRefused("invalid_value", reason, name)
        asked[name] = value
    return asked


def draw(stage: StageSpec, prompt: str, seeds: Sequence[int]) -> Walk[tuple[Image, ...]]:
    """Walk through one request: all its images, or what the first one lacks."""
    jobs = []
    for seed in seeds:
        # A seed would be part of the key of a result that does not depend on it.
        request = ImageRequest(prompt, seed=seed if stage.seeded else None)
        jobs.append(Job(stage, request, QUERY))
    outcomes = yield jobs
    images = []
    for outcome in outcomes:
        if not isinstance(outcome, Result):
            return outcome
        images.append(outcome.value)
    return Result(tuple(images))


def images_reply(
    model: ServedModel,
    made: Result[tuple[Image, ...]],
    seeds: Sequence[int],
    seconds: float,
) -> dict[str, Any]:
    """Return the reply of `/v1/images/generations`, with the seed of each image."""
    data = []
    for image, seed in zip(made.value, seeds, strict=True):
        encoded = base64.b64encode(image.read()).decode()
        data.append({"b64_json": encoded, "seed": seed})
    # All are of one stage, and so alike.
    first = image_facts(made.value[0])
    return {
        "created": int(time.time()),
        "model": model.t2i_name,
        "data": data,
        "output_format": first.media_type.partition("/")[2],
        "size": f"{first.width}x{first.height}",
        "usage": {"image_count": len(data), **made.usage},
        "inference_time_s": round(seconds, 4),
        "system_fingerprint": model.fingerprint,
    }
