"""Stages that answer at once, so that what a run costs is what the engine costs."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence

from PIL import Image as Pillow

from plait.generators.base import Result
from plait.generators.document import Candidate, Draft, Image, Request, Score, Text


class Instant:
    """Answers with the end of the question and a one-coloured picture of 32 x 32 pixels."""

    kind = "draft"
    version = 1
    seeded = False
    which = 0
    """Tells apart systems that answer alike; it shifts the colour."""

    def __call__(self, requests: Sequence[Request]) -> list[Result[Draft]]:
        """Return an answer to each request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Result[Draft]:
        content = request.turns[-1].content
        asked = "".join(part.text for part in content if isinstance(part, Text))
        number = int(hashlib.md5(asked.encode()).hexdigest()[:6], 16) + self.which
        file = io.BytesIO()
        colour = (number % 256, number // 256 % 256, 7)
        Pillow.new("RGB", (32, 32), colour).save(file, "PNG")
        said = Text(f"An answer: {asked[-(100 + number % 100) :]}")
        return Result(Draft((said, Image.of(file.getvalue()))))


class Brevity:
    """The characters of an answer."""

    kind = "score"
    scale = "0-10000"
    direction = "lower"

    def __call__(self, candidates: Sequence[Candidate]) -> list[Result[Score]]:
        """Return a score for each candidate."""
        return [Result(Score(self.count(c.document.text))) for c in candidates]

    def count(self, text: str) -> float:
        """Return the score of a text."""
        return float(len(text))


class Words(Brevity):
    """The words of an answer."""

    direction = "higher"

    def count(self, text: str) -> float:
        """Return the score of a text."""
        return float(len(text.split()))


class Vowels(Brevity):
    """The vowels of an answer."""

    direction = "higher"

    def count(self, text: str) -> float:
        """Return the score of a text."""
        return float(sum(map(text.count, "aeiou")))
