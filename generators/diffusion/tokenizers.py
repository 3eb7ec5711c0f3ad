"""Small tokenizers, one token per character, for pipelines without a checkpoint.

They have the published classes, special tokens and lengths; only their token counts are
larger.
"""

from __future__ import annotations

from typing import Any

from transformers import CLIPTokenizer, GemmaTokenizer, Qwen2Tokenizer, T5Tokenizer

from generators.diffusion.designs import TokenizerKind

CLIP_IDS = {"bos_token_id": 512, "eos_token_id": 513, "pad_token_id": 513}
"""Where a CLIP pools that reads by the small tokenizer."""
CLIP_LENGTH = 77
"""Positions of CLIP's text tower, start and end tokens included (arXiv:2103.00020)."""
T5_LENGTH = 512
"""Length the T5 tokenizers of SD3 and FLUX.1 declare."""
QWEN_LENGTH = 131072
GEMMA_LENGTH = 8192


def small_tokenizer(kind: TokenizerKind) -> Any:
    """A tokenizer of the published class over single characters."""
    makers = {"clip": _clip, "t5": _t5, "qwen": _qwen, "gemma": _gemma}
    return makers[kind]()


def _clip() -> CLIPTokenizer:
    """One token per UTF-8 byte; the last of each word differs from those inside it."""
    inside = list(_byte_characters())
    tokens = inside + [c + "</w>" for c in inside]
    # Last, because CLIP pools at the largest id when its config has the old end token.
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=CLIP_LENGTH)


def _t5() -> T5Tokenizer:
    """One token per printable ASCII character and per gap; other text is unknown."""
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -10.0)]
    pieces = [(chr(c), -2.0) for c in range(33, 127)]
    vocabulary = [*special, ("\N{LOWER ONE EIGHTH BLOCK}", -2.0), *pieces]
    return T5Tokenizer(vocab=vocabulary, extra_ids=0, model_max_length=T5_LENGTH)


_CHAT = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""


def _qwen() -> Qwen2Tokenizer:
    """One token per UTF-8 byte, and those of Qwen's chats."""
    tokens = [*_byte_characters(), "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return Qwen2Tokenizer(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[],
        eos_token="<|im_end|>",
        extra_special_tokens=["<|im_start|>"],
        chat_template=_CHAT,
        model_max_length=QWEN_LENGTH,
    )


def _gemma() -> GemmaTokenizer:
    """One token per gap and per UTF-8 byte, after the special tokens in Gemma's order."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens.append("\N{LOWER ONE EIGHTH BLOCK}")
    return GemmaTokenizer(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[],
        add_bos_token=True,
        model_max_length=GEMMA_LENGTH,
    )


def _byte_characters() -> str:
    """The 256 characters by which byte-level BPE writes bytes (GPT-2's encoder.py)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = range(256, 256 + 256 - len(printable))
    return "".join(chr(c) for c in (*printable, *others))
