"""Draws batches of pictures with one pipeline, each picture from its own noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from generators.base import Failure, Fault, Outcome, Result, Weights
from generators.diffusion.loading import quiet
from generators.diffusion.pipeline import PipelineReader, call_arguments, load_pipeline
from generators.diffusion.settings import DiffusionSettings
from generators.pictures import Drawing


class Drawer:
    """A loaded pipeline that takes, per picture, its conditions and its seed.

    Each picture's noise comes from its own CPU generator, so the other pictures of a
    batch, their order and the device change a picture by no more than rounding. The
    pipeline samples the noise in its own dtype: two models whose latents have the same
    shape and dtype start from the same noise for the same seed, before each scheduler
    scales it.
    """

    def __init__(
        self,
        settings: DiffusionSettings,
        weights: Weights,
        read: PipelineReader | None = None,
    ) -> None:
        self.settings = settings
        self.pipeline = load_pipeline(settings, weights, read)
        self.arguments = call_arguments(self.pipeline, settings)
        self.batch = settings.batch_size
        """Pictures in one compiled batch; halved when the device runs out of memory."""

    def __call__(
        self, conditions: Mapping[str, Sequence[Any]], seeds: Sequence[int]
    ) -> list[Outcome[Drawing]]:
        """One outcome per seed.

        `conditions` are arguments of the pipeline with one entry per picture: prompts, or
        tensors (pictures, ...) such as `prompt_embeds`.
        """
        size = self.batch if self.settings.compile else max(len(seeds), 1)
        outcomes: list[Outcome[Drawing]] = []
        for first in range(0, len(seeds), size):
            part = slice(first, first + size)
            batch = {name: values[part] for name, values in conditions.items()}
            pictures, unsafe = self._sampled(batch, seeds[part])
            outcomes += map(self._outcome, pictures, unsafe)
        return outcomes

    def _sampled(
        self, conditions: Mapping[str, Sequence[Any]], seeds: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], list[bool]]:
        """Pictures as (n, height, width, 3) in [0, 1], and which the checker blocked."""
        count = len(seeds)
        padding = self.batch - count if self.settings.compile else 0
        generators = [
            torch.Generator("cpu").manual_seed(s) for s in [*seeds, *[seeds[0]] * padding]
        ]
        arguments = {k: _padded(v, padding) for k, v in conditions.items()} | self.arguments
        if self.settings.negative_prompt is not None:
            negatives = [self.settings.negative_prompt] * len(generators)
            arguments["negative_prompt"] = negatives
        try:
            with quiet():
                output = self.pipeline(generator=generators, **arguments)
        except torch.OutOfMemoryError:
            self.batch = max(1, self.batch // 2)
            raise
        blocked = getattr(output, "nsfw_content_detected", None)
        blocked = blocked or [False] * len(generators)
        return np.asarray(output.images)[:count], blocked[:count]

    def _outcome(self, picture: npt.NDArray[np.float32], unsafe: bool) -> Outcome[Drawing]:
        """A drawing, or the reason why these values are not a valid picture."""
        usage = {"images": 1, "steps": self.arguments["num_inference_steps"]}
        height, width = picture.shape[:2]
        notes = {"size": [width, height]}
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


def _padded(values: Sequence[Any], padding: int) -> Any:
    """`values` with the first repeated `padding` times at the end."""
    if isinstance(values, torch.Tensor):
        return torch.cat([values, values[:1].expand(padding, *values.shape[1:])])
    return [*values, *list(values[:1]) * padding]
