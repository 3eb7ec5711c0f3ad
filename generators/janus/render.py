"""The rendering stage of Janus: codes in, pixels out, many images at once."""

from __future__ import annotations

from typing import Any

from generators.base import Weights
from generators.decoding.codes import CodesRender
from generators.janus.models import load_codec
from generators.janus.settings import JanusRenderSettings


class JanusRender(CodesRender):
    """Draws what `JanusCondition` wrote; takes the fields of `JanusRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.codec = load_codec(JanusRenderSettings(**settings), weights)
