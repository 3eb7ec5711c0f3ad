"""What Emu2-Gen's language model hands to its UNet: vectors, with and without a prompt."""

from __future__ import annotations

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from generators.document import Payload

VECTORS, UNCONDITIONAL = "vectors", "unconditional"
"""Names of the two tensors, each (queries, width)."""


def packed(vectors: Tensor, unconditional: Tensor) -> Payload:
    """Both matrices as safetensors, in the precision they were computed in.

    The renderer needs what guidance starts from, and has no language model to make it:
    so every payload holds both, though a stage computes the unconditional one only once.
    """
    tensors = {VECTORS: vectors, UNCONDITIONAL: unconditional}
    return Payload.of(save({k: t.cpu().contiguous() for k, t in tensors.items()}))


def unpacked(payload: Payload) -> tuple[Tensor, Tensor]:
    """Both matrices; ValueError says why there are none."""
    try:
        tensors = load(payload.read())
        return tensors[VECTORS], tensors[UNCONDITIONAL]
    except (SafetensorError, KeyError) as error:
        raise ValueError(
            f"the payload holds no tensors {VECTORS!r} and {UNCONDITIONAL!r}: {error}"
        ) from None
