"""What a draft hands to a voken renderer: one matrix of hidden states per picture."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from generators.document import Payload

STATES = "states"
"""Name of the tensor: (vokens, width), float32."""

States = npt.NDArray[np.float32]


def packed(states: Tensor) -> Payload:
    """States (vokens, width) of one picture as safetensors, in float32."""
    return Payload.of(save({STATES: states.detach().float().cpu().contiguous().numpy()}))


def unpacked(payload: Payload) -> States:
    """The states; ValueError says why there are none."""
    try:
        states: States = load(payload.read())[STATES]
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"the payload holds no tensor {STATES!r}: {error}") from None
    return states.astype(np.float32)
