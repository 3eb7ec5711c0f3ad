"""Weights in oneDNN's layout: the same products, for the layers that gain by it."""

import weakref

import pytest
import torch
from torch import nn

from generators.loading.packed import PackedLinear, pack

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(
        not torch.backends.mkldnn.is_available(), reason="needs a torch with oneDNN"
    ),
]


class DoublingLinear(nn.Linear):
    """As a quantised layer: a linear layer that multiplies in its own way."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(inputs)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(512, 320)
        self.plain = nn.Linear(320, 512, bias=False)
        self.small = nn.Linear(512, 8)
        self.half = nn.Linear(512, 512).to(torch.bfloat16)
        self.own = DoublingLinear(512, 512)
        self.words = nn.Embedding(300, 512)
        self.head = nn.Linear(512, 300, bias=False)
        self.head.weight = self.words.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.plain(self.wide(inputs).relu())
        return torch.cat([self.head(hidden), self.small(hidden)], dim=-1)


@pytest.mark.parametrize("shape", [(1, 512), (3, 512), (2, 70, 512), (16, 1, 512)])
def test_products_are_the_same(shape):
    torch.manual_seed(0)
    layers, inputs = Layers(), torch.randn(shape)
    with torch.inference_mode():
        before = layers(inputs)
        pack(layers)
        after = layers(inputs)
        strided = layers.wide(inputs.transpose(0, -2).contiguous().transpose(0, -2))
        assert torch.allclose(strided, layers.wide(inputs), atol=1e-5)
    assert after.shape == before.shape
    assert (after - before).abs().max() < 1e-4


def test_a_replaced_weight_is_freed_before_the_next_is_packed(monkeypatch):
    layers = Layers()
    before = [weakref.ref(layer) for layer in (layers.wide, layers.plain)]
    alive = []

    class Counting(PackedLinear):
        def __init__(self, linear):
            super().__init__(linear)
            alive.append(sum(layer() is not None for layer in before))

    monkeypatch.setattr("generators.loading.packed.PackedLinear", Counting)
    pack(layers)
    assert alive == [2, 1]


def test_only_layers_that_gain_are_replaced_and_none_is_held_twice():
    layers = Layers()
    names = {name for name, _ in layers.named_parameters()}
    pack(layers)
    kinds = {name: type(child) for name, child in layers.named_children()}
    assert kinds == {
        "wide": PackedLinear,
        "plain": PackedLinear,
        "small": nn.Linear,
        "half": nn.Linear,
        "own": DoublingLinear,
        "words": nn.Embedding,
        "head": nn.Linear,
    }
    assert {name for name, _ in layers.named_parameters()} == names
    assert layers.wide.weight.is_mkldnn
    assert layers.wide.weight.shape == (320, 512)
    assert layers.wide.weight.dtype == torch.float32
    assert layers.head.weight is layers.words.weight
