"""Chameleon's token stream: its vocabulary, and where one record stands in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from generators.anole.settings import AnoleDraftSettings
from generators.decoding.drafting import NativePrompt, Stop, Track
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
    def of(cls, ids: Mapping[str, int]) -> AnoleVocabulary:
        """Return the vocabulary of name -> id; CheckpointError names what it lacks."""
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
        """Return VQ codes as token ids."""
        return [self.image[code] for code in codes]

    def codes(self, tokens: Sequence[int]) -> list[int]:
        """Return image token ids as VQ codes."""
        return [self.code_of[token] for token in tokens]


def image_name(code: int) -> str:
    """Return the name of the token of a VQ code: 53 is `IMGIMGFDZ`."""
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


class TokenMode(StrEnum):
    """What the next token of a record is."""

    TEXT = "text"
    IMAGE = "image"
    CLOSING = "closing"
    """The end-of-image token, which is set, not sampled."""


class AnoleTrack(Track):
    """The tokens of one record, and what may come next.

    Follows the `TextDecoder` and `ImageDecoder` of GAIR-NLP/anole: an image, once begun,
    is always finished; the text budget counts from the last image; the end of the
    sequence is recognised in text only.
    """

    def __init__(
        self,
        prompt: NativePrompt,
        context: int,
        vocabulary: AnoleVocabulary,
        settings: AnoleDraftSettings,
        image_tokens: int,
    ) -> None:
        """Take, besides, the number of codes of one image."""
        super().__init__(prompt, context)
        self.vocabulary, self.settings = vocabulary, settings
        self.image_tokens = image_tokens
        self.mode = TokenMode.TEXT
        self.images = 0
        self.runs: list[tuple[TokenMode, list[int]]] = []
        """Text and whole images in order, without their marks."""
        self._begin_text()

    @property
    def tokens(self) -> list[int]:
        """Prompt and answer."""
        return self.prompt.ids + self.ids

    @property
    def may_begin_image(self) -> bool:
        """Whether an image and its two marks still fit, and the answer may hold it."""
        fits = self.length < self.context - (self.image_tokens + 2)
        return fits and self.images < self.settings.max_images

    def take(self, token: int) -> None:
        """Append the next token and update the mode."""
        self.ids.append(token)
        if self.mode is TokenMode.CLOSING:
            self._begin_text()
        elif self.mode is TokenMode.IMAGE:
            self.runs[-1][1].append(token)
            if len(self.runs[-1][1]) == self.image_tokens:
                self.mode = TokenMode.CLOSING
        elif token == self.vocabulary.begin_image:
            self.mode = TokenMode.IMAGE
            self.runs.append((self.mode, []))
            self.images += 1
        else:
            self.runs[-1][1].append(token)
            self._stop_at_limit()
            if token == self.vocabulary.eos:
                self.stop = Stop.END

    def guidance_prompts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the guiding contexts of a new image: the earlier images, and nothing."""
        vocabulary = self.vocabulary
        images = tuple(i for i in self.tokens if i in vocabulary.guiding)
        return images, (vocabulary.bos, vocabulary.begin_image)

    def _begin_text(self) -> None:
        self.mode = TokenMode.TEXT
        self.runs.append((self.mode, []))
        self._run_end = self.length + self.settings.max_text_tokens
        self._stop_at_limit()

    def _stop_at_limit(self) -> None:
        if self.length >= self.context:
            self.stop = Stop.CONTEXT
        elif self.length >= self._run_end:
            self.stop = Stop.TEXT
