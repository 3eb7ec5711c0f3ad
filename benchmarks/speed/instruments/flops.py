"""Floating-point operations of one batch, as torch's FlopCounterMode counts them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

T = TypeVar("T")


@dataclass(frozen=True)
class Flops:
    """A count, or why there is none."""

    count: int | None = None
    reason: str | None = None


def counted(compute: Callable[[], T]) -> tuple[T, Flops]:
    """What `compute` gives, and its operations: matrix products, convolutions, attention.

    Element-wise work is not counted, as is usual, nor are kernels that torch does not
    know (xformers, quantised layers). Where torch cannot count, it computes again without.
    """
    counter = FlopCounterMode(display=False, custom_mapping=_ON_CPU)
    try:
        with counter:
            value = compute()
    except Exception as error:
        first = str(error).partition("\n")[0]
        return compute(), Flops(reason=f"torch's FLOP counter failed: {first}")
    total = counter.get_total_flops()
    none = "torch counted no operation in this process"
    return value, Flops(total) if total else Flops(reason=none)


def _attention(
    query: Any, key: Any, value: Any, *_: Any, out_shape: Any = None, **__: Any
) -> int:
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def _linear(inputs: Any, weight: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    products: int = math.prod(inputs) * weight[0]
    return 2 * products


_ON_CPU: dict[Any, Any] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.mkldnn._linear_pointwise: _linear,
}
"""Attention and packed weights on a CPU, which torch's own table leaves out."""
