"""The mapper of voken models against the transformer's formula in float64."""

import math

import pytest
import torch
from torch import Tensor, nn

from generators.errors import CheckpointError
from generators.loading.strict import fill
from generators.vokens.mapper import VokenMapper, mapper_layout, pre_norm_transformer

pytestmark = pytest.mark.models

WIDTH, STATES, QUERIES, OUT = 16, 24, 5, 12


def gill_like() -> VokenMapper:
    """One linear layer before, one after; four heads."""
    transformer = pre_norm_transformer(WIDTH, 4, 2, 40)
    first, last = nn.Linear(STATES, WIDTH), nn.Linear(WIDTH, OUT)
    return filled(VokenMapper(first, transformer, (QUERIES, WIDTH), last))


def minigpt5_like() -> VokenMapper:
    """Two linear layers before, none after; eight heads."""
    transformer = pre_norm_transformer(WIDTH, 8, 2, 40)
    first = nn.Sequential(nn.Linear(STATES, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
    return filled(VokenMapper(first, transformer, (QUERIES, WIDTH)))


def filled(mapper: VokenMapper) -> VokenMapper:
    """Random everywhere, norms and biases too, so that swapped names are noticed."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in mapper.parameters():
            value.normal_(0.0, 0.3, generator=generator)
    return mapper.eval().requires_grad_(False)


def states(batch: int = 3) -> Tensor:
    return torch.randn(batch, 8, STATES, generator=torch.Generator().manual_seed(1))


class Formula:
    """Vaswani et al. with norms first, one sequence at a time, from named weights."""

    def __init__(self, mapper: VokenMapper, heads: int) -> None:
        self.weights = {k: v.double() for k, v in mapper.state_dict().items()}
        self.heads = heads

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attention(self, x: Tensor, memory: Tensor, name: str) -> Tensor:
        weight = self.weights[f"{name}.in_proj_weight"].chunk(3)
        bias = self.weights[f"{name}.in_proj_bias"].chunk(3)
        q, k, v = (
            s @ w.T + b for s, w, b in zip((x, memory, memory), weight, bias, strict=True)
        )
        size = WIDTH // self.heads
        parts = []
        for head in range(self.heads):
            at = slice(head * size, (head + 1) * size)
            scores = (q[:, at] @ k[:, at].T / math.sqrt(size)).softmax(-1)
            parts.append(scores @ v[:, at])
        return self.linear(torch.cat(parts, dim=-1), f"{name}.out_proj")

    def feed(self, x: Tensor, name: str) -> Tensor:
        return self.linear(self.linear(x, f"{name}.linear1").relu(), f"{name}.linear2")

    def __call__(self, x: Tensor) -> Tensor:
        for i in range(2):
            layer = f"transformer.encoder.layers.{i}"
            normed = self.norm(x, f"{layer}.norm1")
            x = x + self.attention(normed, normed, f"{layer}.self_attn")
            x = x + self.feed(self.norm(x, f"{layer}.norm2"), layer)
        memory = self.norm(x, "transformer.encoder.norm")
        y = self.weights["queries"]
        for i in range(2):
            layer = f"transformer.decoder.layers.{i}"
            normed = self.norm(y, f"{layer}.norm1")
            y = y + self.attention(normed, normed, f"{layer}.self_attn")
            normed = self.norm(y, f"{layer}.norm2")
            y = y + self.attention(normed, memory, f"{layer}.multihead_attn")
            y = y + self.feed(self.norm(y, f"{layer}.norm3"), layer)
        return self.norm(y, "transformer.decoder.norm")


def test_gills_mapper_is_the_formula():
    mapper, formula = gill_like(), Formula(gill_like(), 4)
    for ours, x in zip(mapper(states()), states().double(), strict=True):
        exact = formula.linear(formula(formula.linear(x, "first")), "last")
        assert (ours.double() - exact).abs().max() < 1e-5 * exact.abs().max()


def test_minigpt5s_mapper_is_the_formula():
    mapper, formula = minigpt5_like(), Formula(minigpt5_like(), 8)
    for ours, x in zip(mapper(states()), states().double(), strict=True):
        inner = formula.linear(x, "first.0")
        gelu = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        exact = formula(formula.linear(gelu, "first.2"))
        assert (ours.double() - exact).abs().max() < 1e-5 * exact.abs().max()


@pytest.mark.parametrize("make", [gill_like, minigpt5_like])
def test_fused_and_plain_layers_agree(make):
    """Inference takes torch's fused encoder layer, which must not change results."""
    mapper = make()
    with torch.inference_mode():
        fused = mapper(states())
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            plain = mapper(states())
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    assert (fused - plain).abs().max() < 1e-5 * plain.abs().max()


@pytest.mark.parametrize("make", [gill_like, minigpt5_like])
def test_published_names_fill_an_empty_mapper(make):
    source = make()
    names = {"first": "a.fc", "transformer": "tfm", "queries": "q", "last": "out"}
    stored = {}
    for name, value in source.state_dict().items():
        part, _, rest = name.partition(".")
        stored[".".join(filter(None, (names[part], rest)))] = value
    stored["q"] = stored["q"][None]
    with torch.device("meta"):
        empty = make().eval()
    where = {"device": torch.device("cpu"), "dtype": torch.float32}
    fill(empty, stored.items(), mapper_layout(empty, **names), source="here", **where)
    assert torch.equal(empty(states()), source(states()))
    del stored["q"], stored["tfm.decoder.norm.bias"]
    with pytest.raises(CheckpointError, match=r"2 missing: q, tfm\.decoder\.norm\.bias"):
        fill(empty, stored.items(), mapper_layout(empty, **names), source="here", **where)
