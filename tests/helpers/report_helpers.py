"""Boards made by hand, without models, for the tests of leaderboard and report."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from boards import stored_board
from PIL import Image as Picture
from trial import system_of_stages

from plait.benchmarks.results.board import Board
from plait.cluster.plan import Evaluation
from plait.generators.base import (
    Failure,
    Fault,
    Kind,
    NotApplicable,
    Outcome,
    Result,
    Skip,
    StageSpec,
    Unscored,
)
from plait.generators.document import Document, Image, Malformed, Query, Score, Text, Turn
from plait.generators.system import System
from plait.scorers.base import ReleasedSummary, Scorer
from plait.scorers.statistics.estimate import Estimate

MMIE = {
    "situational analysis": 5005,
    "project-based learning": 11482,
    "multi-step reasoning": 3616,
}
FIELDS = {
    "situational analysis": ("literature",),
    "project-based learning": ("art", "health", "finance"),
    "multi-step reasoning": ("mathematics", "physics"),
}
FIELD_NAMES = [name for names in FIELDS.values() for name in names]


@dataclass(frozen=True)
class Judge(Scorer):
    """A scorer by name only: its outcomes are made by hand."""

    name: str = "judge"
    stage: StageSpec = field(
        default=StageSpec(name="judge", kind=Kind.SCORE, target="none:None"), kw_only=True
    )
    scale: str = "0-6"
    superseded: str = field(default="", kw_only=True)
    manner: str = field(default="", kw_only=True)
    of_sets: bool = field(default=False, kw_only=True)
    released_summary: ReleasedSummary = field(default="", kw_only=True)
    criteria_are_shares: bool = field(default=True, kw_only=True)

    def figure(self, members):
        return Estimate(None, n=len(members), reason="by hand")


def stage(name: str, weights: str | None = "pretrained") -> StageSpec:
    """A stage that is never loaded."""
    about = {"name": name, "stage": name, "target": "none:None"}
    return StageSpec(kind=Kind.DRAFT, weights=weights, **about)


def system(name: str, weights: str | None = "pretrained") -> System:
    """A system by name; `lvlm+t2i` is composed."""
    lvlm, _, t2i = name.partition("+")
    parts = {"lvlm": lvlm, "t2i": t2i} if t2i else {}
    return system_of_stages(name=name, draft=stage(lvlm, weights), **parts)


def picture(seed: int, side: int = 64, form: str = "PNG") -> Image:
    """A small image of smooth colours, another one for every seed."""
    grid = np.mgrid[0:side, 0:side] / side
    tint = np.random.default_rng(seed).random((3, 3, 1, 1))
    waves = np.sin(6 * (tint[:, 0] * grid[0] + tint[:, 1] * grid[1]) + 6 * tint[:, 2])
    pixels = (127 + 120 * waves).clip(0, 255).astype(np.uint8).transpose(1, 2, 0)
    file = io.BytesIO()
    Picture.fromarray(pixels).save(file, form)
    return Image.of(file.getvalue())


def sample(number: int, category: str = "situational analysis", field: str = "literature"):
    """A query with one image and a ground truth."""
    content = (Text(f"What happens in scene {number}?"), picture(number))
    truth = Document((Text("The truth is told."), picture(number + 10_000)))
    turns = (Turn("user", content),)
    name = f"Q-{number:04d}"
    return Query(id=name, category=category, field=field, turns=turns, reference=truth)


def answer(*parts: str | Image) -> Result[Document]:
    """A finished answer."""
    return Result(Document(tuple(Text(p) if isinstance(p, str) else p for p in parts)))


def evaluation(
    system: str,
    sample: Query | Malformed,
    score: float | Outcome[Score] | None,
    *,
    repeat: int = 0,
    scorer: str = "judge",
    document: Outcome[Document] | None = None,
) -> Evaluation:
    """One evaluation; `score` None for one whose document came to nothing."""
    document = answer("Said.") if document is None else document
    if not isinstance(document, Result):
        return Evaluation(system, sample, repeat, document, {})
    outcome = Result(Score(float(score))) if isinstance(score, int | float) else score
    scores = {} if outcome is None else {scorer: outcome}
    return Evaluation(system, sample, repeat, document, scores)


def board(
    evaluations: Sequence[Evaluation],
    *,
    systems: Sequence[System] | None = None,
    scorers: Sequence[Scorer] = (Judge(),),
    categories: Mapping[str, int] = MMIE,
    missing: int = 0,
    **options,
) -> Board:
    """A board of `evaluations` and `missing` others, with the systems they name."""
    names = dict.fromkeys(e.system for e in evaluations)
    systems = [system(n) for n in names] if systems is None else systems
    absent = [
        Evaluation(systems[i % len(systems)].name, sample(9000 + i), 0, None, {})
        for i in range(missing)
    ]
    return stored_board(
        [*evaluations, *absent],
        systems=systems,
        scorers=scorers,
        categories=categories,
        fields=FIELD_NAMES,
        weights="pretrained",
        **options,
    )


def answers_of(made: Board) -> list[Evaluation]:
    """The evaluations that a board was made of."""
    return list(made.reading(made.keys))


def board_of(table: Mapping[str, Sequence[float | Outcome | None]], **options) -> Board:
    """A board of one category: each system's scores by query, an outcome, or None."""
    found = []
    for name, scores in table.items():
        for i, score in enumerate(scores):
            failed = Failure("cannot", Fault.ERROR) if score is None else None
            found.append(evaluation(name, sample(i), score, document=failed))
    return board(found, **options)


