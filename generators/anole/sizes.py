"""The two sizes we can build without a checkpoint: toy size and the published one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Size:
    """Dimensions of a Chameleon with its VQ model."""

    language: Mapping[str, Any]
    """Fields of transformers' `ChameleonConfig`."""
    vq: Mapping[str, Any]
    """Fields of `ChameleonVQVAEConfig`."""
    vocabulary: int | None
    """How many names the toy tokenizer is filled up to; None for just its words."""
    begin_image: float
    """Probability that random weights begin a picture after a word."""
    end: float
    """Probability that they end the answer after a word."""

    def config(self, ids: Mapping[str, int]) -> Any:
        """The `ChameleonConfig` for a vocabulary of token name -> id."""
        from transformers import ChameleonConfig

        sized = {"vocab_size": len(ids), "vocabulary_map": dict(ids)}
        return ChameleonConfig(**self.language, vq_config=dict(self.vq), **sized)


TINY = Size(
    language={
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 4096,
    },
    vq={
        "resolution": 64,
        "in_channels": 3,
        "base_channels": 32,
        "channel_multiplier": [1, 1, 2, 2],
        "num_res_blocks": 1,
        "latent_channels": 32,
        "embed_dim": 32,
        "num_embeddings": 128,
        "double_latent": False,
        "attn_resolutions": [],
        "attn_type": "vanilla",
    },
    vocabulary=None,
    begin_image=0.08,
    end=0.03,
)
"""Pictures of 64 x 64 pixels in 64 codes."""

FULL = Size(
    language={
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "swin_norm": False,
    },
    vq={
        "resolution": 512,
        "in_channels": 3,
        "base_channels": 128,
        "channel_multiplier": [1, 1, 2, 2, 4],
        "num_res_blocks": 2,
        "latent_channels": 256,
        "embed_dim": 256,
        "num_embeddings": 8192,
        "double_latent": False,
        "attn_resolutions": [],
        "attn_type": "vanilla",
    },
    vocabulary=65_536,
    begin_image=0.01,
    end=0.004,
)
"""Anole-7b-v0.1: 7.01 billion parameters and 68.7 million of the VQ model."""
