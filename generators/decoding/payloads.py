"""What a drafting stage hands to its model's renderer: named tensors as safetensors."""

from __future__ import annotations

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from generators.base import Failure
from generators.document import ImageRequest, Payload


def pack(**tensors: Tensor) -> Payload:
    """Return the tensors as they are, by name."""
    stored = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    return Payload.of(save(stored))


def unpack(payload: Payload, *names: str) -> tuple[Tensor, ...]:
    """Return the tensors of these names; ValueError for a payload without them."""
    try:
        stored = load(payload.read())
        return tuple(stored[name] for name in names)
    except (SafetensorError, KeyError) as error:
        missing = " and ".join(map(repr, names))
        raise ValueError(f"the payload holds no tensor {missing}: {error}") from None


def received(
    request: ImageRequest, *names: str, seeded: bool = True
) -> tuple[Tensor, ...] | Failure:
    """Return the tensors of a request's payload, or why it cannot be drawn."""
    if request.payload is None:
        return Failure(
            f"the request holds no payload with {' and '.join(names)} to draw from"
        )
    if seeded and request.seed is None:
        return Failure("the request has no seed to draw its noise from")
    try:
        return unpack(request.payload, *names)
    except ValueError as error:
        return Failure(str(error))
