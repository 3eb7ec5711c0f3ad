"""Guidance of a picture's codes by the text and by the pictures before it."""

from __future__ import annotations

from torch import Tensor


def guided(
    full: Tensor, image: Tensor, free: Tensor, *, text: float, picture: float
) -> Tensor:
    """Logits under guidance by the text and by earlier pictures (arXiv:2211.09800).

    `full` are the logits given the whole context, `image` given its pictures alone,
    `free` given neither; all of one shape.
    """
    return free + picture * (image - free) + text * (full - image)
