"""Text as CLIP reads it: cleaned once, tokenized, and fitted into the context.

Cleaning is that of OpenAI's tokenizer: ftfy, HTML entities resolved twice, white space
collapsed, lower case. Every window ends in the one end-of-text token that CLIP pools at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import open_clip
from open_clip.tokenizer import basic_clean, whitespace_clean

from scorers.clipscore import LongText

TokenIds = tuple[int, ...]

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_SPECIAL = re.compile(r"<(start_of_text|end_of_text)>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TextWindows:
    """What CLIP reads of a text."""

    windows: tuple[TokenIds, ...]
    """Each of at most `context` tokens, start and end of text included."""
    n_tokens: int
    """Tokens of the whole text, without prefix, start and end."""
    truncated: bool
    """Whether tokens of the text are in no window."""


class ClipText:
    """Fits texts into the context of a CLIP model."""

    def __init__(
        self,
        prefix: str = "",
        long_text: LongText = "truncate",
        context: int = 77,
        *,
        repair: bool = True,
    ) -> None:
        """Fit texts into `context` tokens; `clean` changes nothing where not `repair`."""
        self._repair = repair
        self._tokenizer = open_clip.SimpleTokenizer()
        # `clean` has resolved entities already; a third time would be one too many.
        self._tokenizer.clean_fn = _lowered
        self._long_text = long_text
        self._prefix = self.encode(self.clean(prefix))
        self._room = context - 2 - len(self._prefix)
        if self._room < 1:
            raise ValueError(
                f"prefix {prefix!r} has {len(self._prefix)} tokens and leaves no room "
                f"for text in a context of {context}"
            )

    def clean(self, text: str) -> str:
        """`text` repaired and stripped; line breaks stay, to tell sentences apart."""
        return str(basic_clean(text)) if self._repair else text

    def encode(self, text: str) -> list[int]:
        """Return tokens of a cleaned text, without start and end."""
        # Names of special tokens that a model writes out must not end the text early:
        # with a space inside they are read as the plain characters they are.
        tokens: list[int] = self._tokenizer.encode(_SPECIAL.sub(r"< \1>", text))
        return tokens

    def read(self, text: str) -> TextWindows:
        """The windows of a cleaned text: one, unless it is long and not truncated."""
        tokens = self.encode(text)
        fits = len(tokens) <= self._room
        if fits or self._long_text == "truncate":
            bodies = [tokens[: self._room]]
        else:
            bodies = self._packed(text)
        truncated = not fits and self._long_text == "truncate"
        return TextWindows(tuple(self._window(b) for b in bodies), len(tokens), truncated)

    def _window(self, body: list[int]) -> TokenIds:
        start, end = self._tokenizer.sot_token_id, self._tokenizer.eot_token_id
        return (start, *self._prefix, *body, end)

    def _packed(self, text: str) -> list[list[int]]:
        """As many whole pieces to a window as fit."""
        bodies: list[list[int]] = [[]]
        for piece in self._pieces(text):
            if len(bodies[-1]) + len(piece) > self._room:
                bodies.append([])
            bodies[-1] += piece
        return bodies

    def _pieces(self, text: str) -> Iterator[list[int]]:
        """Sentences that fit; words of those that do not; slices of endless words."""
        for sentence in _SENTENCE_END.split(text):
            tokens = self.encode(sentence)
            if len(tokens) <= self._room:
                yield tokens
                continue
            for word in sentence.split():
                tokens = self.encode(word)
                for first in range(0, len(tokens), self._room):
                    yield tokens[first : first + self._room]


def _lowered(text: str) -> str:
    return str(whitespace_clean(text)).lower()
