"""Phi-3's LLaMA tokenizer as published: a SentencePiece model and added tokens.

Reads `tokenizer.model` and `tokenizer_config.json` and yields the ids of transformers
4.37's slow `LlamaTokenizer`, which the official scorer uses (`use_fast=False`), in its
legacy form (`generators.loading.llama`) or, with `"legacy": false`, in the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from generators.loading.llama import (
    AddedToken,
    Control,
    LlamaPieces,
    LlamaTokenizer,
)

_SPACE = "\u2581"
"""How SentencePiece writes a space."""
_NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"
"""`normalizer_spec { add_dummy_prefix: false }` of sentencepiece_model.proto. Messages in
this format are merged by setting one after the other."""


class PhiTokenizer(LlamaTokenizer):
    """Text and control tokens to ids, ids to text."""

    def __init__(
        self, model: bytes, config: Mapping[str, Any], added: Iterable[AddedToken]
    ) -> None:
        """From the content of `tokenizer.model` and of `tokenizer_config.json`.

        Raises CheckpointError when the former is not a SentencePiece model.
        """
        self._legacy = config.get("legacy") is not False
        proto = model if self._legacy else model + _NO_DUMMY_PREFIX
        super().__init__(LlamaPieces.parsed(proto, "tokenizer.model"), added)
        self._name_of = {token.id: token.name for token in self.added.values()}
        self._special = _special_names(config)
        ends = (("bos_token", "add_bos_token", True), ("eos_token", "add_eos_token", False))
        self._first, self._last = (
            [self._id(_name(config.get(key, default)))] if config.get(flag, on) else []
            for (key, flag, on), default in zip(ends, ("<s>", "</s>"), strict=True)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all added tokens."""
        return tuple(self.added)

    def encode(self, parts: Sequence[str | Control]) -> list[int]:
        """Ids of text and control tokens in order, with whatever a sequence begins with."""
        return [*self._first, *self._lead(parts), *super().encode(parts), *self._last]

    def _lead(self, parts: Sequence[str | Control]) -> list[int]:
        """The space before the first word; it stays before tokens of no special role."""
        if self._legacy or not parts:
            return []
        first = parts[0]
        if isinstance(first, Control) and first.name in self._special:
            return []
        return self.chunk(_SPACE) if isinstance(first, Control) else []

    def stripped(self, text: str, before: Control | None, after: Control | None) -> str:
        """As every LLaMA tokenizer; a text that opens a prompt begins with a space."""
        if before is None and not self._legacy:
            text = _SPACE + text
        return super().stripped(text, before, after)

    def chunk(self, text: str) -> list[int]:
        """Ids of a text between control tokens."""
        if self._legacy:
            return super().chunk(text)
        text = text.replace(_SPACE, " ")
        if not text.startswith(" "):
            return self.pieces.encode(text)
        # SentencePiece may drop spaces at the beginning, but not after something.
        guard = "<unk>"
        ids = self.pieces.encode(guard + text)
        return ids[len(self.pieces.encode(guard)) :]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special tokens and ids without a name are left out.

        Other added tokens stand by their names, between spaces.
        """
        special = {self._id(name) for name in self._special if name in self.added}
        size = self.pieces.size
        known = [i for i in ids if i not in special and (i in self._name_of or i < size)]
        texts: list[str] = []
        for is_added, group in groupby(known, lambda i: i in self._name_of):
            if is_added:
                texts += [self._name_of[i] for i in group]
            elif text := self._spelled(group):
                texts.append(text)
        return " ".join(texts)

    def _spelled(self, ids: Iterable[int]) -> str:
        pieces = [self.pieces.processor.id_to_piece(i) for i in ids]
        # The space before the first word is the tokenizer's own.
        pieces[0] = pieces[0].removeprefix(_SPACE)
        return str(self.pieces.processor.decode(pieces))

    def _id(self, name: str) -> int:
        if name in self.added:
            return self.added[name].id
        return int(self.pieces.processor.piece_to_id(name))


def added_tokens(
    config: Mapping[str, Any], listed: Mapping[str, int] | None = None
) -> list[AddedToken]:
    """The added tokens of a `tokenizer_config.json`, or of an older `added_tokens.json`."""
    decoder = config.get("added_tokens_decoder")
    if decoder is None:
        return [AddedToken(name, i) for name, i in (listed or {}).items()]
    return [
        AddedToken(t["content"], int(i), bool(t.get("lstrip")), bool(t.get("rstrip")))
        for i, t in decoder.items()
    ]


def _special_names(config: Mapping[str, Any]) -> frozenset[str]:
    """Names of tokens with a role of their own, which decoding leaves out."""
    roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    named = [config.get(role, default) for role, default in roles.items()]
    named += [config.get("pad_token"), *config.get("additional_special_tokens", ())]
    return frozenset(_name(token) for token in named if token)


def _name(token: Any) -> str:
    return str(token["content"] if isinstance(token, Mapping) else token)
