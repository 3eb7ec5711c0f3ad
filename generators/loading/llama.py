"""LLaMA's tokenizer as published: SentencePiece's pieces, and tokens added to them.

The rules are those of transformers' slow `LlamaTokenizer` with `legacy=True`, which the
models' authors used: text is split at added tokens, white space beside those that take it
is dropped, and every text between them is encoded by itself, with a space before it.
Today's tokenizers give other ids. Only the caller places added tokens: their names in a
text are read letter by letter.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plait.generators.errors import CheckpointError

BOS = "<s>"
EOS = "</s>"
UNKNOWN = "<unk>"


class LlamaPieces:
    """`tokenizer.model` alone: text to ids and back, without any added token."""

    def __init__(self, processor: Any) -> None:
        """Take a `sentencepiece.SentencePieceProcessor`."""
        self.processor = processor
        self.size: int = processor.get_piece_size()

    @classmethod
    def parse(cls, model: bytes, source: str) -> LlamaPieces:
        """Read the content of `tokenizer.model`; CheckpointError names `source`."""
        from sentencepiece import SentencePieceProcessor

        try:
            return cls(SentencePieceProcessor(model_proto=model))
        except RuntimeError as error:
            raise CheckpointError(
                f"{source} is not a valid SentencePiece model: {error}"
            ) from None

    @classmethod
    def read(cls, path: Path) -> LlamaPieces:
        """Read a file; CheckpointError when it is broken."""
        return cls.parse(path.read_bytes(), str(path))

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text's pieces, a space assumed before the first word."""
        ids: list[int] = self.processor.encode(text)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text without control and unknown pieces, and ids beyond the pieces."""
        special = self._special
        plain = [token for token in ids if token < self.size and token not in special]
        text: str = self.processor.decode(plain)
        return text

    def id_of(self, piece: str) -> int | None:
        """Return the id of a piece; None when there is no such piece."""
        piece_id: int = self.processor.piece_to_id(piece)
        # SentencePiece gives the unknown piece's for any other.
        return piece_id if self.processor.id_to_piece(piece_id) == piece else None

    @property
    def named(self) -> Mapping[str, int]:
        """Ids of the three pieces with a special role."""
        sp = self.processor
        return {BOS: sp.bos_id(), EOS: sp.eos_id(), UNKNOWN: sp.unk_id()}

    @cached_property
    def _special(self) -> frozenset[int]:
        special: set[int] = set()
        for token in range(self.size):
            if self.processor.is_control(token) or self.processor.is_unknown(token):
                special.add(token)
        return frozenset(special)


@dataclass(frozen=True, slots=True)
class Control:
    """An added token itself, as opposed to its name in a text."""

    name: str


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is not a piece of the SentencePiece model, or is more than that."""

    name: str
    id: int
    strips_left: bool = False
    """Takes the white space before it."""
    strips_right: bool = False
    """Takes the white space after it."""


class LlamaTokenizer:
    """Text and added tokens to ids."""

    def __init__(self, pieces: LlamaPieces, added: Iterable[AddedToken]) -> None:
        self.pieces = pieces
        self.added = {token.name: token for token in added}

    def id(self, control: Control) -> int:
        """Return the id of an added token; CheckpointError if there is no such token."""
        if control.name not in self.added:
            raise CheckpointError(f"the tokenizer has no added token {control.name!r}")
        return self.added[control.name].id

    def encode(self, parts: Sequence[str | Control]) -> list[int]:
        """Return the ids of text and added tokens in order; adjoining texts are one."""
        ids: list[int] = []
        texts: list[str] = []
        before: Control | None = None
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            ids += self._encode_between(before, texts, part)
            ids.append(self.id(part))
            before = part
            texts = []
        return ids + self._encode_between(before, texts, None)

    def _encode_between(
        self, before: Control | None, texts: Sequence[str], after: Control | None
    ) -> list[int]:
        """Return the ids of the texts between two added tokens, or the ends of all."""
        if not texts:
            return []
        return self.chunk(self.strip("".join(texts), before, after))

    def strip(self, text: str, before: Control | None, after: Control | None) -> str:
        """Return a text without the white space that the tokens beside it take."""
        if before is not None and self.added[before.name].strips_right:
            text = text.lstrip()
        if after is not None and self.added[after.name].strips_left:
            text = text.rstrip()
        return text

    def chunk(self, text: str) -> list[int]:
        """Return the ids of a text between added tokens."""
        return self.pieces.encode(text)


def train_pieces(texts: Iterable[str], most: int, **options: Any) -> bytes:
    """Train a model of at most `most` pieces that reads any text, by byte fallback.

    It is the same on every machine. `options` are SentencePiece's, added to LLaMA's.
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
