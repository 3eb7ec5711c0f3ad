"""The rendering stage of voken models: hidden states in, images out, in batches.

A mapper turns voken states into the embeddings that a Stable Diffusion pipeline reads as
its prompt. GILL calls it GILLMapper (arXiv:2305.17216, section 3.2; `TextFcLayer` of its
layers.py); MiniGPT-5 has the same parts in other sizes (arXiv:2310.02239, section 3.3).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from plait.generators.architectures import config_of, read_config
from plait.generators.base import Failure, Outcome, Weights
from plait.generators.content import answer_all
from plait.generators.decoding.payloads import receive
from plait.generators.diffusion.designs import DESIGNS
from plait.generators.diffusion.drawer import Drawer
from plait.generators.diffusion.placing import denoiser_of
from plait.generators.diffusion.settings import DiffusionSettings, architecture_of
from plait.generators.document import ImageRequest
from plait.generators.errors import CheckpointError
from plait.generators.gill import models as gill
from plait.generators.gill.models import GillCheckpoint
from plait.generators.gill.settings import GillRenderSettings
from plait.generators.images import Drawing
from plait.generators.loading.files import Files, shape_of
from plait.generators.loading.strict import Layout, Place, device_of, fill, randomise
from plait.generators.minigpt5 import models as minigpt5
from plait.generators.minigpt5.models import StageCheckpoints
from plait.generators.minigpt5.settings import MiniGPT5RenderSettings


class VokenMapper(nn.Module):
    """Learned queries that read the vokens' states through an encoder and a decoder."""

    def __init__(
        self, size: Mapping[str, int], first: nn.Module, last: nn.Module | None = None
    ) -> None:
        """Take dimensions as `size_of` returns them."""
        super().__init__()
        self.first = first
        width = size["width"]
        layers = size["layers"]
        sizes = (width, size["heads"], layers, layers, size["inner"])
        with warnings.catch_warnings():
            # It says that nested tensors are off with norm_first, which is intended.
            warnings.filterwarnings("ignore", message="enable_nested_tensor")
            self.transformer = nn.Transformer(
                *sizes, dropout=0.0, batch_first=True, norm_first=True
            )
        self.queries = nn.Parameter(torch.empty(size["queries"], width))
        self.last = last

    def forward(self, states: Tensor) -> Tensor:
        """Return embeddings (batch, queries, out) of states (batch, vokens, width)."""
        targets = self.queries.expand(len(states), -1, -1)
        mapped: Tensor = self.transformer(self.first(states), targets)
        return mapped if self.last is None else self.last(mapped)


