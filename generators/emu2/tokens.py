"""Emu2's tokens: LLaMA's pieces, and special tokens by name.

Upstream runs the slow tokenizer of transformers 4.31 (`generators.loading.llama`), in
which every special token but `<unk>` takes the white space on both its sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from generators.document import Image
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


class Emu2Tokens(LlamaTokenizer):
    """The vocabulary of one checkpoint."""

    def __init__(
        self, pieces: LlamaPieces, added: Mapping[str, int], strip: bool = True
    ) -> None:
        """Take ids of special tokens; `strip` drops white space beside most of them."""
        ids = {**pieces.named, **added}
        strips = {name: strip and name != UNKNOWN for name in ids}
        tokens = (AddedToken(n, i, strips[n], strips[n]) for n, i in ids.items())
        super().__init__(pieces, tokens)
        longest_first = sorted({*ids} - _NOT_IN_TEXT, key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def __getitem__(self, name: str) -> int:
        """Return a special token's id; CheckpointError where there is none."""
        return self.id(Control(name))

    @property
    def rows(self) -> int:
        """How many embeddings the ids need."""
        return max(self.pieces.size - 1, *(token.id for token in self.added.values())) + 1

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
        return [self[BOS], *self.encode(placed)]

    def _cut(self, text: str) -> list[str | Control]:
        """Return the text in parts, special tokens apart."""
        runs = enumerate(self._special.split(text))
        return [Control(run) if i % 2 else run for i, run in runs if run]

    def decoded(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens left out."""
        return self.pieces.decode(ids)
