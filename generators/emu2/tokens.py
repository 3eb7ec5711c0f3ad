"""Emu2's tokens: LLaMA's pieces, and special tokens by name.

Upstream runs the slow tokenizer of transformers 4.31 (`generators.loading.llama`), in
which every special token but `<unk>` takes the white space on both its sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from generators.document import Image
from generators.errors import CheckpointError
from generators.loading.llama import (
    BOS,
    UNKNOWN,
    AddedToken,
    Control,
    LlamaPieces,
    LlamaTokenizer,
)

PAD = "[PAD]"
BEGIN_IMAGE, IMAGE, END_IMAGE = "[IMG]", "<image>", "[/IMG]"
USER, ASSISTANT = "[USER]", "[ASSISTANT]"

ADDED = (
    *(PAD, BEGIN_IMAGE, END_IMAGE, IMAGE, "[gIMG]", "[/gIMG]", "[EOC]", "[VIDEO]"),
    *("<grounding>", "<phrase>", "</phrase>", "<object>", "</object>"),
    *("</delimiter_of_multi_objects/>", "<REC>"),
    *(f"<patch_index_{i:04d}>" for i in range(257)),
)
"""What upstream adds to LLaMA's 32,000 pieces, in order (emu/lm.py)."""
ADDED_CHAT = (*ADDED, USER, ASSISTANT)
"""The same for Emu2-Chat, with the marks of its turns."""

_NOT_IN_TEXT = {PAD, BEGIN_IMAGE, END_IMAGE, IMAGE, "[gIMG]", "[/gIMG]", "[VIDEO]"}
"""Marks of images and padding; in a text their names are just letters."""


@dataclass(frozen=True)
class Emu2Tokens:
    """The vocabulary of one checkpoint."""

    pieces: Any
    """A `sentencepiece.SentencePieceProcessor`."""
    added: Mapping[str, int]
    """Special tokens beyond the pieces: name -> id."""
    strip: bool = True
    """Whether white space beside special tokens is dropped."""

    def __getitem__(self, name: str) -> int:
        """Return a special token's id; CheckpointError where the vocabulary has none."""
        if name not in self._ids:
            raise CheckpointError(f"the vocabulary has no token {name!r}")
        return self._ids[name]

    @cached_property
    def _ids(self) -> Mapping[str, int]:
        return {**LlamaPieces(self.pieces).named, **self.added}

    @cached_property
    def _tokenizer(self) -> LlamaTokenizer:
        added = []
        for name, token in self._ids.items():
            strips = self.strip and name != UNKNOWN
            added.append(AddedToken(name, token, strips, strips))
        return LlamaTokenizer(LlamaPieces(self.pieces), added)

    @property
    def rows(self) -> int:
        """How many embeddings the ids need."""
        pieces: int = self.pieces.get_piece_size()
        return max((pieces - 1, *self.added.values())) + 1

    def encoded(
        self, parts: Iterable[str | Image], queries: int, begins_image: bool = False
    ) -> list[int]:
        """Return ids of a prompt after `<s>`; an image takes `queries` and two marks.

        Adjoining texts are one text. Names of special tokens in it mean these tokens;
        only the marks of images are read letter by letter. A prompt may end with the first
        mark of an image to come.
        """
        frame = [*map(Control, (BEGIN_IMAGE, *[IMAGE] * queries, END_IMAGE))]
        placed: list[str | Control] = []
        text = ""
        for part in parts:
            if isinstance(part, str):
                text += part
            else:
                placed += [*self._cut(text), *frame]
                text = ""
        placed += self._cut(text)
        placed += [Control(BEGIN_IMAGE)] * begins_image
        return [self[BOS], *self._tokenizer.encode(placed)]

    def _cut(self, text: str) -> list[str | Control]:
        """Return the text in parts, special tokens apart."""
        runs = (run for run in self._special.split(text) if run)
        return [Control(run) if run in self._named else run for run in runs]

    @cached_property
    def _named(self) -> set[str]:
        return {*self._ids} - _NOT_IN_TEXT

    @cached_property
    def _special(self) -> re.Pattern[str]:
        longest_first = sorted(self._named, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def decoded(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens left out."""
        return self._tokenizer.pieces.decode(ids)
