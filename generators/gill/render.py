"""The rendering stage of GILL: states of image tokens in, pictures out."""

from __future__ import annotations

from typing import Any

from generators.base import Weights
from generators.gill.mapping import load_mapper
from generators.gill.settings import GillRenderSettings
from generators.loading.devices import device_of
from generators.vokens.render import VokenRender


class GillRender(VokenRender):
    """Draws what `GillDraft` asked for; takes the fields of `GillRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        told = GillRenderSettings(**settings)
        device = device_of(told.device)
        mapper, shape = load_mapper(weights, told.model, told.revision, device)
        super().__init__(told.drawing(), weights, mapper, shape)
