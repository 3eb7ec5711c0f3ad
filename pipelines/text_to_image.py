"""The stage that draws: any text-to-image pipeline of diffusers, batched over requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from generators.base import Failure, Fault, Outcome, Result, Weights
from generators.document import ImageRequest
from generators.pictures import Drawing
from pipelines.artists import DiffusionSettings
from pipelines.diffusion.loading import quiet
from pipelines.diffusion.pipeline import call_arguments, loaded
from pipelines.diffusion.prompts import readers_of, readings


class TextToImage:
    """ImageRequest -> Drawing: uint8 pixels of shape (height, width, 3).

    Each picture's noise comes from a CPU generator of its own, seeded with its request's
    seed, so neighbours in a batch, its order and the device change a picture by no more
    than rounding. The pipeline draws the noise in its own dtype: two models with latents
    of one shape and dtype start from the same noise for the same seed, before each
    scheduler scales it (openjourney and sdxl-turbo at 512, sd3 and flux at equal dtype).
    """

    def __init__(self, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = DiffusionSettings(**settings)
        self.pipeline = loaded(self.settings, weights)
        self.arguments = call_arguments(self.pipeline, self.settings)
        self.readers = readers_of(self.pipeline, self.settings.max_sequence_length)
        self.batch = self.settings.batch_size
        """Pictures in one compiled batch; halved when the device runs out of memory."""

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """One picture per request; a request that cannot be drawn fails alone."""
        outcomes: dict[int, Outcome[Drawing]] = {}
        sound: list[int] = []
        for i, request in enumerate(inputs):
            fault = _fault_of(request)
            if fault is None:
                sound.append(i)
            else:
                outcomes[i] = Failure(fault, Fault.BAD_INPUT)
        for part in self._batches(sound):
            drawn = self._drawn([inputs[i] for i in part])
            outcomes.update(zip(part, drawn, strict=True))
        return [outcomes[i] for i in range(len(inputs))]

    def _batches(self, sound: Sequence[int]) -> list[Sequence[int]]:
        size = self.batch if self.settings.compile else max(len(sound), 1)
        return [sound[i : i + size] for i in range(0, len(sound), size)]

    def _drawn(self, requests: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        prompts = [self.settings.prompt_prefix + (r.prompt or "") for r in requests]
        seeds = [r.seed or 0 for r in requests]
        pictures, unsafe = self._sampled(prompts, seeds)
        about = [self._notes(p, s) for p, s in zip(prompts, seeds, strict=True)]
        every = zip(pictures, unsafe, about, strict=True)
        return [self._outcome(*one) for one in every]

    def _sampled(
        self, prompts: list[str], seeds: list[int]
    ) -> tuple[npt.NDArray[np.float32], list[bool]]:
        """Pictures as (n, height, width, 3) in [0, 1], and which the checker blocked."""
        padding = self.batch - len(prompts) if self.settings.compile else 0
        padded = prompts + prompts[:1] * padding
        generators = [
            torch.Generator("cpu").manual_seed(s) for s in seeds + seeds[:1] * padding
        ]
        arguments = dict(self.arguments)
        if self.settings.negative_prompt is not None:
            arguments["negative_prompt"] = [self.settings.negative_prompt] * len(padded)
        try:
            with quiet():
                drawn = self.pipeline(prompt=padded, generator=generators, **arguments)
        except torch.OutOfMemoryError:
            self.batch = max(1, self.batch // 2)
            raise
        blocked = getattr(drawn, "nsfw_content_detected", None) or [False] * len(padded)
        return np.asarray(drawn.images)[: len(prompts)], blocked[: len(prompts)]

    def _notes(self, prompt: str, seed: int) -> dict[str, Any]:
        return {
            "prompt": prompt,
            "seed": seed,
            "text_encoders": readings(self.readers, prompt),
        }

    def _outcome(
        self, picture: npt.NDArray[np.float32], unsafe: bool, notes: dict[str, Any]
    ) -> Outcome[Drawing]:
        """A drawing, or the reason why these values are no picture."""
        usage = {"images": 1, "steps": self.arguments["num_inference_steps"]}
        height, width = picture.shape[:2]
        notes = notes | {"size": [width, height]}
        if unsafe:
            reason = "the checkpoint's safety checker blocked the picture"
            return Failure(reason, Fault.UNSAFE, usage, notes)
        if not np.isfinite(picture).all():
            reason = (
                f"the picture overflowed in {self.settings.dtype}; set dtype to bfloat16"
            )
            return Failure(reason, Fault.ERROR, usage, notes)
        pixels = np.rint(picture * 255).astype(np.uint8)
        if not pixels.any():
            return Failure("the picture is wholly black", Fault.ERROR, usage, notes)
        return Result(Drawing(pixels), usage, notes)


def _fault_of(request: ImageRequest) -> str | None:
    """Why a request cannot be drawn from its prompt; None when it can."""
    if request.payload is not None or request.context:
        return "a text-to-image model reads prompts; the request holds more than a prompt"
    if request.prompt is None or not request.prompt.strip():
        return f"the request's prompt is empty: {request.prompt!r}"
    if request.seed is None:
        return "the request has no seed"
    try:
        request.prompt.encode()
    except UnicodeEncodeError as error:
        return f"the prompt is not valid text: {error.reason} at {error.start}"
    return None
