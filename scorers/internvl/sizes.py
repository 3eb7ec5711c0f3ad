"""The two sizes we can build without a checkpoint, told as by a published `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def described(
    vision: Mapping[str, Any], language: Mapping[str, Any], tile: int
) -> dict[str, Any]:
    """The `config.json` of an `InternVLChatModel` with an InternViT and a Phi-3."""
    fixed = {
        "num_channels": 3,
        "patch_size": 14,
        "image_size": tile,
        "qkv_bias": True,
        "qk_normalization": False,
        "norm_type": "layer_norm",
        "layer_norm_eps": 1e-6,
        "hidden_act": "gelu",
    }
    return {
        "architectures": ["InternVLChatModel"],
        "model_type": "internvl_chat",
        "template": "phi3-chat",
        "ps_version": "v2",
        "select_layer": -1,
        "downsample_ratio": 0.5,
        "force_image_size": tile,
        "vision_config": fixed | dict(vision),
        "llm_config": {"architectures": ["Phi3ForCausalLM"], **language},
    }


TINY = described(
    {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    },
    {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {
            "type": "su",
            "short_factor": [1.0] * 8,
            "long_factor": [1.0 + i for i in range(8)],
        },
    },
    tile=56,
)
"""Tiles of 56 x 56 pixels in 4 tokens. The vocabulary is that of its tokenizer."""

FULL = described(
    {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    },
    {
        "vocab_size": 32_020,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 131_072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {
            "type": "su",
            "short_factor": [1.0] * 48,
            "long_factor": [1.0] * 48,
        },
    },
    tile=448,
)
"""InternVL2-4B: InternViT-300M and Phi-3-mini-128k, 4.15 billion parameters. The factors
of its rotary frequencies, which cost nothing, are left at 1."""
