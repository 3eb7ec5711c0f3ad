"""A vision-language model and its processor, from any of the three kinds of weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForImageTextToText, AutoProcessor

from generators.base import Weights
from generators.checkpoints import looks_like_path
from generators.errors import CheckpointError
from pipelines.chat.settings import ChatSettings
from pipelines.vlm import random_weights
from pipelines.vlm.decoding import plain_generation

_SHOWN_KEYS = 8


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to generate, and what prepares its inputs."""

    model: Any
    processor: Any


def load(settings: ChatSettings, weights: Weights) -> Loaded:
    """The model on its device(s), the processor padding on the left.

    Raises CheckpointError for a checkpoint that does not fit the architecture it names,
    or that has no chat template.
    """
    transformers.logging.disable_progress_bar()
    where = _device_map(settings)
    dtype = getattr(torch, settings.dtype)
    match weights:
        case "tiny":
            model, processor = random_weights.tiny(settings.model)
            model.to("cuda" if where == "auto" else where[""])
        case "dummy":
            model, processor = random_weights.dummy(settings.model, dtype, where)
        case "pretrained":
            model, processor = _pretrained(settings, dtype, where)
    _prepare(processor, settings.model)
    model.generation_config = plain_generation(model, processor.tokenizer)
    return Loaded(model, processor)


def _device_map(settings: ChatSettings) -> Any:
    """`auto` for several GPUs, else everything on one device."""
    if settings.device != "auto":
        return {"": settings.device}
    if not torch.cuda.is_available():
        return {"": "cpu"}
    several = torch.cuda.device_count() > 1 and settings.device_map == "auto"
    return "auto" if several else {"": "cuda"}


def _pretrained(
    settings: ChatSettings, dtype: torch.dtype, device_map: Any
) -> tuple[Any, Any]:
    is_path = looks_like_path(settings.model)
    name = str(Path(settings.model).expanduser()) if is_path else settings.model
    source = {"revision": settings.revision, "trust_remote_code": False}
    model, info = AutoModelForImageTextToText.from_pretrained(
        name,
        dtype=dtype,
        device_map=device_map,
        # Let through here, to be named together with all other keys that do not fit.
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **source,
    )
    _require_complete(settings.model, info)
    return model, AutoProcessor.from_pretrained(name, **source)


def _require_complete(model: str, info: dict[str, Any]) -> None:
    wrong = {
        "missing": sorted(info["missing_keys"]),
        "unexpected": sorted(info["unexpected_keys"]),
        "mis-shaped": [_shape(key) for key in sorted(info["mismatched_keys"])],
        "unreadable": sorted(map(str, info.get("error_msgs", ()))),
    }
    lines = [f"{what}: {_listed(keys)}" for what, keys in wrong.items() if keys]
    if lines:
        raise CheckpointError(
            f"checkpoint {model!r} does not fit its architecture. " + "; ".join(lines)
        )


def _shape(mismatch: tuple[str, Any, Any]) -> str:
    key, shape, wanted = mismatch
    return f"{key} {tuple(shape)}, not {tuple(wanted)}"


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
    return f"{len(keys)} ({', '.join(keys[:_SHOWN_KEYS])}{more})"


def _prepare(processor: Any, model: str) -> None:
    """Set what batched generation needs: padding on the left, a template."""
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None:
        raise CheckpointError(f"checkpoint {model!r} has no processor for text and images")
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if processor.chat_template is None:
        processor.chat_template = getattr(tokenizer, "chat_template", None)
    if processor.chat_template is None:
        raise CheckpointError(f"checkpoint {model!r} has no chat template")
