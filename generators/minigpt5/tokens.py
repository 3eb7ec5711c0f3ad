"""LLaMA's pieces as upstream reads them, and the ids that MiniGPT-5 adds after them.

Upstream uses the slow tokenizer of transformers 4.31 (`generators.loading.llama`). Here
the text of a prompt is tokenized apart from added tokens, so that `[IMG0]` or `</s>` in a
question are read as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from generators.errors import CheckpointError
from generators.loading.files import Files, read_json, read_tokenizer
from generators.loading.llama import BOS, EOS, UNKNOWN, LlamaPieces

VOKENS = 8
"""`[IMG0]` to `[IMG7]` (`IMG_TOKEN_NUM`, constants.py)."""
ADDED = VOKENS + 1
"""The vokens and `<ImageHere>`: the last rows of the embedding table."""
MARK = "###"
"""Begins every turn; an answer ends where the model writes it."""
_SPELLINGS = (("\u2581###",), ("##", "#"))
"""Pieces that spell the mark: ids [835] and [2277, 29937] of upstream's `predict`."""
_MODEL, _JSON = "tokenizer.model", "tokenizer.json"
_SPECIAL_MAPS = ("special_tokens_map.json", "tokenizer_config.json")


class JsonTokenizer:
    """A `tokenizer.json`, where there is no `tokenizer.model`; the same ids."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Otherwise `</s>` in a question would end the sequence.
        self._tokenizer.encode_special_tokens = True
        self._special = {tokenizer.token_to_id(t) for t in (UNKNOWN, BOS, EOS)}
        self.size: int = tokenizer.get_vocab_size(with_added_tokens=False)

    def encode(self, text: str) -> list[int]:
        """Return ids of the text's pieces."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text; control and unknown pieces are left out."""
        plain = [i for i in ids if i not in self._special]
        text: str = self._tokenizer.decode(plain, skip_special_tokens=False)
        return text

    def id_of(self, piece: str) -> int | None:
        """Return the id of a piece; None when there is no such piece."""
        token: int | None = self._tokenizer.token_to_id(piece)
        return token


TextTokenizer = LlamaPieces | JsonTokenizer
"""Text to pieces and back, without any special tokens."""


def stored_tokenizer(files: Files) -> TextTokenizer:
    """Return the tokenizer of a LLaMA checkpoint; CheckpointError where there is none."""
    if (path := files.find(_MODEL)) is not None:
        return LlamaPieces.stored(path)
    if (path := files.find(_JSON)) is not None:
        return JsonTokenizer(read_tokenizer(path))
    raise CheckpointError(f"{files.describe()} has neither {_MODEL} nor {_JSON}")


def stored_bos(files: Files, tokenizer: TextTokenizer) -> int:
    """Return the id with which a prompt begins, by the checkpoint's `bos_token`.

    Conversions of LLaMA-1 name `<s>`, `</s>` or nothing at all; a name without a piece is
    the unknown piece, as in transformers.
    """
    name = BOS
    for file in _SPECIAL_MAPS:
        path = files.find(file)
        stored = None if path is None else read_json(path).get("bos_token")
        if stored is not None:
            name = stored["content"] if isinstance(stored, dict) else str(stored)
            break
    token = tokenizer.id_of(name)
    return (tokenizer.id_of(UNKNOWN) or 0) if token is None else token


@dataclass(frozen=True)
class MiniGPT5Vocabulary:
    """The ids that the loop needs."""

    tokenizer: TextTokenizer
    rows: int
    """Rows of the embedding table; the added ids are the last of them."""
    bos: int
    stops: tuple[tuple[int, ...], ...]
    """Runs of ids that spell the mark."""

    @classmethod
    def of(cls, tokenizer: TextTokenizer, rows: int, bos: int) -> MiniGPT5Vocabulary:
        """Raise CheckpointError where the tokenizer's ids overlap with the added ones."""
        if tokenizer.size > rows - ADDED:
            raise CheckpointError(
                f"the tokenizer has {tokenizer.size} pieces, but of the {rows} rows of the "
                f"embedding table the last {ADDED} are the vokens and <ImageHere>"
            )
        spelled = [[tokenizer.id_of(p) for p in pieces] for pieces in _SPELLINGS]
        stops = tuple(
            tuple(i for i in ids if i is not None) for ids in spelled if None not in ids
        )
        if not stops:
            raise CheckpointError(f"the tokenizer has no pieces that spell {MARK!r}")
        return cls(tokenizer, rows, bos, stops)

    @property
    def vokens(self) -> range:
        """Ids of `[IMG0]` to `[IMG7]`."""
        return range(self.rows - ADDED, self.rows - ADDED + VOKENS)

    @property
    def begin_image(self) -> int:
        """Id of `[IMG0]`, the only id of an image that is sampled."""
        return self.vokens[0]

    def added_name(self, token: int) -> str:
        """Return upstream's name of an id after the tokenizer's."""
        if token == self.rows - 1:
            return "<ImageHere>"
        voken = token - self.begin_image
        return f"[IMG{voken}]" if voken >= 0 else f"id {token}"

    def mark_length(self, ids: Sequence[int]) -> int:
        """Return how many of the last ids spell the mark; 0 when they do not."""
        lengths = [len(s) for s in self.stops if tuple(ids[-len(s) :]) == s]
        return max(lengths, default=0)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of generated ids, without the added ones."""
        return self.tokenizer.decode([i for i in ids if i < self.tokenizer.size])
