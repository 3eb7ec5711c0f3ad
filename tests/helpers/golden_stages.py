"""Stand-ins for the models of the golden runs; only `golden_runs.py` asks them.

They are named in the recorded configs: a change of what they say is seen when the runs are
made anew, a change of their names or scales when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from comparing_helpers import Picky, Writer, said, text_of
from PIL import Image as Pillow

from plait.generators.base import Failure, Fault, Outcome, Result, Skip
from plait.generators.document import Draft, Image, ImageRequest, Request, Text
from plait.generators.images import Drawing
from plait.generators.images import encode as as_png


class Author(Picky):
    """An LVLM that costs money, takes one image, and is silent where it is told to be."""

    def _answer(self, text: str) -> Outcome[Draft]:
        outcome = super()._answer(text)
        if isinstance(outcome, Result):
            usage = {"input_tokens": 40, "output_tokens": 3, "cost": 0.0125}
            return Result(outcome.value, usage)
        return outcome


class Outliner(Author):
    """One that names the image it wants."""

    def _answer(self, text: str) -> Outcome[Draft]:
        outcome = super()._answer(text)
        if isinstance(outcome, Result):
            drawn = Text(f"{outcome.value.text}\n<image>a red house</image>\nThat was it.")
            return Result(Draft((drawn,)), outcome.usage)
        return outcome


class Illustrator:
    """A native model: text, an image, text, and another image where the query has any."""

    kind = "draft"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [self._draft(request) for request in inputs]

    def _draft(self, request: Request) -> Outcome[Draft]:
        text = text_of(request)
        if "!crash" in text:
            return Failure("the model broke", Fault.ERROR)
        if "!skip" in text:
            return Skip("takes no <such> query")
        rest = f"Then {text}"
        if "!mute" in text:
            return Result(Draft((Text(rest),)), {"output_tokens": 5})
        seed = request.seed or 0
        parts = (Text("<i>First</i>\nof all."), _png(seed), Text(rest))
        more = (_png(seed + 1),) if request.images else ()
        return Result(Draft((*parts, *more)), {"output_tokens": 7}, {"prompt": text})


class Pencil:
    """A T2I model that draws by its seed."""

    kind = "render"
    tint = (200, 40, 40)

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        return [self._draw(request) for request in inputs]

    def _draw(self, request: ImageRequest) -> Outcome[Drawing]:
        if "!blank" in (request.prompt or ""):
            return Failure("will not draw this", Fault.REFUSED)
        return Result(Drawing(scribble(request.seed or 0, self.tint)))


class Brush(Pencil):
    """Another one."""

    tint = (40, 40, 200)


class Examiner(Writer):
    """A judge that replies in the form it is asked for; criteria of two steps are met.

    Of a query with `!mute` in it, it says nothing that can be read. As a critic it wants
    every image brighter.
    """

    seeded = False

    def _answer(self, text: str) -> Outcome[Draft]:
        if "!mute" in text:
            return said("I would rather not say.")
        if "refine_prompt" in text:
            score = 8 if "brighter" in text.partition("refine_prompt")[0] else 2
            refined = {"score": score, "refine_prompt": "a brighter house"}
            return said(json.dumps(refined))
        if "criteria_met" in text:
            return said(json.dumps({"criteria_met": "Names two steps." in text}))
        if "overall_score" in text:
            return said(json.dumps({"overall_score": 9}))
        return said(json.dumps({"Judge": "Yes" if "Yes" in text else 6}))


def _png(seed: int) -> Image:
    return as_png(Pillow.fromarray(scribble(seed)))


def scribble(seed: int, tint: Sequence[int] = (40, 160, 40)) -> npt.NDArray[np.uint8]:
    """A (24, 24, 3) image of uint8: squares of 8 pixels in shades of `tint`, by `seed`."""
    shades = np.random.default_rng(seed).uniform(0.2, 1.2, (3, 3, 1))
    squares = (np.array(tint) * shades).clip(0, 255).astype(np.uint8)
    return squares.repeat(8, axis=0).repeat(8, axis=1)
