"""Qwen2-VL as published: its sizes, special tokens and chat template (arXiv:2409.12191).

Sizes and ids are those of `config.json`, the prompt's form that of `chat_template.json`
in the checkpoints Qwen/Qwen2-VL-{7B,72B}-Instruct.
"""

from __future__ import annotations

from typing import Any

from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

SPECIAL_TOKENS = (
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
FIRST_SPECIAL_ID = 151643
ROLES = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}

CHAT_TEMPLATE = """\
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

_SIZES: dict[str, dict[str, int]] = {
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
_TINY_SIZE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def full_config(tokenizer: PreTrainedTokenizerFast, size: str) -> Qwen2VLConfig:
    """The published configuration of the `7b` or `72b` model."""
    text = {"vocab_size": 152064, "max_position_embeddings": 32768, **_SIZES[size]}
    vision = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "mlp_ratio": 4}
    return _config(tokenizer, text, [16, 24, 24], vision)


def tiny_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLConfig:
    """The same architecture at toy size."""
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": 4096, **_TINY_SIZE}
    vision = {"depth": 2, "embed_dim": 32, "num_heads": 2, "mlp_ratio": 2}
    return _config(tokenizer, text, [4, 6, 6], vision)


def _config(
    tokenizer: PreTrainedTokenizerFast,
    text: dict[str, Any],
    mrope_section: list[int],
    vision: dict[str, int],
) -> Qwen2VLConfig:
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": mrope_section}
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


def processor(tokenizer: PreTrainedTokenizerFast, tiny: bool) -> Qwen2VLProcessor:
    """The published preprocessing; tiny models see pictures of at most 112 x 112."""
    budget = (28 * 28, 112 * 112) if tiny else (56 * 56, 28 * 28 * 16384)
    return Qwen2VLProcessor(
        Qwen2VLImageProcessor(min_pixels=budget[0], max_pixels=budget[1]),
        tokenizer,
        Qwen2VLVideoProcessor(),
        chat_template=CHAT_TEMPLATE,
    )
