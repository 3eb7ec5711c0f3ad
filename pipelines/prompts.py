"""What text-to-image models read of a request, wherever they run."""

from __future__ import annotations

from generators.base import Failure, Fault
from generators.document import Image, ImageRequest


def prompt_and_seed(
    request: ImageRequest, prefix: str, *, images: bool = False
) -> tuple[str, int] | Failure:
    """Return what is drawn and the seed of its noise, or why nothing can be drawn.

    `images` says whether the model draws from images besides, the request's context.
    """
    prompt, seed = request.prompt, request.seed
    shown = images and all(isinstance(part, Image) for part in request.context)
    if request.payload is not None or (request.context and not shown):
        reason = "a text-to-image model reads prompts; the request holds more than a prompt"
    elif prompt is None or not prompt.strip():
        reason = f"the request's prompt is empty: {prompt!r}"
    elif seed is None:
        reason = "the request has no seed"
    else:
        return prefix + prompt, seed
    return Failure(reason, Fault.BAD_INPUT)
