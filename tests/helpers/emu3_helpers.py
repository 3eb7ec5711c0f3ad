"""A tiny Emu3 checkpoint in transformers' layout."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from frozen import filled
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as bpe
from transformers import (
    Emu3Config,
    Emu3ForConditionalGeneration,
    Emu3ImageProcessor,
    Emu3Processor,
    PreTrainedTokenizerFast,
)

from plait.generators.toys import BYTE_LEVEL

CODES = 64
AREA = 48 * 48
"""Six rows of six codes, of 8 x 8 pixels each."""
_ROLES = {
    "bos_token": "<|extra_203|>",
    "eos_token": "<|extra_204|>",
    "pad_token": "<|endoftext|>",
}
_MARKS = {
    "image_token": "<image>",
    "boi_token": "<|image start|>",
    "eoi_token": "<|image end|>",
    "image_wrapper_token": "<|image token|>",
    "eof_token": "<|extra_201|>",
}
LINE = "<|extra_200|>"
TEMPLATE = (
    "{% for m in messages %}{{m['role'].upper()}}: {% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<image>{% else %}{{c['text']}}{% endif %}{% endfor %} "
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


@functools.cache
def processor() -> Any:
    specials = [*_ROLES.values(), *_MARKS.values(), LINE]
    codes = [f"<|visual token {i:06d}|>" for i in range(CODES)]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids, merges = BYTE_LEVEL.vocabulary([*specials, *codes, *alphabet])
    core = Tokenizer(bpe.BPE(vocab=ids, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([*specials, *codes])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        padding_side="left",
        extra_special_tokens=dict(_MARKS),
        **_ROLES,
    )
    images = Emu3ImageProcessor(min_pixels=32 * 32, max_pixels=48 * 48)
    return Emu3Processor(images, tokenizer, chat_template=TEMPLATE)


@functools.cache
def model() -> Any:
    words = processor().tokenizer
    roles = {name: words.convert_tokens_to_ids(token) for name, token in _ROLES.items()}
    text = {
        "vocab_size": len(words),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        **{f"{name}_id": token for name, token in roles.items()},
    }
    vq = {
        "codebook_size": CODES,
        "base_channels": 32,
        "channel_multiplier": [1, 1, 1, 1],
        "num_res_blocks": 1,
        "attn_resolutions": [],
        "hidden_size": 32,
    }
    config = Emu3Config(
        text_config=text, vq_config=vq, vocabulary_map=dict(words.get_vocab())
    )
    made = filled(Emu3ForConditionalGeneration(config), 35)
    for name, token in roles.items():
        setattr(made.generation_config, f"{name}_id", token)
    return made


def checkpoint(folder: Path) -> Path:
    """Write it with its processor."""
    model().save_pretrained(folder)
    processor().save_pretrained(folder)
    return folder
