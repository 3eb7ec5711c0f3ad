"""LLaVA-v1.6-34B (LLaVA-NeXT on Nous-Hermes-2-Yi-34B) as published: sizes and template.

Sizes are those of `config.json`, the prompt's form that of `chat_template.json` in the
checkpoint llava-hf/llava-v1.6-34b-hf: pictures first, then the text, whatever their order.
"""

from __future__ import annotations

from typing import Any

from transformers import (
    LlavaNextConfig,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    PreTrainedTokenizerFast,
)

SPECIAL_TOKENS = (
    "<image>",
    "<pad>",
    "<unk>",
    "<|startoftext|>",
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
)
"""Of these only `<image>` stands at its published id, behind Yi's 64,000 tokens."""
FIRST_SPECIAL_ID = 64000
ROLES = {"eos_token": "<|im_end|>", "pad_token": "<pad>", "unk_token": "<unk>"}

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string -%}{{ message.content }}
{%- else -%}
{%- for part in message.content if part.type == 'image' -%}{{ '<image>\\n' }}{%- endfor -%}
{%- for part in message.content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""

_PATCH = 14
_GRID = ((1, 2), (2, 1), (2, 2), (3, 1), (1, 3))
"""Tilings of a picture, in tiles (rows, columns); LLaVA-NeXT's `image_grid_pinpoints`."""


def full_config(tokenizer: PreTrainedTokenizerFast) -> LlavaNextConfig:
    """The published configuration."""
    text = {
        "vocab_size": 64064,
        "hidden_size": 7168,
        "intermediate_size": 20480,
        "num_hidden_layers": 60,
        "num_attention_heads": 56,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e6},
    }
    vision = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "projection_dim": 768,
        "image_size": 336,
    }
    return _config(tokenizer, text, vision)


def tiny_config(tokenizer: PreTrainedTokenizerFast) -> LlavaNextConfig:
    """The same architecture at toy size."""
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e6},
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "projection_dim": 16,
        "image_size": 56,
    }
    return _config(tokenizer, text, vision)


def _config(
    tokenizer: PreTrainedTokenizerFast, text: dict[str, Any], vision: dict[str, Any]
) -> LlavaNextConfig:
    return LlavaNextConfig(
        text_config={
            "model_type": "llama",
            **text,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
        },
        vision_config={"model_type": "clip_vision_model", "patch_size": _PATCH, **vision},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=_pinpoints(vision["image_size"]),
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )


def processor(tokenizer: PreTrainedTokenizerFast, tiny: bool) -> LlavaNextProcessor:
    """The published preprocessing: tiles of 336 x 336, or 56 x 56 for tiny models."""
    side = 56 if tiny else 336
    images = LlavaNextImageProcessor(
        size={"shortest_edge": side},
        crop_size={"height": side, "width": side},
        image_grid_pinpoints=_pinpoints(side),
    )
    return LlavaNextProcessor(
        images,
        tokenizer,
        patch_size=_PATCH,
        vision_feature_select_strategy="default",
        # The class token of the vision tower, which the strategy drops again.
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )


def _pinpoints(side: int) -> list[list[int]]:
    return [[rows * side, columns * side] for rows, columns in _GRID]
