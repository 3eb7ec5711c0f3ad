"""Tiny vision-language checkpoints on disk, as they are published, and pictures."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image as Pillow
from tokenizers.processors import TemplateProcessing
from transformers import (
    GotOcr2ImageProcessor,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    InternVLVideoProcessor,
    PreTrainedTokenizerFast,
)

from generators.document import Image
from generators.pictures import encode
from pipelines.presets import LVLMS
from pipelines.vlm import random_weights
from pipelines.vlm.random_weights import tokenizer


def picture(width: int, height: int, seed: int) -> Image:
    """Coloured noise."""
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)
    return encode(Pillow.fromarray(pixels))


RED, GREEN, BLUE = picture(60, 40, 1), picture(230, 90, 2), picture(33, 150, 3)


def save_tiny(folder: Path, name: str = "qwen2-vl-7b") -> Path:
    """The tiny form of a published model, saved with its processor."""
    model, processor = random_weights.tiny(LVLMS[name].model)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


INTERNVL_TOKENS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
INTERNVL_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- for part in message.content -%}
{{ '<IMG_CONTEXT>\\n' if part.type == 'image' else part.text }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


def save_internvl(folder: Path) -> Path:
    """A toy InternVL (OpenGVLab/InternVL3-*-hf): a model of which we hold no recipe.

    Its tokenizer and its template both write the first token, as Llama's do.
    """
    specials = ["<s>", "<|im_start|>", "<|im_end|>", *INTERNVL_TOKENS.values()]
    core = tokenizer(specials).backend_tokenizer
    bos = ("<s>", core.token_to_id("<s>"))
    core.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[bos])
    own = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="<|im_end|>",
        extra_special_tokens=INTERNVL_TOKENS,
    )
    config = InternVLConfig(
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": [56, 56],
            "patch_size": [14, 14],
        },
        text_config={
            "model_type": "qwen2",
            "vocab_size": len(own),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "initializer_range": 0.4,
            "bos_token_id": None,
            "eos_token_id": own.eos_token_id,
        },
        image_token_id=own.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        InternVLForConditionalGeneration(config).save_pretrained(folder)
    side = {"height": 56, "width": 56}
    InternVLProcessor(
        GotOcr2ImageProcessor(size=side, crop_to_patches=True, max_patches=4),
        own,
        InternVLVideoProcessor(size=side),
        image_seq_length=4,
        chat_template=INTERNVL_TEMPLATE,
    ).save_pretrained(folder)
    return folder
