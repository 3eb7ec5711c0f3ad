"""The rendering stage of Emu2: vectors in, pixels out, checked by its safety checker.

It loads the drawing half of a published Emu2-Gen: UNet, autoencoder, scheduler, checker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import diffusers
import numpy as np
import numpy.typing as npt
import torch
import transformers
from accelerate import init_empty_weights
from diffusers.pipelines.stable_diffusion.safety_checker import (
    StableDiffusionSafetyChecker,
)
from PIL import Image as Pillow
from torch import Tensor

from plait.generators.base import Failure, Fault, Outcome, Result, Weights
from plait.generators.checkpoints import looks_like_path
from plait.generators.content import answer_all
from plait.generators.decoding.payloads import receive
from plait.generators.diffusion.builds import assemble, empty_module
from plait.generators.diffusion.designs import DESIGNS
from plait.generators.diffusion.drawer import Drawer
from plait.generators.diffusion.loading import modules_of
from plait.generators.diffusion.settings import DiffusionSettings
from plait.generators.document import ImageRequest
from plait.generators.emu2.checkpoints import native_file, read_tensors
from plait.generators.emu2.settings import Emu2RenderSettings
from plait.generators.errors import CheckpointError
from plait.generators.images import Drawing
from plait.generators.loading.files import Files, read_json, shapes_in
from plait.generators.loading.strict import Place, device_of, fill, identical

DESIGN = DESIGNS["emu2"]
KINDS: Mapping[str, type[Any]] = {
    "unet": diffusers.UNet2DConditionModel,
    "vae": diffusers.AutoencoderKL,
    "safety_checker": StableDiffusionSafetyChecker,
}
_TOWER = "safety_checker.vision_model."
_OLDER_TOWER = f"{_TOWER}vision_model."
"""Where transformers up to 4.x, and so the published file, put the checker's tower."""
_STRAYS = tuple(f"{tower}embeddings.position_ids" for tower in (_TOWER, _OLDER_TOWER))
"""A buffer in files of older transformers."""


def load_published(settings: DiffusionSettings, dtype: torch.dtype) -> Any:
    """Return an SDXL pipeline without text encoders, on the CPU.

    Its attribute `safety_checker`, for which that pipeline has no place, is None where the
    settings or the checkpoint leave it out. CheckpointError if the checkpoint does not fit.
    """
    files = Files(settings.model, settings.revision)
    path = native_file(files) if looks_like_path(settings.model) else None
    components = list(KINDS)
    if settings.safety_checker == "off":
        components.remove("safety_checker")
    if path is not None:
        folder = path.parent
        # Names of tensors begin with their component: `unet.conv_in.weight`.
        stored = {name.partition(".")[0] for name in shapes_in(path)}
        parts: dict[str, Any] = {}
        for name in components:
            if _is_needed(name, name in stored):
                parts[name] = _native(files, path, name, dtype)
    else:
        folder = _folder(settings, components)
        kinds: dict[str, type[Any]] = {}
        for name in components:
            if _is_needed(name, (folder / name).is_dir()):
                kinds[name] = KINDS[name]
        parts = modules_of(folder, kinds, dtype, settings.variant or None)
    checker = parts.pop("safety_checker", None)
    parts |= {"scheduler": _scheduler(folder), "add_watermarker": False}
    pipeline = assemble(DESIGN, parts)
    pipeline.safety_checker = checker
    return pipeline


def _is_needed(name: str, is_stored: bool) -> bool:
    """Return whether a component is loaded: a checker may be missing, the others not."""
    return is_stored or name in DESIGN.modules


