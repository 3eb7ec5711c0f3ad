"""Linear layers whose weights lie as oneDNN's kernels read them: float32 on a CPU.

torch multiplies such matrices with kernels that arrange the weights anew at every call.
Arranged once, products with 4 rows or more take a quarter to a half less time (AMD with
AVX-512, weights of 512 x 512 and above), and those with one row as long as before. Results
differ by rounding.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

_ROWS = 64
"""For which the layout is chosen; any number of rows can be multiplied by it."""
_LEAST = 2**17
"""Values of a weight that is worth it: calls for smaller ones take as long or longer."""


class PackedLinear(nn.Module):
    """A linear layer that holds its weight in oneDNN's layout and in no other."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)
        self.weight = nn.Parameter(packed, requires_grad=False)
        self.bias = linear.bias

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., out_features) of inputs (..., in_features)."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(
            inputs, self.weight, self.bias, "none", [], ""
        )
        return product


def pack(model: nn.Module) -> None:
    """Replace the layers of `model` that gain by it; the others stay as they are.

    For inference only. A weight that is also another module's, as tied embeddings are, is
    left alone.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    owners = Counter(id(p) for m in model.modules() for p in m._parameters.values())
    places = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if _gains(child) and owners[id(child.weight)] == 1
    ]
    # One after another, with no reference to those replaced: a model is not held twice.
    for parent, name in places:
        setattr(parent, name, PackedLinear(getattr(parent, name)))


def _gains(module: nn.Module) -> bool:
    # Not a subclass, such as a quantised layer: it may multiply in its own way.
    if type(module) is not nn.Linear:
        return False
    weight = module.weight
    on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    return on_cpu and weight.layout == torch.strided and weight.numel() >= _LEAST
