"""The drawing half of a published Emu2-Gen: UNet, autoencoder, scheduler, checker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from accelerate import init_empty_weights
from diffusers.pipelines.stable_diffusion.safety_checker import (
    StableDiffusionSafetyChecker,
)

from generators.checkpoints import looks_like_path
from generators.diffusion.builds import assembled, empty_module
from generators.diffusion.designs import DESIGNS
from generators.diffusion.loading import modules_of
from generators.diffusion.settings import DiffusionSettings
from generators.emu2.native import native_file, shapes_in, stored_in
from generators.errors import CheckpointError
from generators.loading.files import Files, read_json
from generators.loading.strict import fill, identical

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


def published(settings: DiffusionSettings, dtype: torch.dtype) -> Any:
    """An SDXL pipeline without text encoders, on the CPU.

    Its attribute `safety_checker`, for which that pipeline has no place, is None where the
    settings or the checkpoint leave it out. CheckpointError if the checkpoint does not fit.
    """
    files = Files(settings.model, settings.revision)
    path = native_file(files) if looks_like_path(settings.model) else None
    components = [
        k for k in KINDS if k != "safety_checker" or settings.safety_checker != "off"
    ]
    if path is not None:
        folder = path.parent
        stored = {name.partition(".")[0] for name in shapes_in(path)}
        names = [n for n in components if n in DESIGN.modules or n in stored]
        parts = {name: _native(files, path, name, dtype) for name in names}
    else:
        folder = _folder(settings, components)
        names = [n for n in components if n in DESIGN.modules or (folder / n).is_dir()]
        kinds = {name: KINDS[name] for name in names}
        parts = modules_of(folder, kinds, dtype, settings.variant or None)
    checker = parts.pop("safety_checker", None)
    parts |= {"scheduler": _scheduler(folder), "add_watermarker": False}
    pipeline = assembled(DESIGN, parts)
    pipeline.safety_checker = checker
    return pipeline


def _folder(settings: DiffusionSettings, components: list[str]) -> Path:
    """The local folder; of a Hub repository only the drawing half is downloaded."""
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
    """The checkpoint's own scheduler if it has one, else the published one."""
    path = folder / "scheduler" / "scheduler_config.json"
    config = read_json(path) if path.is_file() else DESIGN.scheduler
    return getattr(diffusers, DESIGN.scheduler["_class_name"]).from_config(dict(config))


def _native(files: Files, path: Path, name: str, dtype: torch.dtype) -> Any:
    """A component out of the single file; CheckpointError where its tensors do not fit."""
    config = files.find(f"{name}/config.json")
    module = _empty(name, None if config is None else read_json(config))
    layout = identical(module.state_dict(), f"{name}.")
    if any(stored.startswith(_OLDER_TOWER) for stored in shapes_in(path)):
        layout = {_older(stored): place for stored, place in layout.items()}
    fill(
        module,
        stored_in(path, f"{name}."),
        layout,
        source=f"{name} of {path}",
        device=torch.device("cpu"),
        dtype=dtype,
        tolerated=_STRAYS,
    )
    return module.eval()


def _older(name: str) -> str:
    """The name that transformers up to 4.x gave to a tensor of the single file."""
    if not name.startswith(_TOWER):
        return name
    return _OLDER_TOWER + name.removeprefix(_TOWER)


def _empty(name: str, config: Mapping[str, Any] | None) -> torch.nn.Module:
    """The module on the meta device, by its own configuration or the published one."""
    if config is None and name in DESIGN.modules:
        return empty_module(DESIGN, name)
    if config is None:
        return empty_module(DESIGNS["sd15"], name)
    with init_empty_weights(include_buffers=False):
        if name == "safety_checker":
            return KINDS[name](transformers.CLIPConfig(**config))  # type: ignore[no-any-return]
        return KINDS[name].from_config(dict(config))  # type: ignore[no-any-return]
