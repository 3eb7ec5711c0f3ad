"""What a request must hold before a drafting stage can answer it."""

from __future__ import annotations

from collections.abc import Iterable

from generators.base import Failure
from generators.document import Image, Request, Text


def unanswerable(request: Request, sampled: bool) -> Failure | None:
    """The failure of a request without content, or of one that cannot be sampled."""
    content = (s for turn in request.turns for s in turn.content)
    return unseeded(request, sampled) or empty(content)


def unseeded(request: Request, sampled: bool) -> Failure | None:
    """The failure of a request without a seed where tokens are `sampled`."""
    if not sampled or request.seed is not None:
        return None
    return Failure("the request has no seed, but tokens are sampled")


def empty(content: Iterable[Text | Image]) -> Failure | None:
    """The failure of content that is white space at most."""
    if any(isinstance(s, Image) or s.text.strip() for s in content):
        return None
    return Failure("the request holds neither text nor pictures")
