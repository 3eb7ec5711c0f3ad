"""Phi-3's LLaMA tokenizer as published: a SentencePiece model and added tokens.

Reads `tokenizer.model` and `tokenizer_config.json` and yields the ids of transformers
4.37's slow `LlamaTokenizer`, which the official scorer uses (`use_fast=False`). Only the
caller places added tokens: their names in a text are read letter by letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import sentencepiece

from generators.errors import CheckpointError

_SPACE = "\u2581"
"""How SentencePiece writes a space."""
_NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"
"""`normalizer_spec { add_dummy_prefix: false }` of sentencepiece_model.proto. Messages in
this format are merged by setting one after the other."""


@dataclass(frozen=True, slots=True)
class Control:
    """An added token in its own right, as opposed to its name in a text."""

    name: str


@dataclass(frozen=True, slots=True)
class Added:
    """A token that is not a piece of the SentencePiece model, or is more than that."""

    name: str
    id: int
    strips_left: bool = False
    """Takes the white space before it."""
    strips_right: bool = False
    """Takes the white space after it, as Phi-3's chat tokens do."""


class Tokenizer:
    """Text and control tokens to ids, ids to text."""

    def __init__(
        self, model: bytes, config: Mapping[str, Any], added: Iterable[Added]
    ) -> None:
        """From the content of `tokenizer.model` and of `tokenizer_config.json`.

        Raises CheckpointError when the former is no SentencePiece model.
        """
        self._legacy = config.get("legacy") is not False
        proto = model if self._legacy else model + _NO_DUMMY_PREFIX
        self._pieces = _processor(proto)
        self._added = {token.name: token for token in added}
        self._name_of = {token.id: token.name for token in self._added.values()}
        self._special = _special_names(config)
        ends = (("bos_token", "add_bos_token", True), ("eos_token", "add_eos_token", False))
        self._first, self._last = (
            [self._id(_name(config.get(key, default)))] if config.get(flag, on) else []
            for (key, flag, on), default in zip(ends, ("<s>", "</s>"), strict=True)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all added tokens."""
        return tuple(self._added)

    def id(self, control: Control) -> int:
        """The id of an added token; CheckpointError when the tokenizer has none such."""
        if control.name not in self._added:
            raise CheckpointError(f"the tokenizer has no added token {control.name!r}")
        return self._added[control.name].id

    def encode(self, parts: Sequence[str | Control]) -> list[int]:
        """Ids of text and control tokens in order, with whatever a sequence begins with."""
        ids = [*self._first, *self._lead(parts)]
        for text, before, after in _with_neighbours(_joined(parts)):
            if isinstance(text, Control):
                ids.append(self.id(text))
            else:
                ids += self._chunk(self._stripped(text, before, after))
        return [*ids, *self._last]

    def _lead(self, parts: Sequence[str | Control]) -> list[int]:
        """The space before the first word; it stays before tokens of no special role."""
        if self._legacy or not parts:
            return []
        first = parts[0]
        if isinstance(first, Control) and first.name in self._special:
            return []
        return self._chunk(_SPACE) if isinstance(first, Control) else []

    def _stripped(self, text: str, before: Control | None, after: Control | None) -> str:
        if before is None and not self._legacy:
            text = _SPACE + text
        if before is not None and self._added[before.name].strips_right:
            text = text.lstrip()
        if after is not None and self._added[after.name].strips_left:
            text = text.rstrip()
        return text

    def _chunk(self, text: str) -> list[int]:
        """Ids of a text between control tokens."""
        if self._legacy:
            return list(self._pieces.encode(text))
        text = text.replace(_SPACE, " ")
        if not text.startswith(" "):
            return list(self._pieces.encode(text))
        # SentencePiece may drop spaces at the beginning, but not after something.
        guard = "<unk>"
        ids: list[int] = self._pieces.encode(guard + text)
        return ids[len(self._pieces.encode(guard)) :]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special tokens and ids without a name are left out.

        Other added tokens stand by their names, between spaces.
        """
        special = {self._id(name) for name in self._special if name in self._added}
        size = self._pieces.get_piece_size()
        known = [i for i in ids if i not in special and (i in self._name_of or i < size)]
        texts: list[str] = []
        for is_added, group in groupby(known, lambda i: i in self._name_of):
            if is_added:
                texts += [self._name_of[i] for i in group]
            elif text := self._spelled(group):
                texts.append(text)
        return " ".join(texts)

    def _spelled(self, ids: Iterable[int]) -> str:
        pieces = [self._pieces.id_to_piece(i) for i in ids]
        # The space before the first word is the tokenizer's own.
        pieces[0] = pieces[0].removeprefix(_SPACE)
        return str(self._pieces.decode(pieces))

    def _id(self, name: str) -> int:
        if name in self._added:
            return self._added[name].id
        return int(self._pieces.piece_to_id(name))


def added_tokens(
    config: Mapping[str, Any], listed: Mapping[str, int] | None = None
) -> list[Added]:
    """The added tokens of a `tokenizer_config.json`, or of an older `added_tokens.json`."""
    told = config.get("added_tokens_decoder")
    if told is None:
        return [Added(name, i) for name, i in (listed or {}).items()]
    return [
        Added(t["content"], int(i), bool(t.get("lstrip")), bool(t.get("rstrip")))
        for i, t in told.items()
    ]


def _processor(proto: bytes) -> Any:
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=proto)
    except RuntimeError as error:
        raise CheckpointError(f"tokenizer.model is broken: {error}") from None


def _special_names(config: Mapping[str, Any]) -> frozenset[str]:
    """Names of tokens with a role of their own, which decoding leaves out."""
    roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    named = [config.get(role, default) for role, default in roles.items()]
    named += [config.get("pad_token"), *config.get("additional_special_tokens", ())]
    return frozenset(_name(token) for token in named if token)


def _name(token: Any) -> str:
    return str(token["content"] if isinstance(token, Mapping) else token)


def _joined(parts: Sequence[str | Control]) -> list[str | Control]:
    """Neighbouring texts as one."""
    joined: list[str | Control] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def _with_neighbours(
    parts: list[str | Control],
) -> list[tuple[str | Control, Control | None, Control | None]]:
    """Each part with the control tokens before and after it."""
    around = [None, *parts, None]
    sides = [p if isinstance(p, Control) else None for p in around]
    return list(zip(parts, sides, sides[2:], strict=False))
