"""From voken states to the embeddings a Stable Diffusion pipeline reads as its prompt.

GILL calls it GILLMapper (arXiv:2305.17216, section 3.2; `TextFcLayer` of its layers.py);
MiniGPT-5 has the same parts in other sizes (arXiv:2310.02239, section 3.3).
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from generators.loading.strict import Layout, Place


class VokenMapper(nn.Module):
    """Learned queries that read the vokens' states through an encoder and a decoder."""

    def __init__(
        self,
        first: nn.Module,
        transformer: nn.Transformer,
        queries: tuple[int, int],
        last: nn.Module | None = None,
    ) -> None:
        """Take (queries, width of the transformer) as the shape of the queries."""
        super().__init__()
        self.first = first
        self.transformer = transformer
        self.queries = nn.Parameter(torch.empty(queries))
        self.last = last

    def forward(self, states: Tensor) -> Tensor:
        """Return embeddings (batch, queries, out) of states (batch, vokens, width)."""
        targets = self.queries.expand(len(states), -1, -1)
        mapped: Tensor = self.transformer(self.first(states), targets)
        return mapped if self.last is None else self.last(mapped)


def pre_norm_transformer(width: int, heads: int, layers: int, inner: int) -> nn.Transformer:
    """Return `layers` encoder and as many decoder layers, as in both models."""
    with warnings.catch_warnings():
        # It says that nested tensors are off with norm_first, which is intended.
        warnings.filterwarnings("ignore", message="enable_nested_tensor")
        sizes = (width, heads, layers, layers, inner)
        return nn.Transformer(*sizes, dropout=0.0, batch_first=True, norm_first=True)


def mapper_layout(
    mapper: VokenMapper, *, first: str, transformer: str, queries: str, last: str = ""
) -> Layout:
    """Return the layout of a file with these names; its queries are (1, queries, width)."""
    stored_names = {"first": first, "transformer": transformer, "last": last}
    layout = {queries: Place("queries", lambda tensor: tensor.squeeze(0))}
    for name in mapper.state_dict():
        part, _, rest = name.partition(".")
        if part in stored_names:
            layout[f"{stored_names[part]}.{rest}"] = Place(name)
    return layout
