"""CLIP checkpoints as they are published: open_clip's layout, transformers', bare files."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError
from safetensors.torch import load_file

from generators.checkpoints import CheckpointError
from scorers.clip.from_transformers import as_open_clip, config_of, preprocessing_of
from scorers.clipscore import ClipSettings

Fetch = Callable[[str], Path | None]
"""The file of that name in a checkpoint, or None where it has no such file."""

OPEN_CLIP = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
TRANSFORMERS = ("model.safetensors", "pytorch_model.bin")

_LEFTOVERS = {"input_resolution", "context_length", "vocab_size", "attn_mask"}
"""Constants that OpenAI's and older checkpoints keep among their tensors."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights under open_clip's names, and what they came with."""

    tensors: Mapping[str, torch.Tensor]
    config: Mapping[str, Any] = field(default_factory=dict)
    """open_clip's model configuration; empty for a bare file."""
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    """Fields of open_clip's `PreprocessCfg` that the checkpoint sets."""


def read_checkpoint(settings: ClipSettings) -> Checkpoint:
    """The checkpoint that `settings.model` names; CheckpointError says what is missing."""
    if settings.hub_id is not None:
        return _from_files(_hub(settings.hub_id, settings.revision), settings.model)
    path = Path(settings.model).expanduser()
    if path.is_file():
        return Checkpoint(_tensors(path))
    return _from_files(lambda name: _existing(path / name), settings.model)


def _from_files(fetch: Fetch, source: str) -> Checkpoint:
    if config := fetch("open_clip_config.json"):
        about = json.loads(config.read_text("utf-8"))
        if "model_cfg" not in about:
            raise CheckpointError(f"{config.name} of {source!r} has no `model_cfg`")
        tensors = _tensors(_first(fetch, OPEN_CLIP, source))
        return Checkpoint(tensors, about["model_cfg"], about.get("preprocess_cfg", {}))
    if config := fetch("config.json"):
        about = json.loads(config.read_text("utf-8"))
        tensors = as_open_clip(_tensors(_first(fetch, TRANSFORMERS, source)))
        return Checkpoint(tensors, config_of(about, source), _processor(fetch))
    raise CheckpointError(
        f"CLIP weights {source!r} hold neither open_clip_config.json (open_clip's layout) "
        "nor config.json (transformers'); a Hub id must be cached or within reach"
    )


def _processor(fetch: Fetch) -> Mapping[str, Any]:
    for name in ("preprocessor_config.json", "processor_config.json"):
        if path := fetch(name):
            return preprocessing_of(json.loads(path.read_text("utf-8")))
    return {}


def _first(fetch: Fetch, names: tuple[str, ...], source: str) -> Path:
    for name in names:
        if path := fetch(name):
            return path
    raise CheckpointError(f"CLIP weights {source!r} hold none of {', '.join(names)}")


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _hub(repo_id: str, revision: str | None) -> Fetch:
    def fetch(name: str) -> Path | None:
        try:
            return Path(hf_hub_download(repo_id, name, revision=revision))
        except EntryNotFoundError:
            return None
        except (HfHubHTTPError, OSError) as error:
            raise CheckpointError(f"{name} of {repo_id!r}: {error}") from error

    return fetch


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    """Named tensors of a file; pickles may hold tensors only."""
    loaded = load_file(path) if path.suffix == ".safetensors" else _unpickled(path)
    tensors = loaded.get("state_dict", loaded)
    stripped = {name.removeprefix("module."): value for name, value in tensors.items()}
    return {name: value for name, value in stripped.items() if name not in _LEFTOVERS}


def _unpickled(path: Path) -> dict[str, Any]:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path.name} is no file of plain tensors (OpenAI's original .pt files are "
            "programs, not tensors: name 'ViT-B-32:openai' to get the same weights as "
            f"safetensors): {str(error).splitlines()[0]}"
        ) from error
    return dict(loaded)
