"""A sheet of the mini writer's answers, to be looked at."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from PIL import Image as Pillow
from PIL import ImageDraw

from benchmarks.miniature.training.writer.check import WriterAnswer
from benchmarks.tasks.miniature.queries import ScenePicture
from scorers.truth.drawing import draw

_PICTURE, _WIDTH, _HEIGHT, _COLUMNS = 128, 860, 260, 110
_WRONG = (190, 20, 30)


def sheet(given: Mapping[str, Sequence[WriterAnswer]], each: int = 3) -> Pillow.Image:
    """Picture, question and answer of the first `each` queries of every kind.

    Below a wrong answer, in red, is the right one.
    """
    shown = [(kind, answer) for kind, some in given.items() for answer in some[:each]]
    canvas = Pillow.new("RGB", (_WIDTH, _HEIGHT * len(shown)), "white")
    pen = ImageDraw.Draw(canvas)
    for row, (kind, answer) in enumerate(shown):
        top = row * _HEIGHT + 10
        for part in answer.query.question:
            if isinstance(part, ScenePicture):
                canvas.paste(draw(part.scene, part.seed, _PICTURE), (10, top))
        pen.text((_PICTURE + 25, top), _wrapped(kind, answer), "black")
        if not answer.is_right:
            lines = _wrapped(kind, answer).count("\n") + 1
            right = "\n".join(textwrap.wrap(answer.right, _COLUMNS))
            pen.text((_PICTURE + 25, top + 15 * lines), right, _WRONG)
    return canvas


def _wrapped(kind: str, answer: WriterAnswer) -> str:
    asked = " ".join(part for part in answer.query.question if isinstance(part, str))
    paragraphs = (f"{kind}: {asked}", *answer.given.splitlines())
    return "\n".join(line for p in paragraphs for line in textwrap.wrap(p, _COLUMNS))
