"""Vision-language models as published: sizes, special tokens and chat templates.

Sizes and ids are those of `config.json`, the prompt's form that of `chat_template.json`,
in the checkpoints Qwen/Qwen2-VL-{7B,72B}-Instruct (arXiv:2409.12191) and
llava-hf/llava-v1.6-34b-hf (LLaVA-NeXT on Nous-Hermes-2-Yi-34B).
"""

from __future__ import annotations

from typing import Any

from transformers import (
    LlavaNextConfig,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

QWEN2_SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
QWEN2_FIRST_SPECIAL_ID = 151643
QWEN2_ROLES = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}

QWEN2_CHAT_TEMPLATE = """\
{%- if messages and messages[0].role != 'system' -%}
{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif -%}
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string -%}{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part.type == 'video' -%}{{ '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- else -%}{{ part.text }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""

_QWEN2_SIZES: dict[str, dict[str, int]] = {
    "7b": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    },
    "72b": {
        "hidden_size": 8192,
        "intermediate_size": 29568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
    },
}
_QWEN2_TINY_SIZE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}

LLAVA_SPECIAL_TOKENS = (
    "<image>",
    "<pad>",
    "<unk>",
    "<|startoftext|>",
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
)
"""Of these only `<image>` has its published id, after Yi's 64,000 tokens."""
LLAVA_FIRST_SPECIAL_ID = 64000
LLAVA_ROLES = {"eos_token": "<|im_end|>", "pad_token": "<pad>", "unk_token": "<unk>"}

LLAVA_CHAT_TEMPLATE = """\
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
"""Pictures come first, then the text, whatever their order in the message."""

_LLAVA_PATCH = 14
_LLAVA_GRID = ((1, 2), (2, 1), (2, 2), (3, 1), (1, 3))
"""Tilings of a picture, in tiles (rows, columns); LLaVA-NeXT's `image_grid_pinpoints`."""


def qwen2_full_config(tokenizer: PreTrainedTokenizerFast, size: str) -> Qwen2VLConfig:
    """The published configuration of the `7b` or `72b` model."""
    text = {"vocab_size": 152064, "max_position_embeddings": 32768, **_QWEN2_SIZES[size]}
    vision = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "mlp_ratio": 4}
    return qwen2_config(tokenizer, text, [16, 24, 24], vision)


def qwen2_tiny_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLConfig:
    """The same architecture at toy size."""
    text = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 4096,
        **_QWEN2_TINY_SIZE,
    }
    vision = {"depth": 2, "embed_dim": 32, "num_heads": 2, "mlp_ratio": 2}
    return qwen2_config(tokenizer, text, [4, 6, 6], vision)


def qwen2_config(
    tokenizer: PreTrainedTokenizerFast,
    text: dict[str, Any],
    mrope_section: list[int],
    vision: dict[str, int],
    rope_theta: float = 1e6,
) -> Qwen2VLConfig:
    """A Qwen2-VL of these sizes; `mrope_section` sums to half of a head's dimension."""
    rope = {
        "rope_type": "default",
        "rope_theta": rope_theta,
        "mrope_section": mrope_section,
    }
    token_id = tokenizer.convert_tokens_to_ids
    return Qwen2VLConfig(
        text_config={
            **text,
            "rms_norm_eps": 1e-6,
            "rope_parameters": rope,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
        },
        vision_config=vision | {"hidden_size": text["hidden_size"], "patch_size": 14},
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
    )


def qwen2_processor(tokenizer: PreTrainedTokenizerFast, tiny: bool) -> Qwen2VLProcessor:
    """The published preprocessing; tiny models see pictures of at most 112 x 112."""
    budget = (28 * 28, 112 * 112) if tiny else (56 * 56, 28 * 28 * 16384)
    return Qwen2VLProcessor(
        Qwen2VLImageProcessor(min_pixels=budget[0], max_pixels=budget[1]),
        tokenizer,
        Qwen2VLVideoProcessor(),
        chat_template=QWEN2_CHAT_TEMPLATE,
    )


def llava_full_config(tokenizer: PreTrainedTokenizerFast) -> LlavaNextConfig:
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
    return _llava_config(tokenizer, text, vision)


def llava_tiny_config(tokenizer: PreTrainedTokenizerFast) -> LlavaNextConfig:
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
    return _llava_config(tokenizer, text, vision)


def _llava_config(
    tokenizer: PreTrainedTokenizerFast, text: dict[str, Any], vision: dict[str, Any]
) -> LlavaNextConfig:
    return LlavaNextConfig(
        text_config={
            "model_type": "llama",
            **text,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
        },
        vision_config={
            "model_type": "clip_vision_model",
            "patch_size": _LLAVA_PATCH,
            **vision,
        },
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=_llava_pinpoints(vision["image_size"]),
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )


def llava_processor(tokenizer: PreTrainedTokenizerFast, tiny: bool) -> LlavaNextProcessor:
    """The published preprocessing: tiles of 336 x 336, or 56 x 56 for tiny models."""
    side = 56 if tiny else 336
    images = LlavaNextImageProcessor(
        size={"shortest_edge": side},
        crop_size={"height": side, "width": side},
        image_grid_pinpoints=_llava_pinpoints(side),
    )
    return LlavaNextProcessor(
        images,
        tokenizer,
        patch_size=_LLAVA_PATCH,
        vision_feature_select_strategy="default",
        # The class token of the vision tower, which the strategy drops again.
        num_additional_image_tokens=1,
        chat_template=LLAVA_CHAT_TEMPLATE,
    )


def _llava_pinpoints(side: int) -> list[list[int]]:
    return [[rows * side, columns * side] for rows, columns in _LLAVA_GRID]