def _folder(settings: DiffusionSettings, components: list[str]) -> Path:
    """Return the local folder; of a Hub repository only this half is downloaded."""
    if looks_like_path(settings.model):
        return Path(settings.model).expanduser()
    from huggingface_hub import snapshot_download

    suffix = f".{settings.variant}" if settings.variant else ""
    files = [f"{name}/*{suffix}.safetensors" for name in components]
    files += [f"{name}/*.json" for name in (*components, "scheduler")]
    try:
        folder = snapshot_download(
            settings.model, revision=settings.revision, allow_patterns=files
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {settings.model!r}: {error}") from error
    return Path(folder)


def _scheduler(folder: Path) -> Any:
    """Return the checkpoint's own scheduler if it has one, else the published one."""
    path = folder / "scheduler" / "scheduler_config.json"
    config = read_json(path) if path.is_file() else DESIGN.scheduler
    return getattr(diffusers, DESIGN.scheduler["_class_name"]).from_config(dict(config))


def _native(files: Files, path: Path, name: str, dtype: torch.dtype) -> Any:
    """Return a component that is stored in the single file of everything."""
    config = files.find(f"{name}/config.json")
    module = _empty(name, None if config is None else read_json(config))
    is_older = any(stored.startswith(_OLDER_TOWER) for stored in shapes_in(path))
    layout: dict[str, Place] = {}
    for stored, place in identical(module.state_dict(), f"{name}.").items():
        layout[stored.replace(_TOWER, _OLDER_TOWER) if is_older else stored] = place
    fill(
        module,
        read_tensors(path, f"{name}."),
        layout,
        source=f"{name} of {path}",
        device=torch.device("cpu"),
        dtype=dtype,
        tolerated=_STRAYS,
    )
    return module.eval()


def _empty(name: str, config: Mapping[str, Any] | None) -> torch.nn.Module:
    """Return the module on the meta device, by its own configuration or the published."""
    if config is None:
        return empty_module(DESIGN if name in DESIGN.modules else DESIGNS["sd15"], name)
    with init_empty_weights(include_buffers=False):
        if name == "safety_checker":
            return KINDS[name](transformers.CLIPConfig(**config))  # type: ignore[no-any-return]
        return KINDS[name].from_config(dict(config))  # type: ignore[no-any-return]


class SafetyChecker:
    """Stable Diffusion's checker, on the device of the setting of that name."""

    def __init__(self, model: Any, device: str) -> None:
        side = model.config.vision_config.image_size
        self._model = model.to(device_of(device))
        size = {"shortest_edge": side}
        self._processor = transformers.CLIPImageProcessor(size=size, crop_size=side)

    @torch.inference_mode()
    def blocks(self, pixels: npt.NDArray[np.uint8]) -> bool:
        """Return whether it would black out the image (height, width, 3)."""
        inputs = self._processor(Pillow.fromarray(pixels), return_tensors="pt").pixel_values
        # The checker overwrites the images it is given.
        _, blocked = self._model(
            images=pixels[None].astype(np.float32) / 255.0,
            clip_input=inputs.to(self._model.device, self._model.dtype),
        )
        return bool(blocked[0])


class Vectors(NamedTuple):
    """What one image is drawn from."""

    prompted: Tensor
    """(queries, width)."""
    unconditional: Tensor
    """The same without the prompt."""
    seed: int
    """Of the noise."""


class Emu2Render:
    """Draws from the vectors of `Emu2Condition`; takes the fields of `Emu2RenderSettings`.

    The vectors are SDXL's text embeddings, their mean its pooled ones, and guidance
    starts from the unconditional ones (`EmuVisualGeneration`, emu/diffusion.py).
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        own = Emu2RenderSettings(**settings)
        self.drawer = Drawer(own, weights, load_published)
        self.drawer.arguments["original_size"] = own.original_size
        checker = getattr(self.drawer.pipeline, "safety_checker", None)
        self._checker = None if checker is None else SafetyChecker(checker, own.device)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """Return one image per request, in order; one without valid vectors fails."""
        return answer_all([self._vectors(request) for request in inputs], self._draw)

    def _vectors(self, request: ImageRequest) -> Vectors | Failure:
        """Return the vectors of a request's payload, or why it cannot be drawn."""
        received = receive(request, "vectors", "unconditional")
        if isinstance(received, Failure):
            return received
        vectors, free = received
        width = self.drawer.pipeline.unet.config.cross_attention_dim
        if vectors.dim() != 2 or vectors.shape[1] != width or vectors.shape != free.shape:
            shapes = f"{tuple(vectors.shape)} and {tuple(free.shape)}"
            return Failure(f"the payload holds {shapes}, not twice (queries, {width})")
        return Vectors(vectors, free, request.seed or 0)

    def _draw(self, images: Sequence[Vectors]) -> list[Outcome[Drawing]]:
        dtype = self.drawer.pipeline.unet.dtype
        # (images, queries, width).
        prompted = torch.stack([image.prompted for image in images]).to(dtype)
        free = torch.stack([image.unconditional for image in images]).to(dtype)
        conditions: dict[str, Any] = {
            "prompt_embeds": prompted,
            "pooled_prompt_embeds": prompted.mean(dim=1),
            "negative_prompt_embeds": free,
            "negative_pooled_prompt_embeds": free.mean(dim=1),
        }
        outcomes = self.drawer(conditions, [image.seed for image in images])
        return [self._check(outcome) for outcome in outcomes]

    def _check(self, outcome: Outcome[Drawing]) -> Outcome[Drawing]:
        """Return the outcome, or the failure of an image that the checker blocks."""
        if self._checker is None or not isinstance(outcome, Result):
            return outcome
        if not self._checker.blocks(outcome.value.pixels):
            return outcome
        reason = "the checkpoint's safety checker blocked the image"
        return Failure(reason, Fault.UNSAFE, outcome.usage, outcome.notes)