def mixed_board(queries: int, names: Sequence[str], seed: int = 0, **options) -> Board:
    """Every category, field and outcome, with images in the answers."""
    rng, found = random.Random(seed), []
    for number in range(queries):
        category = list(MMIE)[number % 3]
        field = FIELDS[category][number // 3 % len(FIELDS[category])]
        asked = sample(number, category, field)
        found += [_mixed(rng, asked, name, i) for i, name in enumerate(names)]
    return board(found, scorers=(Judge(), Judge("clipscore", "0-100")), **options)


def _mixed(rng: random.Random, asked: Query, name: str, i: int) -> Evaluation:
    chance = rng.random()
    if chance < 0.03:
        return evaluation(name, asked, None, document=Failure("CUDA broke", Fault.ERROR))
    if chance < 0.06:
        return evaluation(name, asked, None, document=Skip("takes one image only"))
    words = "Then it goes on, step by step, until nothing is left to be told. " * 4
    said = answer(words, picture(rng.randrange(10**6), 96), f"That was it, says {name}.")
    mark = min(6, max(0, round(rng.gauss(2.4 + 0.5 * i, 1.2))))
    judged = Unscored("no number") if chance < 0.1 else Result(Score(mark))
    pairs = [{"text": words[:60], "value": rng.uniform(15, 35)} for _ in range(2)]
    clip: Outcome[Score] = NotApplicable("answers of this category need no image")
    if asked.category != "multi-step reasoning":
        clip = Result(Score(sum(p["value"] for p in pairs) / 2, {"pairs": pairs}))
    return Evaluation(name, asked, 0, said, {"judge": judged, "clipscore": clip})


MANIFEST = {
    "status": "finished",
    "finished": "2026-01-02T03:04:05Z",
    "git": {"commit": "0123456789abcdef", "dirty": True},
    "hardware": {"cpus": 2, "gpus": []},
    "packages": {"torch": "2.10"},
    "data": {"name": "sample"},
    "stages": {
        "writer-0123456789ab": {"kind": "draft", "identity": "hub:a/b@c", "weights": "tiny"}
    },
    "usage": {"writer": {"input_tokens": 1234}},
}
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "<!--",
    "]]>",
    "line\u2028separator\u2029end",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd",
    "W" * 3000,
    "null",
    "nul \x00 and a half \ufffd",
    "{{ 7 * 7 }} ${7*7}",
)


def plain_board(queries: int, name: str = "a", **options):
    """As many queries as asked for, without images."""
    about = {"turns": (), "reference": None}
    asked = [replace(sample(0), id=f"Q-{i:04d}", **about) for i in range(queries)]
    found = [
        evaluation(name, query, i % 7, document=answer(f"Word {i}."))
        for i, query in enumerate(asked)
    ]
    return board(found, categories={}, **options)
