"""Small tokenizers for weights that come without any: one character, one token.

Published vocabularies cannot be had without a download, so `dummy` and `tiny` weights read
text by these. They are of the published classes, add the same special tokens and keep the
same lengths; only their counts are larger than a learned vocabulary's.
"""

from __future__ import annotations

from typing import Any

from transformers import CLIPTokenizer, T5Tokenizer

from generators.diffusion.designs import TokenizerKind

CLIP_LENGTH = 77
"""Positions of CLIP's text tower, start and end tokens included (arXiv:2103.00020)."""
T5_LENGTH = 512
"""Length the T5 tokenizers of SD3 and FLUX.1 declare."""


def small_tokenizer(kind: TokenizerKind) -> Any:
    """A tokenizer of the published class over single characters."""
    return _clip() if kind == "clip" else _t5()


def _clip() -> CLIPTokenizer:
    """One token per UTF-8 byte; the last of each word is another than inside a word."""
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


def _byte_characters() -> str:
    """The 256 characters by which byte-level BPE writes bytes (GPT-2's encoder.py)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = range(256, 256 + 256 - len(printable))
    return "".join(chr(c) for c in (*printable, *others))
