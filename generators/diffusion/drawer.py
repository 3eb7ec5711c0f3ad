"""A pipeline according to its settings, and batches of images drawn with it."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import diffusers
import numpy as np
import numpy.typing as npt
import torch

from plait.generators.base import Failure, Fault, Outcome, Result, Weights
from plait.generators.diffusion.builds import build_pipeline
from plait.generators.diffusion.calls import Call, draws_in_batches
from plait.generators.diffusion.encodings import encoder_of
from plait.generators.diffusion.files import add_adapters
from plait.generators.diffusion.graphs import DenoiserGraphs
from plait.generators.diffusion.levers import StepCounter, speed_up
from plait.generators.diffusion.loading import load_published, quiet
from plait.generators.diffusion.placing import (
    compile_denoiser,
    denoiser_of,
    fuse_projections,
    hold_channels_last,
    keep_timesteps_on_host,
    place,
    use_attention,
)
from plait.generators.diffusion.settings import (
    DiffusionSettings,
    FastSettings,
    FurtherFilesSettings,
    architecture_of,
)
from plait.generators.errors import UsageError
from plait.generators.images import Drawing
from plait.generators.loading.strict import device_of
from plait.generators.overflow import no_numbers

ROUNDING = 1e-3
"""How far values may lie beyond black and white."""

_GUARDRAIL = "Cosmos Guardrail detected"
"""In the ValueError of a Cosmos pipeline whose safety checker blocks prompt or image."""

Floats = npt.NDArray[np.float32]
PipelineReader = Callable[[DiffusionSettings, torch.dtype], Any]
"""Loads the published pipeline that the settings name, onto the CPU."""


def load_pipeline(
    settings: DiffusionSettings, weights: Weights, read: PipelineReader = load_published
) -> Any:
    """Return the pipeline on its device; CheckpointError or UsageError say why not.

    A UsageError or an AttentionError names the valid choices. `read` is for
    checkpoints that are more than a pipeline of diffusers.
    """
    device = device_of(settings.device)
    if settings.cuda_graphs and device.type != "cuda":
        raise UsageError("cuda_graphs needs a GPU, and the device is the CPU")
    dtype = getattr(torch, settings.dtype)
    with quiet():
        if weights == "pretrained":
            pipeline = read(settings, dtype)
        else:
            architecture = architecture_of(settings)
            without = settings.elsewhere
            pipeline = build_pipeline(architecture, weights, device, dtype, without)
            if settings.safety_checker == "off" and "safety_checker" in pipeline.components:
                pipeline.safety_checker = None
        if isinstance(settings, FurtherFilesSettings):
            add_adapters(pipeline, settings.loras, settings.fuse_loras)
        _set_scheduler(pipeline, settings.scheduler)
        keep_timesteps_on_host(pipeline)
        # Whether SDXL marks its images would depend on another package being installed.
        pipeline.watermark = None
        pipeline.set_progress_bar_config(disable=True)
        if settings.vae_slicing:
            if (vae := pipeline.components.get("vae")) is None:
                raise UsageError(f"{type(pipeline).__name__} has no vae for vae_slicing")
            vae.enable_slicing()
        if settings.fuse_qkv:
            fuse_projections(pipeline)
        if settings.channels_last:
            hold_channels_last(pipeline)
        use_attention(pipeline, settings.attention, device, dtype)
        place(pipeline, settings, device)
        if settings.compile:
            compile_denoiser(denoiser_of(pipeline))
    return pipeline


def _set_scheduler(pipeline: Any, name: str | None) -> None:
    current = pipeline.scheduler
    if name is not None:
        choices = {kind.__name__: kind for kind in current.compatibles}
        if name not in choices:
            raise UsageError(
                f"scheduler {name!r} is not compatible with {type(pipeline).__name__}; "
                f"choose one of {', '.join(sorted(choices))}"
            )
        pipeline.scheduler = choices[name].from_config(current.config)
    if pipeline.scheduler.config.get("stochastic_sampling"):
        raise UsageError(
            f"{type(pipeline.scheduler).__name__} with stochastic_sampling samples noise "
            "for the whole batch at once, so images would depend on their batch"
        )


@contextlib.contextmanager
def _seed_torch(seed: int) -> Iterator[None]:
    """Seed torch's global generators, and restore them at the end.

    A part of a pipeline may use them, such as a language model that samples (GLM-Image).
    They get another seed than the image's generator: from the same one, noise of the same
    shape would repeat the image's first latents.
    """
    known = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count() if known else 0)):
        torch.manual_seed((seed + 1) % 2**63)
        yield


def images_of(output: Any, count: int) -> Floats:
    """Return a pipeline's images, (count, height, width, 3), black 0 and white 1.

    The frames of a video count as images. ValueError for any other output.
    """
    found = None
    for name in ("images", "image", "video"):
        if found is None:
            found = getattr(output, name, None)
    images = np.asarray(found)
    if images.ndim != 4 or images.shape[-1] != 3 or len(images) != count:
        raise ValueError(
            f"the pipeline returned a {type(output).__name__} with images of shape "
            f"{images.shape}; {count} images have the shape ({count}, height, width, 3)"
        )
    return images.astype(np.float32, copy=False)


class Drawer:
    """A loaded pipeline that takes, per image, its conditions and its seed.

    Each image's noise comes from its own CPU generator, so the other images of a batch,
    their order and the device change an image by no more than rounding; pipelines that mix
    the prompts of a batch, or that may, or that draw from global generators, are given one
    at a time. On a CPU, images are equal among calls of one size: products of matrices with
    a row per image (of the step, of a pooled prompt) and, on several threads, group norms
    are summed in an order that follows the number of images. Of 64 tiny images, up to 30
    differed between sizes, by one grey level; none with other neighbours or in another
    order. The pipeline samples the noise in its own dtype: two models whose latents have
    the same shape and dtype start from the same noise for the same seed, before each
    scheduler scales it.
    """

    def __init__(
        self,
        settings: DiffusionSettings,
        weights: Weights,
        read: PipelineReader = load_published,
    ) -> None:
        self.settings = settings
        self.batch = settings.batch_size
        """Images in one compiled batch; halved when the device runs out of memory."""
        pipeline = load_pipeline(settings, weights, read)
        self._counter: StepCounter | None = None
        if isinstance(settings, FastSettings):
            device = device_of(settings.device)
            dtype = getattr(torch, settings.dtype)
            self._counter = speed_up(pipeline, settings, device, dtype)
        self.graphs: DenoiserGraphs | None = None
        """By which the denoiser is evaluated, where that is set."""
        if settings.cuda_graphs:
            self.graphs = DenoiserGraphs(denoiser_of(pipeline))
        taken = getattr(pipeline, "taken_variants", None)
        self._taken = {"variants": taken} if taken else {}
        if chosen := getattr(pipeline, "chosen_attention", None):
            self._taken["attention"] = chosen
        if quantised := getattr(pipeline, "quantised", None):
            self._taken["quantised"] = quantised
        self._draw_with(pipeline)

    def _draw_with(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        call = Call(pipeline, self.settings)
        self.arguments = call.arguments
        self.negative_prompt = call.negative_prompt
        self.notes = {**self._taken, **call.notes}
        """Noted with every image."""
        self.input_size = call.input_size
        self.encoder = encoder_of(pipeline, call, self.settings)
        """Encodes prompts ahead of a call; None where each call encodes its own."""
        # First Block Cache decides for the whole batch by the mean change in it.
        one_decision = getattr(self.settings, "speed", None) == "first-block-cache"
        self.alone = one_decision or not draws_in_batches(self.pipeline)
        """Whether images are drawn one at a time, whatever the batch."""

    def of_class(self, name: str) -> Drawer:
        """Return a drawer with the same modules and settings, and a pipeline of `name`."""
        kind = getattr(diffusers, name)
        twin = copy.copy(self)
        taken = inspect.signature(kind).parameters
        parts: dict[str, Any] = {}
        for component, part in self.pipeline.components.items():
            if component in taken:
                parts[component] = part
        pipeline = kind(**parts)
        pipeline.set_progress_bar_config(disable=True)
        twin._draw_with(pipeline)
        return twin

    def __call__(
        self,
        conditions: Mapping[str, Sequence[Any]],
        seeds: Sequence[int],
        *,
        alone: bool = False,
    ) -> list[Outcome[Drawing]]:
        """Return one outcome per seed, one at a time if that is asked for.

        `conditions` are arguments of the pipeline with one entry per image: prompts, or
        tensors (images, ...) such as `prompt_embeds`.
        """
        alone = alone or self.alone
        # A compiled pipeline draws no other size.
        size = self.batch if self.settings.compile else len(seeds)
        if alone:
            size = 1
        outcomes: list[Outcome[Drawing]] = []
        for first in range(0, len(seeds), max(size, 1)):
            part = slice(first, first + size)
            batch = {name: values[part] for name, values in conditions.items()}
            try:
                drawn = self._draw_batch(batch, seeds[part], size, alone)
                outcomes += map(self._outcome, *drawn)
            except ValueError as error:
                if not (alone and _GUARDRAIL in str(error)):
                    raise
                outcomes.append(Failure(str(error), Fault.UNSAFE))
        return outcomes

    def _draw_batch(
        self,
        conditions: Mapping[str, Sequence[Any]],
        seeds: Sequence[int],
        size: int,
        alone: bool,
    ) -> tuple[Floats, list[bool]]:
        """Return the images, and which of them the safety checker blocked.

        The pipeline is given as many images as the `size` of a batch.
        """
        padding = size - len(seeds)
        padded = [*seeds, *[seeds[0]] * padding]
        each = self._conditions(conditions, padded, padding)
        try:
            with quiet(), _seed_torch(seeds[0]):
                encoded = {} if self.encoder is None else self.encoder.conditions(each)
                if alone:
                    _take_out_of_lists(each)
                output = self.pipeline(**{**each, **encoded, **self.arguments})
        except torch.OutOfMemoryError:
            self.batch = max(1, self.batch // 2)
            if self.graphs is not None:
                self.graphs.forget()
            raise
        if self.graphs is not None:
            self.notes = {**self.notes, "cuda_graphs": self.graphs.take_all_replayed()}
        if self._counter is not None:
            share = self._counter.take_share_skipped()
            self.notes = {**self.notes, "skipped_steps": round(share, 4)}
        blocked = getattr(output, "nsfw_content_detected", None) or [False] * len(padded)
        return images_of(output, len(padded))[: len(seeds)], blocked[: len(seeds)]

    def _conditions(
        self, conditions: Mapping[str, Sequence[Any]], seeds: Sequence[int], padding: int
    ) -> dict[str, Any]:
        each: dict[str, Any] = {}
        for name, values in conditions.items():
            each[name] = _pad(values, padding)
        each["generator"] = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        if self.negative_prompt is not None:
            each["negative_prompt"] = [self.negative_prompt] * len(seeds)
        return each

    def _outcome(self, image: Floats, unsafe: bool) -> Outcome[Drawing]:
        usage: dict[str, float] = {"images": 1}
        if (steps := self.arguments.get("num_inference_steps")) is not None:
            usage["steps"] = steps
            if (share := self.notes.get("skipped_steps")) is not None:
                usage["skipped_steps"] = share * steps
        height, width = image.shape[:2]
        notes = {"size": [width, height], **self.notes}
        if unsafe:
            reason = "the checkpoint's safety checker blocked the image"
            return Failure(reason, Fault.UNSAFE, usage, notes)
        if not np.isfinite(image).all():
            return no_numbers("values of the image", self.settings.dtype, usage, notes)
        if image.min() < -ROUNDING or image.max() > 1 + ROUNDING:
            reason = (
                f"the pipeline returned values from {image.min():.3g} to "
                f"{image.max():.3g}; those of an image lie between 0 and 1"
            )
            return Failure(reason, Fault.ERROR, usage, notes)
        pixels = np.rint(image.clip(0, 1) * 255).astype(np.uint8)
        if not pixels.any():
            return Failure("the image is wholly black", Fault.ERROR, usage, notes)
        return Result(Drawing(pixels), usage, notes)


def _take_out_of_lists(each: dict[str, Any]) -> None:
    """Give one image's conditions as they are: some classes take no lists."""
    for name, values in each.items():
        if isinstance(values, list):
            each[name] = values[0]


def _pad(values: Sequence[Any], padding: int) -> Any:
    """Repeat the first entry so many times more."""
    if isinstance(values, torch.Tensor):
        return torch.cat([values, values[:1].expand(padding, *values.shape[1:])])
    return [*values, *list(values[:1]) * padding]
