"""Chameleon's token stream: its vocabulary, and where one record stands in it.

Plain Python, no tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from generators.decoding.sampling import NoNumbers
from generators.errors import CheckpointError

BOS, EOS = "<s>", "</s>"
BEGIN_IMAGE, END_IMAGE = "<racm3:break>", "<eoss>"
IMAGE_PREFIX, IMAGE_SUFFIX = "IMGIMG", "Z"
"""`IMGIMG` + the code's decimal digits as letters A..J + `Z` (chameleon vocab.py)."""

_DIGITS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class AnoleVocabulary:
    """The token ids that the interleaved loop needs."""

    bos: int
    eos: int
    begin_image: int
    end_image: int
    text: tuple[int, ...]
    """Ids the model may write as text, ascending: no image codes, no special names."""
    image: tuple[int, ...]
    """Token id of VQ code 0, 1, 2, ..."""

    @classmethod
    def of(cls, ids: Mapping[str, int]) -> "AnoleVocabulary":
        """The vocabulary of a token name -> id map; CheckpointError names what it lacks."""
        specials = (BOS, EOS, BEGIN_IMAGE, END_IMAGE)
        lacking = [name for name in specials if name not in ids]
        if lacking:
            raise CheckpointError(f"the vocabulary lacks {', '.join(lacking)}")
        text = sorted(i for name, i in ids.items() if _is_text(name))
        bos, eos, begin, end = (ids[name] for name in specials)
        return cls(bos, eos, begin, end, tuple(text), _image_ids(ids))

    @cached_property
    def code_of(self) -> Mapping[int, int]:
        """Image token id -> VQ code."""
        return {token: code for code, token in enumerate(self.image)}

    @cached_property
    def guiding(self) -> frozenset[int]:
        """Ids that the image-conditioned guidance stream keeps of a context."""
        return frozenset((*self.image, self.bos, self.begin_image, self.end_image))

    def tokens(self, codes: Iterable[int]) -> list[int]:
        """VQ codes as token ids."""
        return [self.image[code] for code in codes]

    def codes(self, tokens: Sequence[int]) -> list[int]:
        """Image token ids as VQ codes."""
        return [self.code_of[token] for token in tokens]


def image_name(code: int) -> str:
    """Name of the token of a VQ code: 53 is `IMGIMGFDZ`."""
    digits = "".join(_DIGITS[int(digit)] for digit in str(code))
    return f"{IMAGE_PREFIX}{digits}{IMAGE_SUFFIX}"


def _is_text(name: str) -> bool:
    # Upstream leaves out every name that starts with "<", special or not, except "<".
    return not name.startswith(IMAGE_PREFIX) and (name == "<" or not name.startswith("<"))


def _image_ids(ids: Mapping[str, int]) -> tuple[int, ...]:
    count = sum(name.startswith(IMAGE_PREFIX) for name in ids)
    names = [image_name(code) for code in range(count)]
    lacking = [name for name in names if name not in ids]
    if lacking or not count:
        named = ", ".join(lacking[:5]) or image_name(0)
        raise CheckpointError(
            f"the vocabulary names {count} image tokens but not {named}; the codes must "
            "be numbered from 0 without gaps"
        )
    return tuple(ids[name] for name in names)


class AnoleStop(StrEnum):
    """Why an answer ended."""

    END = "end of sequence"
    CONTEXT = "context full"
    BUDGET = "text budget reached"


class TokenMode(StrEnum):
    """What the next token of a record is."""

    TEXT = "text"
    IMAGE = "image"
    CLOSING = "closing"
    """The end-of-image token, which is set, not sampled."""


@dataclass(frozen=True, slots=True)
class AnoleLimits:
    """How long an answer and its parts may be, in tokens."""

    context: int
    image_tokens: int
    """Codes of one picture."""
    max_text_tokens: int
    """Of one run of text; the count starts again after each picture."""
    max_images: int

    @property
    def picture(self) -> int:
        """Tokens one picture takes in a context, with its two marks."""
        return self.image_tokens + 2


class AnoleTrack:
    """The tokens of one record, and what may come next.

    Follows the `TextDecoder` and `ImageDecoder` of GAIR-NLP/anole: a picture, once begun,
    is always finished; the text budget counts from the last picture; the end of the
    sequence is recognised in text only.
    """

    def __init__(
        self, prompt: Sequence[int], vocabulary: AnoleVocabulary, limits: AnoleLimits
    ) -> None:
        self.vocabulary = vocabulary
        self.limits = limits
        self.ids = list(prompt)
        self.prompt_length = len(self.ids)
        self.mode = TokenMode.TEXT
        self.images = 0
        self.stop: AnoleStop | NoNumbers | None = None
        self._codes = 0
        self._begin_run()

    @property
    def generated(self) -> list[int]:
        """Tokens after the prompt."""
        return self.ids[self.prompt_length :]

    @property
    def may_begin_image(self) -> bool:
        """Whether a whole picture still fits, and the answer may hold one more."""
        fits = len(self.ids) < self.limits.context - self.limits.picture
        return fits and self.images < self.limits.max_images

    def take(self, token: int) -> None:
        """Append the next token and update the mode."""
        self.ids.append(token)
        match self.mode:
            case TokenMode.TEXT:
                self._take_text(token)
            case TokenMode.IMAGE:
                self._codes += 1
                if self._codes == self.limits.image_tokens:
                    self.mode = TokenMode.CLOSING
            case TokenMode.CLOSING:
                self.mode = TokenMode.TEXT
                self._begin_run()

    def guidance_prompts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Guidance contexts of a new picture: the earlier pictures only, and nothing."""
        vocabulary = self.vocabulary
        pictures = tuple(i for i in self.ids if i in vocabulary.guiding)
        return pictures, (vocabulary.bos, vocabulary.begin_image)

    def _take_text(self, token: int) -> None:
        if token == self.vocabulary.begin_image:
            self.mode, self._codes = TokenMode.IMAGE, 0
            self.images += 1
        elif token == self.vocabulary.eos:
            self.stop = AnoleStop.END
        else:
            self._stop_at_limit()

    def _begin_run(self) -> None:
        self._run_end = len(self.ids) + self.limits.max_text_tokens
        self._stop_at_limit()

    def _stop_at_limit(self) -> None:
        if len(self.ids) >= self.limits.context:
            self.stop = AnoleStop.CONTEXT
        elif len(self.ids) >= self._run_end:
            self.stop = AnoleStop.BUDGET


def split_runs(
    tokens: Sequence[int], vocabulary: AnoleVocabulary
) -> list[tuple[TokenMode, tuple[int, ...]]]:
    """Generated tokens as runs of text and whole pictures, marks left out."""
    parts: list[tuple[TokenMode, tuple[int, ...]]] = []
    run: list[int] = []
    mode = TokenMode.TEXT
    marks = {vocabulary.begin_image: TokenMode.IMAGE, vocabulary.end_image: TokenMode.TEXT}
    for token in tokens:
        if token not in marks:
            run.append(token)
            continue
        parts.append((mode, tuple(run)))
        run, mode = [], marks[token]
    parts.append((mode, tuple(run)))
    return [(kind, ids) for kind, ids in parts if ids]
