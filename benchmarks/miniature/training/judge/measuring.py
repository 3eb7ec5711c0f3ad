"""How well the mini judge's scores follow the known shares of right attributes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from scipy.stats import spearmanr

from benchmarks.miniature.training.judge.batches import JudgementWriter, LearnedJudgement
from benchmarks.miniature.training.judge.corruptions import Damaged
from benchmarks.miniature.training.judge.shares import truth
from benchmarks.miniature.training.judge.verdicts import reply, verdicts
from scorers.internvl.models import JudgeModel
from scorers.internvl.stage import replies
from scorers.internvl.tokenizer import END, IMAGE_TOKEN
from scorers.judging.replies import RubricVerdict, read_reply
from scorers.judging.rubrics import OWN

LONGEST_REPLY = 200
_TOGETHER = 50
"""Answers judged in one batch."""


def measured(
    judge: JudgeModel, writer: JudgementWriter, answers: Sequence[Damaged]
) -> dict[str, float]:
    """Rank correlation with the truth, and how often score and feedback are as taught."""
    written = judged(judge, writer, answers)
    scores = [_score(text, answer) for text, answer in zip(written, answers, strict=True)]
    known = [(s, a) for s, a in zip(scores, answers, strict=True) if s is not None]
    exact = [s == sum(verdicts(a)) for s, a in known]
    same = [t == reply(a) for t, a in zip(written, answers, strict=True)]
    values = {"spearman": _spearman(known), "read": len(known) / len(answers)}
    for category in OWN:
        part = [(s, a) for s, a in known if a.query.category == category]
        values[f"spearman {category}"] = _spearman(part)
    return values | {
        "same score": sum(exact) / len(answers),
        "same reply": sum(same) / len(answers),
    }


def _spearman(known: Sequence[tuple[int, Damaged]]) -> float:
    scores, truths = [s for s, _ in known], [truth(a) for _, a in known]
    if len(set(scores)) < 2 or len(set(truths)) < 2:
        return 0.0
    return float(spearmanr(scores, truths).statistic)


def _score(text: str, answer: Damaged) -> int | None:
    verdict = read_reply(text, OWN[answer.query.category])
    return verdict.raw if isinstance(verdict, RubricVerdict) else None


def judged(
    judge: JudgeModel, writer: JudgementWriter, answers: Sequence[Damaged]
) -> list[str]:
    """The judge's replies, as the stage writes them."""
    rng = random.Random("measured judgements")
    written: list[str] = []
    for begin in range(0, len(answers), _TOGETHER):
        group = [writer.judged(rng, a) for a in answers[begin : begin + _TOGETHER]]
        written += _replies(judge, group)
    return written


@torch.inference_mode()
def _replies(judge: JudgeModel, group: Sequence[LearnedJudgement]) -> list[str]:
    image, end = judge.tokenizer.id(IMAGE_TOKEN), judge.tokenizer.id(END)
    prompts = []
    for judgement in group:
        ids = torch.tensor(judgement.ids[: judgement.prompt])
        inputs = judge.embeddings(ids)
        tiles = torch.stack([torch.from_numpy(p) for p in judgement.pictures])
        inputs[ids == image] = judge.features(tiles, 64).flatten(0, 1)
        prompts.append(inputs)
    limits = [LONGEST_REPLY] * len(prompts)
    return [judge.tokenizer.decode(r.ids) for r in replies(judge, prompts, limits, end)]
