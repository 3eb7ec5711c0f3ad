"""SentencePiece models set up as LLaMA's is, trained on a few texts."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any


def trained_pieces(texts: Iterable[str], most: int, **options: Any) -> bytes:
    """A model of at most `most` pieces that reads any text, by byte fallback.

    The same on every machine. `options` are SentencePiece's own, added to LLaMA's.
    """
    from sentencepiece import SentencePieceTrainer

    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([*texts]),
        model_writer=written,
        model_type="bpe",
        vocab_size=most,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return written.getvalue()
