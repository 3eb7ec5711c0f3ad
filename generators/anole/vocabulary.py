"""Chameleon's tokens: which ids are text, which are the codes of images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from plait.generators.errors import CheckpointError

BOS = "<s>"
EOS = "</s>"
BEGIN_IMAGE = "<racm3:break>"
END_IMAGE = "<eoss>"
IMAGE_PREFIX = "IMGIMG"
IMAGE_SUFFIX = "Z"
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
        return cls(
            bos=ids[BOS],
            eos=ids[EOS],
            begin_image=ids[BEGIN_IMAGE],
            end_image=ids[END_IMAGE],
            text=tuple(sorted(ids[name] for name in ids if _is_text(name))),
            image=_image_ids(ids),
        )

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
    """Return the ids of all codes in order; CheckpointError where one is missing."""
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