def size_of(
    tensors: Mapping[str, Any], source: str, *, first: str, transformer: str, queries: str
) -> dict[str, int]:
    """Return a stored mapper's dimensions but its heads, which no file has."""
    width, states = shape_of(tensors, f"{first}.weight", source, 2)
    layer = f"{transformer}.encoder.layers.{{}}.linear1.weight"
    layers = 0
    while layer.format(layers) in tensors:
        layers += 1
    return {
        "states": states,
        "width": width,
        "layers": layers,
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
        self._unconditional = (
            None if unconditional is None else self.map_states(unconditional)
        )
        required = denoiser_of(self.drawer.pipeline).config.cross_attention_dim
        width = self.map_states(torch.zeros(shape)).shape[-1]
        if width != required:
            raise CheckpointError(
                f"the mapper gives vectors of {width}, but the denoiser of "
                f"{drawing.model!r} reads vectors of {required}"
            )

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """Return one image per request, in order.

        A request without a seed, or without finite states of the right shape, fails.
        """
        return answer_all([self._states(request) for request in inputs], self._draw)

    def _states(self, request: ImageRequest) -> tuple[Tensor, int] | Failure:
        given = receive(request, "states")
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
        # (images, vokens, width) become (images, queries, out).
        states = torch.stack([states for states, _ in images])
        conditions: dict[str, Any] = {"prompt_embeds": self.map_states(states)}
        if self._unconditional is not None:
            negative = self._unconditional.expand(len(images), -1, -1)
            conditions["negative_prompt_embeds"] = negative
        return self.drawer(conditions, [seed for _, seed in images])

    @torch.inference_mode()
    def map_states(self, states: Tensor) -> Tensor:
        """Return embeddings (images, queries, out) of the states of images, or of one."""
        batch = states if states.dim() == 3 else states[None]
        queries = self.mapper.queries
        mapped: Tensor = self.mapper(batch.to(queries.device, queries.dtype))
        return mapped


class GillRender(VokenRender):
    """Draws the requests of `GillDraft`; takes the fields of `GillRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        render = GillRenderSettings(**settings)
        device = device_of(render.device)
        if weights == "pretrained":
            checkpoint = GillCheckpoint(Files(render.model, render.revision))
            mapper, vokens = _gill_mapper(checkpoint, device)
        else:
            sizes = config_of("gill", tiny=weights == "tiny")
            mapper = empty_gill_mapper(sizes["mapper"])
            vokens = sizes["vokens"]
            randomise(mapper, device=device, dtype=torch.float32, seed=gill.SEED)
        shape = (vokens, mapper.get_parameter("first.weight").shape[1])
        super().__init__(render.drawing(), weights, mapper, shape)


def empty_gill_mapper(size: Mapping[str, int]) -> VokenMapper:
    """Return the mapper on the meta device; `size` as in `architectures/gill.json`."""
    width = size["width"]
    with torch.device("meta"):
        first = nn.Linear(size["states"], width)
        last = nn.Linear(width, size["out"])
        return VokenMapper(size, first, last)


def _gill_mapper(
    checkpoint: GillCheckpoint, device: torch.device
) -> tuple[VokenMapper, int]:
    """Return the published mapper, and the number of vokens that it reads."""
    names = {
        "first": f"{gill.MAPPER}.fc",
        "transformer": f"{gill.MAPPER}.tfm",
        "queries": f"{gill.MAPPER}.query_embs",
    }
    tensors = checkpoint.tensors
    last = f"{gill.MAPPER}.model"
    source = f"{gill.CHECKPOINT} of {checkpoint.source}"
    size = size_of(tensors, source, **names)
    size["out"] = shape_of(tensors, f"{last}.weight", source, 2)[0]
    # As in `TextFcLayer` (gill/layers.py).
    size["heads"] = read_config("gill")["mapper"]["heads"]
    mapper = empty_gill_mapper(size)
    put = partial(fill, device=device, dtype=torch.float32)
    layout = mapper_layout(mapper, **names, last=last)
    checkpoint.fill(mapper, layout, (gill.VOKENS, gill.VISUAL), put)
    return mapper, checkpoint.argument("num_tokens")


class MiniGPT5Render(VokenRender):
    """Draws the requests of `MiniGPT5Draft`; takes the fields of `MiniGPT5RenderSettings`.

    Guidance leads away from the mapper's output for states that are all zero
    (`USE_CFG` of `MiniGPT5_Model.generate`, model.py).
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        render = MiniGPT5RenderSettings(**settings)
        device = device_of(render.device)
        if weights == "pretrained":
            mapper = _minigpt5_mapper(render, device)
        else:
            mapper = empty_minigpt5_mapper(random_size(render, weights == "tiny"))
            seed = minigpt5.SEED + 1
            randomise(mapper, device=device, dtype=torch.float32, seed=seed)
        shape = (minigpt5.VOKENS, mapper.get_parameter("first.0.weight").shape[1])
        super().__init__(render.drawing(), weights, mapper, shape, torch.zeros(shape))


def empty_minigpt5_mapper(size: Mapping[str, int]) -> VokenMapper:
    """Return the mapper on the meta device; its width is that of what it gives."""
    heads = read_config("minigpt5")["mapper"]["heads"]
    width = size["width"]
    with torch.device("meta"):
        layers = (nn.Linear(size["states"], width), nn.GELU(), nn.Linear(width, width))
        return VokenMapper({**size, "heads": heads}, nn.Sequential(*layers))


def random_size(settings: MiniGPT5RenderSettings, tiny: bool) -> dict[str, int]:
    """Return the dimensions of a mapper for a language model and a UNet."""
    sizes = config_of("minigpt5", tiny=tiny)
    unet = DESIGNS[architecture_of(settings)].config("unet", tiny=tiny)
    width = unet["cross_attention_dim"]
    states = sizes["language"]["hidden_size"]
    return {**sizes["mapper"], "states": states, "width": width, "inner": 4 * width}


def _minigpt5_mapper(settings: MiniGPT5RenderSettings, device: torch.device) -> VokenMapper:
    stages = StageCheckpoints(Files(settings.model, settings.revision), settings.finetuned)
    stored_1 = stages.stage_1()
    stored_2 = stages.stage_2()
    source = f"{minigpt5.STAGE_1} of {stages.files.describe()}"
    names = {"transformer": "llm_to_t2i_mapping", "queries": "t2i_decoder_prompt"}
    mapper = empty_minigpt5_mapper(size_of(stored_1, source, first="fc.0", **names))
    layout = mapper_layout(mapper, first="fc", **names)
    put = partial(fill, device=device, dtype=torch.float32, tolerated=("model",))
    put(mapper, stored_1.items(), layout, source=source)
    if stored_2 is not None:
        # Of the mapper, the second file holds the transformer alone.
        prefix = f"{names['transformer']}."
        later = {name: p for name, p in layout.items() if name.startswith(prefix)}
        put(mapper, stored_2.items(), later, source=stages.last_source)
    return mapper
