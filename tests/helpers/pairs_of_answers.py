"""A writer and an artist without models, of which a setting changes the images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from generators.base import Outcome, Result
from generators.document import Draft, ImageRequest, Request, Text
from generators.pictures import Drawing


class Words:
    kind = "draft"

    def __init__(self, weights: Any = None) -> None: ...

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [Result(Draft((Text("a red cat"),))) for _ in inputs]


class Square:
    kind = "render"

    def __init__(self, weights: Any = None, shade: int = 0) -> None:
        self.shade = shade

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        return [Result(Drawing(np.full((16, 16, 3), self.shade, np.uint8))) for _ in inputs]
