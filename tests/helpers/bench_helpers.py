"""Artists and judges of the miniature world without models, with planted defects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from plait.generators.base import Outcome, Result
from plait.generators.document import Candidate, ImageRequest, Score
from plait.generators.images import Drawing, decode
from plait.scorers.clipscore import pairs_of
from plait.scorers.truth.drawing import draw
from plait.scorers.truth.image_reader import read_image
from plait.scorers.truth.reading import Reading
from plait.scorers.truth.scene import PLACES, Scene, SceneItem
from plait.scorers.truth.text_reader import TextReading, read_text

OTHER = {"left": "right", "right": "left"}


def mirrored(item: SceneItem) -> SceneItem:
    row, column = item.place.split()
    return replace(item, place=f"{row} {OTHER[column]}")


class Editor:
    """Draws what its prompt tells into the image that it is given, or on white."""

    kind = "render"
    sees = True

    def __init__(self, *, weights: str = "tiny", **_: Any) -> None: ...

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Any]]:
        return [Result(Drawing(self._draw(request))) for request in inputs]

    def _draw(self, request: ImageRequest) -> Any:
        told = read_text(request.prompt or "")
        assert isinstance(told, TextReading)
        shown = told.scenes[-1]
        items = {i.place: i for reading in shown.items if (i := reading.item) is not None}
        new = Scene.of(shown.background or "white", items.values())
        # Moved a little, as another image of a scene is.
        pixels = np.array(draw(new, request.seed or 0))
        if not request.context:
            return pixels
        assert self.sees
        image = decode(request.context[0].read())
        before = read_image(image).scene
        kept = {i.place: i for i in before.items} if shown.background is None else {}
        scene = Scene.of(before.background, {**kept, **items}.values())
        pixels = np.array(draw(scene, request.seed or 0))
        for place in PLACES:
            if before.at(place) == scene.at(place):
                y, x = (32 * (word in ("bottom", "right")) for word in place.split())
                old = np.asarray(image)[y : y + 32, x : x + 32]
                pixels[y : y + 32, x : x + 32] = old
        return pixels


class Blind(Editor):
    """One that must be given no image."""

    sees = False


class Painter:
    """Draws the scene that its prompt tells; `defect` names what is wrong with it."""

    kind = "render"

    def __init__(self, *, weights: str = "tiny", defect: str = "", **_: Any) -> None:
        self.defect = defect

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Any]]:
        return [Result(Drawing(self._draw(request))) for request in inputs]

    def _draw(self, request: ImageRequest) -> Any:
        reading = read_text(request.prompt or "")
        assert isinstance(reading, TextReading)
        scene = reading.scenes[-1].scene
        assert scene is not None
        items = list(scene.items)
        if self.defect == "mirrored":
            items = [mirrored(item) for item in items]
        if self.defect == "size":
            items = [replace(i, size="small") for i in items]
        return np.asarray(draw(Scene.of(scene.background, items), request.seed or 0))


class WordCounter:
    """A CLIPScore that sees colours and shapes, and no places: words in the image."""

    kind = "score"
    scale = "0-2.5"
    direction = "higher"

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        return [Result(Score(self._score(c))) for c in inputs]

    def _score(self, candidate: Candidate) -> float:
        (pair,) = pairs_of(candidate.document)
        reading = read_image(decode(pair.image.read()))
        assert isinstance(reading, Reading)
        words = pair.text.replace(",", "").split()
        seen = sorted(f"{i.colour} {i.shape}" for i in reading.items)
        told = sorted(f"{a} {b}" for a, b in pairwise(words))
        return sum(name in told for name in seen) / len(seen)
