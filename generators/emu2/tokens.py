"""Emu2's tokens: LLaMA's pieces, and special tokens by name.

The rules are those of the slow tokenizer upstream runs (`LlamaTokenizer` of transformers
4.31, legacy): text is split at special tokens, white space beside them (but for `<unk>`)
is stripped, and each piece between them is encoded by itself, with a space before it.
Today's tokenizers give other ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from generators.errors import CheckpointError

BOS, EOS, UNKNOWN, PAD = "<s>", "</s>", "<unk>", "[PAD]"
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
"""And to those of Emu2-Chat."""

_NOT_IN_TEXT = {PAD, BEGIN_IMAGE, END_IMAGE, IMAGE, "[gIMG]", "[/gIMG]", "[VIDEO]"}
"""Marks of pictures and padding: text that spells one out means no picture by it."""


class Picture(Enum):
    """A place in a prompt where a picture stands."""

    GIVEN = "given"
    """Its vectors stand between its two marks."""
    NEXT = "next"
    """The first mark of a picture that is to be made."""


@dataclass(frozen=True)
class Tokens:
    """The vocabulary of one checkpoint."""

    pieces: Any
    """A `sentencepiece.SentencePieceProcessor`."""
    added: Mapping[str, int]
    """Special tokens beyond the pieces: name -> id."""
    strip: bool = True
    """Whether white space beside special tokens is dropped."""

    def __getitem__(self, name: str) -> int:
        """Id of a special token; CheckpointError where the vocabulary has none."""
        if name not in self._ids:
            raise CheckpointError(f"the vocabulary has no token {name!r}")
        return self._ids[name]

    @cached_property
    def _ids(self) -> Mapping[str, int]:
        sp = self.pieces
        own: dict[str, int] = {BOS: sp.bos_id(), EOS: sp.eos_id(), UNKNOWN: sp.unk_id()}
        return {**own, **self.added}

    @property
    def rows(self) -> int:
        """How many embeddings the ids need."""
        pieces: int = self.pieces.get_piece_size()
        return max((pieces - 1, *self.added.values())) + 1

    def encoded(self, parts: Iterable[str | Picture], picture: int) -> list[int]:
        """Ids of a prompt after `<s>`; a given picture takes `picture` places and marks.

        Adjoining texts are one text. Special tokens may be spelt out in it, except those
        that mark pictures, which are read as the letters they are.
        """
        runs = list(self._runs(parts))
        frame = (self[BEGIN_IMAGE], *[self[IMAGE]] * picture, self[END_IMAGE])
        ids = [self[BOS]]
        for i, run in enumerate(runs):
            if run is Picture.NEXT:
                ids.append(self[BEGIN_IMAGE])
            elif isinstance(run, Picture):
                ids += frame
            elif run in self._named:
                ids.append(self[run])
            else:
                ids += self.pieces.encode(self._stripped(runs, i, run))
        return ids

    def _stripped(self, runs: Sequence[str | Picture], at: int, text: str) -> str:
        """The plain run at that place without white space beside special tokens."""
        if self.strip and at > 0 and runs[at - 1] != UNKNOWN:
            text = text.lstrip()
        if self.strip and at + 1 < len(runs) and runs[at + 1] != UNKNOWN:
            text = text.rstrip()
        return text

    def _runs(self, parts: Iterable[str | Picture]) -> Iterable[str | Picture]:
        """Texts cut at special tokens: every plain run has one, or an end, at each side."""
        text = ""
        for part in (*parts, None):
            if isinstance(part, str):
                text += part
                continue
            yield from (run for run in self._special.split(text) if run)
            text = ""
            if part is not None:
                yield part

    @cached_property
    def _named(self) -> set[str]:
        return {*self._ids} - _NOT_IN_TEXT

    @cached_property
    def _special(self) -> re.Pattern[str]:
        longest_first = sorted(self._named, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def decoded(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens left out."""
        special = {self[name] for name in (BOS, EOS, UNKNOWN)}
        size = self.pieces.get_piece_size()
        text: str = self.pieces.decode([i for i in ids if i < size and i not in special])
        return text
