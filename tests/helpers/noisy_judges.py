"""Judges of known error: strictness, a shift by the wording, and noise by the seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
from comparing_helpers import LIGHT, said, text_of

from plait.generators.base import Failure, Fault, Outcome
from plait.generators.document import Draft, Request
from plait.scorers.judging.rubrics import OPENINGS

RUBRIC = """
scale = "0-100"
score = "0-100"

[[criteria]]
name = "Layout"
question = "Is it well laid out?"

[[criteria]]
name = "Clarity"
question = "Is it clear?"
"""


def normal(*about: object) -> float:
    """A draw that depends on these values alone."""
    digest = hashlib.sha256(repr(about).encode()).digest()
    return float(np.random.default_rng([*digest]).standard_normal())


class Even:
    """Scores 50 and what the answer is worth, with noise; in another wording 4 more."""

    kind = "draft"
    placement = LIGHT
    seeded = True
    strictness = 0.0

    def __init__(self, **_: object) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [self._reply(request) for request in inputs]

    def _reply(self, request: Request) -> Outcome[Draft]:
        text = text_of(request)
        opened = any(text.startswith(line) for line in OPENINGS)
        asked = text.partition("### Answer")[2]
        value = 50 + 8 * normal(asked) - self.strictness + 4 * opened
        value += 2 * normal(request.seed, self.strictness, asked)
        score = float(np.clip(value, 0, 100))
        verdicts = [{"criterion": n, "score": score} for n in ("Layout", "Clarity")]
        return said(json.dumps({"verdicts": verdicts}))


class Strict(Even):
    strictness = 10.0


class Stricter(Even):
    strictness = 25.0


class Away(Even):
    """Is asked in one wording alone; in others its server is away."""

    def _reply(self, request: Request) -> Outcome[Draft]:
        if any(text_of(request).startswith(line) for line in OPENINGS):
            return Failure("the server is away", Fault.ENDPOINT)
        return super()._reply(request)


class Plain(Even):
    """Draws nothing at random."""

    seeded = False
