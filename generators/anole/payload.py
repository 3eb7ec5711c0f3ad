"""What a draft of Anole hands to its renderer: one grid of VQ codes per picture."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from generators.document import Payload

CODES = "codes"
"""Name of the tensor: (height, width), int32."""

Codes = npt.NDArray[np.int32]


def packed(codes: Codes) -> Payload:
    """A grid of codes as safetensors."""
    return Payload.of(save({CODES: np.ascontiguousarray(codes, dtype=np.int32)}))


def unpacked(payload: Payload) -> Codes:
    """The grid of codes; ValueError says why there is none."""
    try:
        codes: Codes = load(payload.read())[CODES]
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"the payload holds no tensor {CODES!r}: {error}") from None
    return codes.astype(np.int32)
