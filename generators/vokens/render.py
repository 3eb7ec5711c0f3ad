"""The rendering stage of voken models: hidden states in, images out, in batches.

A mapper turns voken states into the embeddings that a Stable Diffusion pipeline reads as
its prompt. GILL calls it GILLMapper (arXiv:2305.17216, section 3.2; `TextFcLayer` of its
layers.py); MiniGPT-5 has the same parts in other sizes (arXiv:2310.02239, section 3.3).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from generators.base import Failure, Outcome, Weights
from generators.content import answered
from generators.decoding.payloads import received
from generators.diffusion.drawer import Drawer
from generators.diffusion.placing import denoiser_of
from generators.diffusion.settings import DiffusionSettings
from generators.document import ImageRequest
from generators.errors import CheckpointError
from generators.images import Drawing
from generators.loading.files import shape_of
from generators.loading.strict import Layout, Place


class VokenMapper(nn.Module):
    """Learned queries that read the vokens' states through an encoder and a decoder."""

    def __init__(
        self, size: Mapping[str, int], first: nn.Module, last: nn.Module | None = None
    ) -> None:
        """Take dimensions as `stored_size` returns them."""
        super().__init__()
        self.first = first
        self.transformer = _pre_norm_transformer(size)
        self.queries = nn.Parameter(torch.empty(size["queries"], size["width"]))
        self.last = last

    def forward(self, states: Tensor) -> Tensor:
        """Return embeddings (batch, queries, out) of states (batch, vokens, width)."""
        targets = self.queries.expand(len(states), -1, -1)
        mapped: Tensor = self.transformer(self.first(states), targets)
        return mapped if self.last is None else self.last(mapped)


def _pre_norm_transformer(size: Mapping[str, int]) -> nn.Transformer:
    width, layers = size["width"], size["layers"]
    with warnings.catch_warnings():
        # It says that nested tensors are off with norm_first, which is intended.
        warnings.filterwarnings("ignore", message="enable_nested_tensor")
        sizes = (width, size["heads"], layers, layers, size["inner"])
        return nn.Transformer(*sizes, dropout=0.0, batch_first=True, norm_first=True)


def stored_size(
    tensors: Mapping[str, Any], source: str, *, first: str, transformer: str, queries: str
) -> dict[str, int]:
    """Return a stored mapper's dimensions but its heads, which no file has."""
    width, states = shape_of(tensors, f"{first}.weight", source, 2)
    layer = f"{transformer}.encoder.layers.{{}}.linear1.weight"
    return {
        "states": states,
        "width": width,
        "layers": sum(layer.format(i) in tensors for i in range(len(tensors))),
        "inner": shape_of(tensors, layer.format(0), source, 2)[0],
        "queries": shape_of(tensors, queries, source, 3)[1],
    }


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


class VokenRender:
    """Draws from voken states with a mapper and a diffusion pipeline."""

    def __init__(
        self,
        drawing: DiffusionSettings,
        weights: Weights,
        mapper: VokenMapper,
        shape: tuple[int, int],
        unconditional: Tensor | None = None,
    ) -> None:
        """Take the loaded mapper and the (vokens, width) of the states it reads.

        Guidance leads away from `unconditional` states of that shape; without them, from
        the pipeline's text encoding of the negative prompt, or of "".
        """
        self.mapper = mapper.eval().requires_grad_(False)
        self._shape = shape
        self.drawer = Drawer(drawing, weights)
        self._unconditional = None if unconditional is None else self.mapped(unconditional)
        required = denoiser_of(self.drawer.pipeline).config.cross_attention_dim
        width = self.mapped(torch.zeros(shape)).shape[-1]
        if width != required:
            raise CheckpointError(
                f"the mapper gives vectors of {width}, but the denoiser of "
                f"{drawing.model!r} reads vectors of {required}"
            )

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """Return one image per request, in order.

        A request without a seed, or without finite states of the right shape, fails.
        """
        return answered([self._states(request) for request in inputs], self._draw)

    def _states(self, request: ImageRequest) -> tuple[Tensor, int] | Failure:
        """Return states and seed of a request."""
        given = received(request, "states")
        if isinstance(given, Failure):
            return given
        states = given[0].float()
        if states.shape != self._shape:
            shape = tuple(states.shape)
            return Failure(f"the payload holds states {shape}, not {self._shape}")
        if not states.isfinite().all():
            return Failure("the payload holds states that are not finite numbers")
        return states, request.seed or 0

    def _draw(self, images: Sequence[tuple[Tensor, int]]) -> list[Outcome[Drawing]]:
        states = torch.stack([states for states, _ in images])
        conditions: dict[str, Any] = {"prompt_embeds": self.mapped(states)}
        if self._unconditional is not None:
            negative = self._unconditional.expand(len(images), -1, -1)
            conditions["negative_prompt_embeds"] = negative
        return self.drawer(conditions, [seed for _, seed in images])

    @torch.inference_mode()
    def mapped(self, states: Tensor) -> Tensor:
        """Return embeddings (images, queries, out) of the states of images, or of one."""
        batch = states if states.dim() == 3 else states[None]
        queries = self.mapper.queries
        mapped: Tensor = self.mapper(batch.to(queries.device, queries.dtype))
        return mapped
