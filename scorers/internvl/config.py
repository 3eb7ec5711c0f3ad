"""A published `config.json` as transformers' `InternVLConfig`, or why it is not ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import InternVLConfig, InternVLVisionConfig, Phi3Config

from generators.checkpoints import CheckpointError

_RULES = {
    ("template",): "phi3-chat",
    ("ps_version",): "v2",
    ("select_layer",): -1,
    ("llm_config", "architectures"): ["Phi3ForCausalLM"],
}
"""What this stage can read, by the place in `config.json`."""
_VISION = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "patch_size": "patch_size",
    "qkv_bias": "attention_bias",
    "qk_normalization": "use_qk_norm",
    "norm_type": "norm_type",
    "layer_norm_eps": "layer_norm_eps",
    "hidden_act": "hidden_act",
}
"""From the published names to those of `InternVLVisionConfig`."""
_LANGUAGE = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)
_OPTIONAL = (
    "num_key_value_heads",
    "original_max_position_embeddings",
    "hidden_act",
    "rms_norm_eps",
)
"""Left to Phi-3's own defaults where a file does not say."""


def model_config(told: Mapping[str, Any], source: str) -> InternVLConfig:
    """The configuration of a checkpoint described by its `config.json`.

    Raises CheckpointError for other templates, language models and rotary embeddings
    than those of InternVL2-4B, and for a configuration that lacks a size.
    """
    if told.get("use_llm_lora") or told.get("use_backbone_lora"):
        raise CheckpointError(
            f"{source} holds adapters (use_llm_lora, use_backbone_lora): merge them into "
            "the weights first, with InternVL's tools/merge_lora.py"
        )
    for path, allowed in _RULES.items():
        if (value := _at(told, path, source)) != allowed:
            raise CheckpointError(
                f"{source}: {'.'.join(path)} is {value!r}; this judge reads checkpoints "
                f"with {allowed!r} only"
            )
    try:
        return _built(told, source)
    except CheckpointError:
        raise
    except Exception as error:
        # The configuration classes raise errors of many kinds for values out of rule.
        reason = " ".join(str(error).split())
        raise CheckpointError(f"config.json of {source} is invalid: {reason}") from error


def _built(told: Mapping[str, Any], source: str) -> InternVLConfig:
    vision = _vision(told, source)
    side = vision.image_size[0] // vision.patch_size[0]
    ratio = _at(told, ("downsample_ratio",), source)
    return InternVLConfig(
        vision_config=vision,
        text_config=_language(told, source),
        image_seq_length=int(side**2 * ratio**2),
        downsample_ratio=ratio,
        tie_word_embeddings=False,
    )


def _vision(told: Mapping[str, Any], source: str) -> InternVLVisionConfig:
    fields = {
        ours: _at(told, ("vision_config", theirs), source)
        for theirs, ours in _VISION.items()
    }
    size = told.get("force_image_size") or _at(
        told, ("vision_config", "image_size"), source
    )
    return InternVLVisionConfig(**fields, image_size=size)


def _language(told: Mapping[str, Any], source: str) -> Phi3Config:
    fields = {name: _at(told, ("llm_config", name), source) for name in _LANGUAGE}
    own = told["llm_config"]
    fields |= {name: own[name] for name in _OPTIONAL if own.get(name) is not None}
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


def _at(told: Any, path: tuple[str, ...], source: str) -> Any:
    for name in path:
        if not isinstance(told, Mapping) or name not in told:
            raise CheckpointError(f"config.json of {source} lacks {'.'.join(path)}")
        told = told[name]
    return told
