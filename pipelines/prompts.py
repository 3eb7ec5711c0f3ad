"""What text-to-image models read of a request, wherever they run."""

from __future__ import annotations

from generators.document import ImageRequest


def input_error(request: ImageRequest) -> str | None:
    """Why a request cannot be drawn from its prompt; None when it can."""
    if request.payload is not None or request.context:
        return "a text-to-image model reads prompts; the request holds more than a prompt"
    if request.prompt is None or not request.prompt.strip():
        return f"the request's prompt is empty: {request.prompt!r}"
    if request.seed is None:
        return "the request has no seed"
    return None


def prompt_and_seed(request: ImageRequest, prefix: str) -> tuple[str, int]:
    """What is drawn, and the seed of its noise, of a request without an `input_error`."""
    return prefix + (request.prompt or ""), request.seed or 0
