"""Text as CLIP reads it: cleaned once, tokenized, and fitted into the context.

Cleaning is that of OpenAI's tokenizer: ftfy, HTML entities resolved twice, white space
collapsed, lower case. The tokenizer of transformers takes texts as they are but for
Unicode's normal form C, white space and lower case. Every window ends in the one
end-of-text token that CLIP pools at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import open_clip
from open_clip.tokenizer import basic_clean, whitespace_clean
from tokenizers import Regex
from tokenizers.normalizers import NFC, Lowercase, Replace
from tokenizers.normalizers import Sequence as Normalizers

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

    def __init__(self, context: int = 77, *, repair: bool = True) -> None:
        """Fit texts into `context` tokens, read by transformers where not `repair`."""
        self._repair = repair
        self._context = context
        self._tokenizer = open_clip.SimpleTokenizer()
        # `clean` has resolved entities already; a third time would be one too many.
        self._tokenizer.clean_fn = _lower if repair else _BY_TRANSFORMERS.normalize_str

    def clean(self, text: str) -> str:
        """`text` repaired and stripped; line breaks stay, to tell sentences apart.

        As it is where transformers reads it.
        """
        return str(basic_clean(text)) if self._repair else text

    def encode(self, text: str) -> list[int]:
        """Return tokens of a cleaned text, without start and end."""
        # Names of special tokens that a model writes out must not end the text early:
        # with a space inside they are read as the plain characters they are.
        tokens: list[int] = self._tokenizer.encode(_SPECIAL.sub(r"< \1>", text))
        return tokens

    def read(self, text: str, prefix: str | None = None) -> TextWindows:
        """Return the beginning of a text in one window.

        With a `prefix` the whole text in windows that begin with it: ValueError where it
        leaves no room for text.
        """
        text = self.clean(text)
        tokens = self.encode(text)
        before = self.encode(self.clean(prefix or ""))
        # Two are for the tokens of start and end.
        room = self._context - 2 - len(before)
        if room < 1:
            raise ValueError(
                f"prefix {prefix!r} has {len(before)} tokens and leaves no room "
                f"for text in a context of {self._context}"
            )
        fits = len(tokens) <= room
        bodies = [tokens[:room]] if fits or prefix is None else self._pack(text, room)
        start = self._tokenizer.sot_token_id
        end = self._tokenizer.eot_token_id
        windows = tuple((start, *before, *body, end) for body in bodies)
        return TextWindows(windows, len(tokens), not fits and prefix is None)

    def _pack(self, text: str, room: int) -> list[list[int]]:
        """As many whole pieces to a window as fit."""
        bodies: list[list[int]] = [[]]
        for piece in self._pieces(text, room):
            if len(bodies[-1]) + len(piece) > room:
                bodies.append([])
            bodies[-1] += piece
        return bodies

    def _pieces(self, text: str, room: int) -> Iterator[list[int]]:
        """Sentences that fit; words of those that do not; slices of endless words."""
        for sentence in _SENTENCE_END.split(text):
            tokens = self.encode(sentence)
            if len(tokens) <= room:
                yield tokens
                continue
            for word in sentence.split():
                tokens = self.encode(word)
                for first in range(0, len(tokens), room):
                    yield tokens[first : first + room]


_BY_TRANSFORMERS = Normalizers([NFC(), Replace(Regex(r"\s+"), " "), Lowercase()])
"""As transformers' CLIPTokenizer normalises: Python lowers some characters otherwise."""


def _lower(text: str) -> str:
    return str(whitespace_clean(text)).lower()
