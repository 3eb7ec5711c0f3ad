"""What a user's own stage returned, as the outcomes that the engine keeps.

The one place where the forms in which people have texts and images become ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from plait.generators.base import (
    Failure,
    Kind,
    NotApplicable,
    Outcome,
    Result,
    Skip,
    Unscored,
)
from plait.generators.document import (
    Document,
    Draft,
    Embedding,
    Image,
    ImageRequest,
    Payload,
    Score,
    Text,
)
from plait.generators.images import PICTURE_FORMS, Drawing, image_of, is_picture
from plait.generators.logprobs import Logprobs

VALID: dict[Kind, str] = {
    Kind.DRAFT: f"a list of texts and images ({PICTURE_FORMS}), or a Draft",
    Kind.CONDITION: "a Payload",
    Kind.RENDER: f"an image ({PICTURE_FORMS})",
    Kind.TRANSFORM: f"an image ({PICTURE_FORMS})",
    Kind.SCORE: "a number, a Score, or a mapping of the parts that its class declares",
    Kind.LOGPROBS: "Logprobs",
    Kind.EMBED: "an Embedding",
}
"""What a stage of each kind may return for one input, bare or as Result(...)."""


def outcome_of(kind: Kind, returned: Any) -> Outcome[Any]:
    """Return what a stage returned for one input as an outcome.

    TypeError for what is none, and for the value of another kind of stage; ImageError for
    an image that cannot be read.
    """
    if isinstance(returned, Skip | Failure | Unscored | NotApplicable):
        return returned
    if isinstance(returned, Result):
        value = _value_of(kind, returned.value)
        return returned if value is returned.value else replace(returned, value=value)
    if kind is Kind.DRAFT and _is_part(returned):
        # Of a list of these one could not tell whether each is of one input.
        raise TypeError(f"returned {_brief(returned)} outside of a list")
    return Result(_value_of(kind, returned))


def _value_of(kind: Kind, value: Any) -> Any:
    """Return what a stage of a kind returned for one input as a value of plait.

    TypeError, and ImageError, for anything else.
    """
    match kind:
        case Kind.DRAFT if _is_part(value) or isinstance(value, list | tuple):
            return Draft(_segments(value))
        case Kind.DRAFT if isinstance(value, Document):
            return Draft(_segments(value.segments))
        case Kind.DRAFT if isinstance(value, Draft):
            segments = _segments(value.segments)
            # The very draft, where it holds nothing in another form.
            return value if segments == value.segments else Draft(segments)
        case Kind.RENDER | Kind.TRANSFORM if isinstance(value, Drawing):
            return value
        case Kind.RENDER | Kind.TRANSFORM if is_picture(value):
            return image_of(value)
        case Kind.SCORE if isinstance(value, Score):
            number = _number(value.value)
            return value if number is value.value else replace(value, value=number)
        case Kind.SCORE if not isinstance(value, Score):
            return Score(_number(value))
        case Kind.CONDITION if isinstance(value, Payload):
            return value
        case Kind.LOGPROBS if isinstance(value, Logprobs):
            return value
        case Kind.EMBED if isinstance(value, Embedding):
            return value
    raise TypeError(f"returned {_brief(value)}")


def _is_part(value: Any) -> bool:
    return isinstance(value, str | Text | ImageRequest) or is_picture(value)


def _segments(parts: Any) -> tuple[Text | Image | ImageRequest, ...]:
    if _is_part(parts):
        return (_segment(parts),)
    if isinstance(parts, Iterable):
        return tuple(map(_segment, parts))
    raise TypeError(f"returned a Draft of {_brief(parts)}")


def _segment(part: Any) -> Text | Image | ImageRequest:
    """Return a text or image in a person's form as a segment; TypeError, ImageError."""
    if isinstance(part, str):
        return Text(str(part))
    if isinstance(part, Text) and isinstance(part.text, str):
        return part
    if isinstance(part, ImageRequest):
        if part.context or part.seed is not None:
            raise TypeError("returned a request for an image with a context or a seed")
        return part
    if is_picture(part):
        return image_of(part)
    raise TypeError(f"returned a list that holds {_brief(part)}")


def _number(value: Any) -> float:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"returned {_brief(value)}")


def _brief(value: Any) -> str:
    return "None" if value is None else type(value).__name__
