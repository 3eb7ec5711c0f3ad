"""CLIP checkpoints as they are published: open_clip's layout, transformers', bare files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Resampling

from plait.generators.errors import CheckpointError
from plait.generators.loading.files import (
    Files,
    config_of_class,
    in_pickle,
    in_safetensors,
    read_json,
    read_stored,
    section,
)
from plait.generators.loading.strict import rename
from plait.scorers.embeddings.settings import ClipSettings

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
            # Query, key and value are stacked as in `torch.nn.MultiheadAttention`.
            parts = [name.replace(".q_proj.", f".{part}_proj.") for part in "qkv"]
            if missing := [part for part in parts if part not in tensors]:
                raise CheckpointError(f"CLIP weights lack {', '.join(missing)}")
            stacked = torch.cat([tensors[part] for part in parts])
            converted[rename(name, _NAMES)] = stacked
        elif not re.search(r"\.position_ids$|\.self_attn\.[kv]_proj\.", name):
            converted[rename(name, _NAMES)] = tensor
    return converted


def config_of(about: Mapping[str, Any], source: str) -> dict[str, Any]:
    """open_clip's model configuration for a transformers `config.json`.

    Fields that the file leaves out have the defaults of `transformers.CLIPConfig`.
    """
    if about.get("model_type") != "clip":
        raise CheckpointError(
            f"{source} is of a {about.get('model_type')!r} model; CLIPScore reads 'clip'"
        )
    config = config_of_class("CLIPConfig", about, source)
    vision = config.vision_config
    text = config.text_config
    kinds = {vision.hidden_act, text.hidden_act}
    if len(kinds) > 1 or not kinds <= {"quick_gelu", "gelu"}:
        raise CheckpointError(
            f"{source} activates with {vision.hidden_act!r} and {text.hidden_act!r}; both "
            "towers must use 'quick_gelu' or both 'gelu'"
        )
    return {
        "embed_dim": config.projection_dim,
        "quick_gelu": kinds == {"quick_gelu"},
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
    """Return what both towers' configurations have in common, in open_clip's terms."""
    return {
        "width": config.hidden_size,
        "layers": config.num_hidden_layers,
        "mlp_ratio": config.intermediate_size / config.hidden_size,
        "norm_kwargs": {"eps": config.layer_norm_eps},
    }


def preprocessing_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """Mean, deviation and resampling of a transformers processor, in open_clip's terms."""
    # transformers 5 keeps them with the rest of a processor.
    settings = about.get("image_processor", about)
    fields: dict[str, Any] = {}
    if "image_mean" in settings:
        fields["mean"] = settings["image_mean"]
    if "image_std" in settings:
        fields["std"] = settings["image_std"]
    if "resample" in settings:
        is_bilinear = settings["resample"] == Resampling.BILINEAR
        fields["interpolation"] = "bilinear" if is_bilinear else "bicubic"
    return fields


_SAFE = "open_clip_model.safetensors"
_PICKLED = "open_clip_pytorch_model.bin"
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
    path = Path(settings.model).expanduser()
    if settings.hub_id is None and path.is_file():
        return Checkpoint(_rename_keys(_bare(path)))
    files = Files(settings.hub_id or settings.model, settings.revision)
    if settings.file:
        return Checkpoint(_rename_keys(_bare(files.need(settings.file))))
    if config := files.find("open_clip_config.json"):
        about = read_json(config)
        tensors = _rename_keys(read_stored(files, safe=_SAFE, pickled=_PICKLED))
        model = section(about, "model_cfg", str(config))
        return Checkpoint(tensors, model, about.get("preprocess_cfg", {}))
    if config := files.find("config.json"):
        tensors = as_open_clip(_rename_keys(read_stored(files)))
        model = config_of(read_json(config), str(config))
        older = files.find("preprocessor_config.json")
        processor = older or files.find("processor_config.json")
        about = preprocessing_of(read_json(processor)) if processor else {}
        return Checkpoint(tensors, model, about)
    raise CheckpointError(
        f"{files.describe()} has neither open_clip_config.json (open_clip's layout) nor "
        "config.json (transformers')"
    )


def _bare(path: Path) -> Iterable[tuple[str, torch.Tensor]]:
    """Return the tensors of a file of weights alone."""
    if path.suffix == ".safetensors":
        return in_safetensors(path)
    try:
        loaded = in_pickle(path)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}. OpenAI's original .pt files are programs, not tensors: name "
            "'ViT-B-32:openai' to get the same weights as safetensors"
        ) from error
    return loaded.get("state_dict", loaded).items()  # type: ignore[no-any-return]


def _rename_keys(stored: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return the weights by name, without the prefix of parallel training."""
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in stored:
        plain = name.removeprefix("module.")
        if plain not in _LEFTOVERS:
            tensors[plain] = tensor
    return tensors
