"""Does CLIPScore tell right captions from wrong ones, and which wrongs does it not see?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.local import LocalScorer
from benchmarks.miniature.bars import Bar, BenchPart
from benchmarks.miniature.settings import CLIP, BenchSettings, Say
from benchmarks.miniature.wrong_captions import RANDOM, WRONG, CaptionedScene, captioned
from benchmarks.results.board import score_value
from benchmarks.results.numbers import NumberForm
from benchmarks.results.table import ResultTable
from cluster.walks import drive, together
from generators.base import Outcome
from generators.document import Document, Sample, Score, Text, Turn
from generators.pictures import encode
from scorers.statistics.agreement import estimated
from scorers.statistics.estimate import Estimate, Floats, bootstrap_weights
from scorers.statistics.means import mean
from scorers.truth.drawing import draw

AIM = 0.97
_SHARE = NumberForm(3, (0.0, 1.0))
RIGHT = "nothing"
"""What is wrong with a right caption."""
TITLE = "CLIPScore of right and wrong captions"
Pair = tuple[Sample, Document]
"""A query and an answer to it."""


def area(right: Floats, wrong: Floats, weights: Floats) -> Floats:
    """Area under the ROC curve: how often a right score is above a wrong one.

    Args:
        right: (scenes,) scores of right captions.
        wrong: (scenes,) scores of wrong captions.
        weights: (draws, scenes) how often a draw holds each scene.

    Returns:
        (draws,) over all pairs of a right and a wrong score; equal ones count half, NaN
        for a draw without scenes.
    """
    above = (right[:, None] > wrong) + 0.5 * (right[:, None] == wrong)
    with np.errstate(invalid="ignore"):
        areas: Floats = ((weights @ above) * weights).sum(1) / weights.sum(1) ** 2
    return areas


def measure_captions(settings: BenchSettings, say: Say) -> BenchPart:
    """The area for another scene's caption (a bar) and for captions wrong by one thing."""
    scenes = [captioned(i, settings.seed) for i in range(settings.scenes)]
    scorer = settings.scorer(CLIP)
    say(f"{CLIP}: {len(scenes)} pictures, {1 + len(WRONG)} captions each")
    scores = _scores(scorer, scenes)
    compared = {name: _compared(scores[RIGHT], scores[name]) for name in WRONG}
    whole, _ = compared[RANDOM]
    bar = Bar.at_least("AUC, right caption against another scene's", whole, AIM)
    return BenchPart(title=TITLE, bars=(bar,), tables=(_table(compared),))


def _table(compared: Mapping[str, tuple[Estimate, Estimate]]) -> ResultTable:
    rows = [
        [name, _SHARE.estimate(whole), _SHARE.estimate(share), f"{share.n:,}"]
        for name, (whole, share) in compared.items()
    ]
    notes = [
        "right above wrong: pictures whose right caption scores above the wrong one; equal "
        "counts half. 0.5 is chance: the scorer does not see what is wrong."
    ]
    head = ["wrong by", "AUC", "right above wrong", "n"]
    return ResultTable.of("Which wrong captions CLIPScore sees", head, rows, notes)


def _compared(right: Floats, wrong: Floats) -> tuple[Estimate, Estimate]:
    """The area, and the share of pictures whose right caption scores higher."""
    known = np.flatnonzero(~(np.isnan(right) | np.isnan(wrong)))
    right, wrong = right[known], wrong[known]
    if not len(known):
        nothing = Estimate(None, None, 0, "nothing is scored")
        return nothing, nothing
    weights = bootstrap_weights([f"scene {i}" for i in known.tolist()])
    higher = np.where(right == wrong, 0.5, right > wrong)
    return estimated(area, right, wrong, weights, len(known)), mean(higher)


def _scores(scorer: LocalScorer, scenes: Sequence[CaptionedScene]) -> Mapping[str, Floats]:
    """By what is wrong, (scenes,) scores; NaN where there is no such caption or score."""
    captions = {RIGHT: [s.right for s in scenes]}
    captions |= {name: [s.wrong.get(name, "") for s in scenes] for name in WRONG}
    asked = [
        (name, i) for name, texts in captions.items() for i, t in enumerate(texts) if t
    ]
    pairs = [_pair(scenes[i], captions[name][i]) for name, i in asked]
    scores = {name: np.full(len(scenes), np.nan) for name in captions}
    for (name, i), outcome in zip(asked, outcomes_of(scorer, pairs), strict=True):
        value = score_value(outcome)
        scores[name][i] = np.nan if value is None else value
    return scores


def _pair(captioned_scene: CaptionedScene, text: str) -> Pair:
    picture = encode(draw(captioned_scene.scene, captioned_scene.seed))
    asked = (Turn("user", (Text("What does the picture show?"),)),)
    sample = Sample(id="caption", category="captions", field="captions", turns=asked)
    return sample, Document((Text(text), picture))


def outcomes_of(scorer: LocalScorer, pairs: Sequence[Pair]) -> list[Outcome[Score]]:
    """The scores of many answers, in batches."""
    walks = [scorer.scorer.judge(sample, document) for sample, document in pairs]
    return drive(together(walks), scorer.stages.outcomes)
