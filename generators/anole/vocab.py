"""Chameleon's vocabulary: special ids by name, text ids, and VQ codes as token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from generators.errors import CheckpointError

BOS, EOS = "<s>", "</s>"
BEGIN_IMAGE, END_IMAGE = "<racm3:break>", "<eoss>"
IMAGE_PREFIX, IMAGE_SUFFIX = "IMGIMG", "Z"
"""`IMGIMG` + the code's decimal digits as letters A..J + `Z` (chameleon vocab.py)."""

_DIGITS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class Vocabulary:
    """What the interleaved loop has to know of the token ids."""

    bos: int
    eos: int
    begin_image: int
    end_image: int
    text: tuple[int, ...]
    """Ids the model may write as text, ascending: no image codes, no special names."""
    image: tuple[int, ...]
    """Token id of VQ code 0, 1, 2, ..."""

    @classmethod
    def of(cls, ids: Mapping[str, int]) -> "Vocabulary":
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
