"""What tiny models share: their words, and vocabularies in which each is one token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

_WORDS = """
 the a of and to in on with under near small large red blue green bright quiet old new
 river house tree road window garden mountain street boat bird table cup light morning
 stands shows holds opens turns grows then here slowly again
"""
WORDS = tuple(_WORDS.split())
"""What tiny models write."""
_PUNCTUATION = (",", ".")


@dataclass(frozen=True, slots=True)
class Spelling:
    """The words as tokens of a BPE vocabulary; punctuation takes no space before it."""

    space: str
    """How the vocabulary writes a space."""

    @property
    def tokens(self) -> list[str]:
        """Words and punctuation."""
        return [*(self.space + word for word in WORDS), *_PUNCTUATION]

    def vocabulary(
        self, first: Sequence[str], size: int | None = None
    ) -> tuple[dict[str, int], list[tuple[str, str]]]:
        """Return the ids of all tokens, `first` before the words, and the words' merges.

        Padded with made-up words to `size` tokens where one is given.
        """
        names = [*first]
        merges: list[tuple[str, str]] = []
        # BPE joins two parts at a time: each word grows letter by letter from its first.
        for word in self.tokens:
            for end in range(1, len(word)):
                if word[: end + 1] not in names:
                    names.append(word[: end + 1])
                    merges.append((word[:end], word[end]))
        if size is not None:
            for number in range(size - len(names)):
                names.append(f"{self.space}w{number:05d}")
        return {name: id for id, name in enumerate(names)}, merges

    def ids(self, tokenizer: Tokenizer) -> list[int]:
        """Return the ids of the words and of punctuation."""
        ids = tokenizer.get_vocab()
        return [ids[token] for token in self.tokens]

    def made_up_ids(self, tokenizer: Tokenizer) -> list[int]:
        """Return the ids of the made-up words."""
        made_up = re.compile(rf"{re.escape(self.space)}w\d+")
        ids = []
        for name, id in tokenizer.get_vocab().items():
            if made_up.fullmatch(name):
                ids.append(id)
        return ids


BYTE_LEVEL = Spelling("\u0120")
"""Of byte-level BPE."""
PIECES = Spelling("\u2581")
"""Of SentencePiece."""
