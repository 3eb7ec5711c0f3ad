"""Bytes of weights that a call reads: what bounds the decoding of a language model.

Every module that runs reads its own parameters once; of an embedding only the rows that
are looked up, which is nothing beside the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


class Traffic:
    """Bytes read so far."""

    bytes = 0


@contextmanager
def weight_traffic() -> Iterator[Traffic]:
    """Count the weights read by all modules that run inside; slows them down."""
    traffic = Traffic()

    def count(module: nn.Module, _: Any) -> None:
        if not isinstance(module, nn.Embedding):
            own = module.parameters(recurse=False)
            traffic.bytes += sum(p.numel() * p.element_size() for p in own)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(count)
    try:
        yield traffic
    finally:
        handle.remove()
