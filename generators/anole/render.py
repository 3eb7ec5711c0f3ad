"""The rendering stage of Anole: VQ codes in, pixels out, many images at once."""

from __future__ import annotations

from typing import Any

from generators.anole.models import load_codec
from generators.anole.settings import AnoleRenderSettings
from generators.base import Weights
from generators.decoding.codes import CodesRender


class AnoleRender(CodesRender):
    """Draws what `AnoleDraft` asked for; takes the fields of `AnoleRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.codec = load_codec(weights, AnoleRenderSettings(**settings))
