"""The rendering stage of MiniGPT-5: voken states in, pictures out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from generators.base import Weights
from generators.diffusion.designs import DESIGNS
from generators.diffusion.settings import architecture_of
from generators.errors import CheckpointError
from generators.loading.files import Files, shape_of
from generators.loading.strict import Layout, device_of, fill, randomised
from generators.minigpt5.published import STAGE_1, StageCheckpoints
from generators.minigpt5.settings import MiniGPT5RenderSettings
from generators.minigpt5.sizes import FULL, TINY, VOKENS
from generators.vokens.mapper import VokenMapper, mapper_layout, pre_norm_transformer
from generators.vokens.render import VokenRender

_HEADS = 8
"""Default of `nn.Transformer`, which model.py does not change."""
_QUERIES = 77
_LAYERS = 4
_SEED = 20_231_004
"""Seed of the random weights."""


class MiniGPT5Render(VokenRender):
    """Draws the requests of `MiniGPT5Draft`; takes the fields of `MiniGPT5RenderSettings`.

    Guidance leads away from the mapper's output for states that are all zero
    (`USE_CFG` of `MiniGPT5_Model.generate`, model.py).
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        render = MiniGPT5RenderSettings(**settings)
        device = device_of(render.device)
        if weights == "pretrained":
            mapper, width = _published_mapper(render, device)
        else:
            mapper, width = _random_mapper(render, weights, device)
        shape = (VOKENS, width)
        super().__init__(render.drawing(), weights, mapper, shape, torch.zeros(shape))


def empty_mapper(
    width: int, out: int, layers: int, inner: int, queries: int
) -> VokenMapper:
    """The mapper on the meta device, from states of `width` to embeddings of `out`."""
    with torch.device("meta"):
        first = nn.Sequential(nn.Linear(width, out), nn.GELU(), nn.Linear(out, out))
        transformer = pre_norm_transformer(out, _HEADS, layers, inner)
        return VokenMapper(first, transformer, (queries, out))


def _random_mapper(
    settings: MiniGPT5RenderSettings, weights: Weights, device: torch.device
) -> tuple[VokenMapper, int]:
    size = TINY if weights == "tiny" else FULL
    design = DESIGNS[architecture_of(settings)]
    out = design.config("unet", tiny=weights == "tiny")["cross_attention_dim"]
    width = size.language["hidden_size"]
    mapper = empty_mapper(width, out, _LAYERS, 4 * out, _QUERIES)
    randomised(mapper, device=device, dtype=torch.float32, seed=_SEED)
    return mapper, width


def _published_mapper(
    settings: MiniGPT5RenderSettings, device: torch.device
) -> tuple[VokenMapper, int]:
    stages = StageCheckpoints(Files(settings.model, settings.revision), settings.finetuned)
    first, second = stages.stage_1(), stages.stage_2()
    source = f"{STAGE_1} of {stages.files.describe()}"
    mapper, width = _sized_mapper(first, source)
    layout = mapper_layout(
        mapper, first="fc", transformer="llm_to_t2i_mapping", queries="t2i_decoder_prompt"
    )
    _fill(mapper, first, layout, source, device)
    if second is not None:
        later = {k: p for k, p in layout.items() if k.startswith("llm_to_t2i_mapping.")}
        _fill(mapper, second, later, stages.last_source, device)
    return mapper, width


def _sized_mapper(stored: Mapping[str, Any], source: str) -> tuple[VokenMapper, int]:
    """An empty mapper of the stored one's size, and the width of the states it reads."""
    layer = "llm_to_t2i_mapping.encoder.layers.{}.linear1.weight"
    needed = ("fc.0.weight", "t2i_decoder_prompt", layer.format(0))
    if lacking := [name for name in needed if name not in stored]:
        raise CheckpointError(f"{source} lacks {', '.join(lacking)}")
    out, width = shape_of(stored, "fc.0.weight", source, 2)
    layers = sum(layer.format(i) in stored for i in range(len(stored)))
    inner = shape_of(stored, layer.format(0), source, 2)[0]
    queries = shape_of(stored, "t2i_decoder_prompt", source, 3)[1]
    return empty_mapper(width, out, layers, inner, queries), width


def _fill(
    mapper: VokenMapper,
    stored: Mapping[str, Any],
    layout: Layout,
    source: str,
    device: torch.device,
) -> None:
    fill(
        mapper,
        stored.items(),
        layout,
        source=source,
        device=device,
        dtype=torch.float32,
        tolerated=("model",),
    )
