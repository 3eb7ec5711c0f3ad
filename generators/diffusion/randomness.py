"""Parts of a pipeline that draw random numbers without the generator of the picture.

A language model inside a pipeline (GLM-Image) samples from the global generators of torch.
Its pictures would differ from run to run, and with their batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch

UNSEEDED = (
    "the pipeline also draws from global generators; its pictures are drawn one at a time, "
    "with these seeded from the picture's seed"
)
"""Noted with pictures of such a pipeline."""


@contextlib.contextmanager
def global_generators(seed: int) -> Iterator[Callable[[], bool]]:
    """Seed the global generators of torch and NumPy, and restore them at the end.

    Yields a function that says whether they have been used meanwhile. They get another
    seed than the picture's generator: from the same one, noise of the same shape would
    repeat the picture's first latents.
    """
    count = torch.cuda.device_count() if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]
    devices = range(count)
    numpy_state = np.random.get_state()
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed((seed + 1) % 2**63)
        np.random.seed((seed + 1) % 2**32)
        before = _states(devices)
        try:
            yield lambda: _states(devices) != before
        finally:
            np.random.set_state(numpy_state)


def _states(devices: range) -> list[bytes]:
    torch_states = [torch.random.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]
    _, key, position, *_ = np.random.get_state()
    numpy_state = [np.asarray(key).tobytes(), str(position).encode()]
    return [*(state.numpy().tobytes() for state in torch_states), *numpy_state]
