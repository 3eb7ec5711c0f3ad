"""CLIP checkpoints as they are published: open_clip's layout, transformers', bare files."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError
from safetensors.torch import load_file

from generators.errors import CheckpointError
from generators.loading.strict import renamed
from scorers.clipscore import ClipSettings

_NAMES = [
    (r"^vision_model\.encoder\.layers\.", "visual.transformer.resblocks."),
    (r"^text_model\.encoder\.layers\.", "transformer.resblocks."),
    (r"\.layer_norm([12])\.", r".ln_\1."),
    (r"\.mlp\.fc1\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
    (r"\.self_attn\.out_proj\.", ".attn.out_proj."),
    (r"\.self_attn\.q_proj\.", ".attn.in_proj_"),
    (r"^vision_model\.embeddings\.class_embedding$", "visual.class_embedding"),
    (r"^vision_model\.embeddings\.patch_embedding\.", "visual.conv1."),
    (
        r"^vision_model\.embeddings\.position_embedding\.weight$",
        "visual.positional_embedding",
    ),
    (r"^vision_model\.pre_layrnorm\.", "visual.ln_pre."),
    (r"^vision_model\.post_layernorm\.", "visual.ln_post."),
    (r"^text_model\.embeddings\.token_embedding\.", "token_embedding."),
    (r"^text_model\.embeddings\.position_embedding\.weight$", "positional_embedding"),
    (r"^text_model\.final_layer_norm\.", "ln_final."),
]
"""From transformers' names to open_clip's."""
_TRANSPOSED = {
    "visual_projection.weight": "visual.proj",
    "text_projection.weight": "text_projection",
}


def as_open_clip(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the same weights under open_clip's names; unknown names stay as they are."""
    converted: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name in _TRANSPOSED:
            converted[_TRANSPOSED[name]] = tensor.T.contiguous()
        elif ".self_attn.q_proj." in name:
            converted[renamed(name, _NAMES)] = _joined(name, tensors)
        elif not re.search(r"\.position_ids$|\.self_attn\.[kv]_proj\.", name):
            converted[renamed(name, _NAMES)] = tensor
    return converted


def _joined(query: str, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Query, key and value stacked as in `torch.nn.MultiheadAttention`."""
    names = [query.replace(".q_proj.", f".{p}_proj.") for p in "qkv"]
    if missing := [n for n in names if n not in tensors]:
        raise CheckpointError(f"CLIP weights lack {', '.join(missing)}")
    return torch.cat([tensors[n] for n in names])


def config_of(about: Mapping[str, Any], source: str) -> dict[str, Any]:
    """open_clip's model configuration for a transformers `config.json`.

    Fields that the file leaves out have the defaults of `transformers.CLIPConfig`.
    """
    from transformers import CLIPConfig

    if about.get("model_type") != "clip":
        raise CheckpointError(
            f"{source!r} is a {about.get('model_type')!r} model; CLIPScore reads 'clip'"
        )
    config = CLIPConfig.from_dict(dict(about))
    vision, text = config.vision_config, config.text_config
    return {
        "embed_dim": config.projection_dim,
        "quick_gelu": _is_quick(vision.hidden_act, text.hidden_act, source),
        "vision_cfg": {
            **_tower(vision),
            "image_size": vision.image_size,
            "patch_size": vision.patch_size,
            "head_width": vision.hidden_size // vision.num_attention_heads,
        },
        "text_cfg": {
            **_tower(text),
            "context_length": text.max_position_embeddings,
            "vocab_size": text.vocab_size,
            "heads": text.num_attention_heads,
        },
    }


def _tower(config: Any) -> dict[str, Any]:
    return {
        "width": config.hidden_size,
        "layers": config.num_hidden_layers,
        "mlp_ratio": config.intermediate_size / config.hidden_size,
        "norm_kwargs": {"eps": config.layer_norm_eps},
    }


def _is_quick(vision: str, text: str, source: str) -> bool:
    if vision != text or vision not in ("quick_gelu", "gelu"):
        raise CheckpointError(
            f"{source!r} activates with {vision!r} and {text!r}; both towers must use "
            "'quick_gelu' or both 'gelu'"
        )
    return vision == "quick_gelu"


def preprocessing_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """Mean, deviation and resampling of a transformers processor, in open_clip's terms."""
    settings = about.get("image_processor", about)
    names = {"mean": "image_mean", "std": "image_std"}
    fields = {
        ours: settings[theirs] for ours, theirs in names.items() if theirs in settings
    }
    if "resample" in settings:
        fields["interpolation"] = "bilinear" if settings["resample"] == 2 else "bicubic"
    return fields


Fetch = Callable[[str], Path | None]
"""The file of that name in a checkpoint, or None where there is no such file."""

OPEN_CLIP = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
TRANSFORMERS = ("model.safetensors", "pytorch_model.bin")

_LEFTOVERS = {"input_resolution", "context_length", "vocab_size", "attn_mask"}
"""Constants that OpenAI's and older checkpoints keep among their tensors."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights under open_clip's names, and the settings published with them."""

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
            f"{path.name} is not a file of plain tensors (OpenAI's original .pt files are "
            "programs, not tensors: name 'ViT-B-32:openai' to get the same weights as "
            f"safetensors): {str(error).splitlines()[0]}"
        ) from error
    return dict(loaded)
