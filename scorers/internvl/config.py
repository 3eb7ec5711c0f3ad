"""A published checkpoint as transformers' InternVL: its `config.json` and its names.

The published names are those of modeling_intern_vit.py and modeling_internvl_chat.py
(OpenGVLab/InternVL@2410d1d); ours are transformers' `InternVLForConditionalGeneration`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor
from transformers import InternVLConfig, InternVLVisionConfig, Phi3Config

from plait.generators.errors import CheckpointError
from plait.generators.loading.strict import Layout, Place, rename

_RULES = {
    ("template",): "phi3-chat",
    ("ps_version",): "v2",
    ("select_layer",): -1,
    ("llm_config", "architectures"): ["Phi3ForCausalLM"],
}
"""The values that this stage supports, by place in `config.json`."""
_VISION = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("patch_size", "qkv_bias", "qk_normalization", "norm_type", "layer_norm_eps"),
    "hidden_act",
)
_OTHERWISE = {"qkv_bias": "attention_bias", "qk_normalization": "use_qk_norm"}
"""Published names that are others in `InternVLVisionConfig`."""
_LANGUAGE = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "max_position_embeddings"),
)
_OPTIONAL = (
    *("num_key_value_heads", "original_max_position_embeddings"),
    *("hidden_act", "rms_norm_eps"),
)
"""Phi-3's own defaults apply where a file lacks them."""


def model_config(config: Mapping[str, Any], source: str) -> InternVLConfig:
    """Return the configuration of a checkpoint described by its `config.json`.

    Raises CheckpointError for other templates, language models and rotary embeddings
    than those of InternVL2-4B, and for a configuration that lacks a size.
    """
    if config.get("use_llm_lora") or config.get("use_backbone_lora"):
        raise CheckpointError(
            f"{source} holds adapters (use_llm_lora, use_backbone_lora): merge them into "
            "the weights first, with InternVL's tools/merge_lora.py"
        )
    for path, allowed in _RULES.items():
        if (value := _at(config, path, source)) != allowed:
            raise CheckpointError(
                f"{source}: {'.'.join(path)} is {value!r}; this judge reads checkpoints "
                f"with {allowed!r} only"
            )
    fields: dict[str, Any] = {}
    for name in _VISION:
        ours = _OTHERWISE.get(name, name)
        fields[ours] = _at(config, ("vision_config", name), source)
    own_size = config.get("force_image_size")
    size = own_size or _at(config, ("vision_config", "image_size"), source)
    ratio = _at(config, ("downsample_ratio",), source)
    try:
        vision = InternVLVisionConfig(**fields, image_size=size)
        side = vision.image_size[0] // vision.patch_size[0]
        return InternVLConfig(
            vision_config=vision,
            text_config=_language(config, source),
            image_seq_length=int(side**2 * ratio**2),
            downsample_ratio=ratio,
            tie_word_embeddings=False,
        )
    except CheckpointError:
        raise
    except Exception as error:
        # The configuration classes raise errors of many kinds for invalid values.
        reason = " ".join(str(error).split())
        raise CheckpointError(f"config.json of {source} is invalid: {reason}") from error


def _language(config: Mapping[str, Any], source: str) -> Phi3Config:
    fields = {name: _at(config, ("llm_config", name), source) for name in _LANGUAGE}
    own = config["llm_config"]
    for name in _OPTIONAL:
        if own.get(name) is not None:
            fields[name] = own[name]
    window = own.get("sliding_window")
    if window is not None and window < fields["max_position_embeddings"]:
        raise CheckpointError(
            f"{source}: sliding_window {window} is shorter than the "
            f"{fields['max_position_embeddings']} positions; it is not supported"
        )
    return Phi3Config(
        **fields,
        rope_parameters=_rope(own, source),
        tie_word_embeddings=False,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )


def _rope(language: Mapping[str, Any], source: str) -> dict[str, Any]:
    theta = {"rope_theta": language.get("rope_theta", 10_000.0)}
    scaling = language.get("rope_scaling")
    if scaling is None:
        return {"rope_type": "default", **theta}
    kind = scaling.get("type", scaling.get("rope_type"))
    if kind not in ("su", "longrope"):
        raise CheckpointError(
            f"{source}: rope_scaling of type {kind!r}; only 'su' (longrope) is supported"
        )
    place = ("llm_config", "original_max_position_embeddings")
    original = _at({"llm_config": language}, place, source)
    return {
        "rope_type": "longrope",
        "short_factor": scaling["short_factor"],
        "long_factor": scaling["long_factor"],
        "original_max_position_embeddings": original,
        "factor": language["max_position_embeddings"] / original,
        **theta,
    }


def _at(config: Any, path: tuple[str, ...], source: str) -> Any:
    """Return the value at a place in `config.json`; CheckpointError where it is missing."""
    for name in path:
        if not isinstance(config, Mapping) or name not in config:
            raise CheckpointError(f"config.json of {source} lacks {'.'.join(path)}")
        config = config[name]
    return config


_NAMES = [
    (r"^model\.vision_tower\.encoder\.layer\.", "vision_model.encoder.layers."),
    (r"^model\.vision_tower\.", "vision_model."),
    (r"^model\.multi_modal_projector\.layer_norm\.", "mlp1.0."),
    (r"^model\.multi_modal_projector\.linear_1\.", "mlp1.1."),
    (r"^model\.multi_modal_projector\.linear_2\.", "mlp1.3."),
    (r"^model\.language_model\.", "language_model.model."),
    (r"^lm_head\.", "language_model.lm_head."),
    (r"\.embeddings\.cls_token$", ".embeddings.class_embedding"),
    (r"\.embeddings\.position_embeddings$", ".embeddings.position_embedding"),
    (r"\.patch_embeddings\.projection\.", ".patch_embedding."),
    (r"\.attention\.([qk])_norm\.", r".attn.\1_norm."),
    (r"\.attention\.([qkv])_proj\.(weight|bias)$", r".attn.qkv.\2[\1]"),
    (r"\.attention\.projection_layer\.", ".attn.proj."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.lambda_([12])$", r".ls\1"),
]
"""From transformers' names to the published ones."""


def layout_of(names: Iterable[str]) -> Layout:
    """The layout for the parameters `names`, of the tensors that `separate` yields."""
    return {rename(name, _NAMES): Place(name) for name in names}


def separate(stored: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Stored tensors, with the joint projection of the vision model's attention in three.

    `...attn.qkv.weight` becomes `...attn.qkv.weight[q]`, `[k]` and `[v]`.
    """
    for name, tensor in stored:
        if not re.search(r"^vision_model\..*\.attn\.qkv\.(weight|bias)$", name):
            yield name, tensor
            continue
        for part, piece in zip("qkv", tensor.tensor_split(3), strict=True):
            yield f"{name}[{part}]", piece
