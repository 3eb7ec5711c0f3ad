"""Judges of documents. Of `generators` they see values and contracts only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from generators.base import WeightsName, imported
from generators.mini.resolve import as_mini, mini_settings
from generators.names import unknown
from generators.registry import CUSTOM, Named, forms, is_custom, prefix_of
from scorers.base import Scorer, with_stage
from scorers.custom import custom_scorer
from scorers.judging.resolve import PREFIXES, Chat, resolve_judge
from scorers.vqa import VQA, resolve_vqa

SCORERS: dict[str, str] = {
    "aesthetic": "scorers.preferences:AestheticScorer",
    "bertscore": "scorers.texts:TextScorer",
    "bleu": "scorers.texts:TextScorer",
    "chrf": "scorers.texts:TextScorer",
    "clipscore": "scorers.clipscore:ClipScorer",
    "clipscore-prompt": "scorers.clipscore:PromptClipScorer",
    "clip-fid": "scorers.sets:SetScorer",
    "clip-kid": "scorers.sets:SetScorer",
    "consistency": "scorers.consistency:ConsistencyScorer",
    "consistency-dino": "scorers.consistency:ConsistencyScorer",
    "isg-structure": "scorers.answers:StructureScorer",
    "known-answer": "scorers.answers:KnownAnswerScorer",
    "dists": "scorers.ssim:PairedScorer",
    "diversity": "scorers.sets:SetScorer",
    "fid": "scorers.sets:SetScorer",
    "hpsv2": "scorers.preferences:CosineScorer",
    "hpsv2.1": "scorers.preferences:CosineScorer",
    "hpsv3": "scorers.preferences:RewardScorer",
    "imagereward": "scorers.preferences:RewardScorer",
    "kid": "scorers.sets:SetScorer",
    "lpips": "scorers.ssim:PairedScorer",
    "pickscore": "scorers.preferences:CosineScorer",
    "rouge1": "scorers.texts:RougeScorer",
    "rouge2": "scorers.texts:RougeScorer",
    "rougeL": "scorers.texts:RougeScorer",
    "siglip2": "scorers.preferences:CosineScorer",
    "ssim": "scorers.ssim:PairedScorer",
    "truth:answer": "scorers.truth.scorers:TruthScorer",
    "truth:image": "scorers.truth.scorers:ImageTruthScorer",
    "truth:match": "scorers.truth.scorers:ImageTruthScorer",
    "truth:text": "scorers.truth.scorers:TruthScorer",
}
"""Name -> `module:Class` of a `Scorer`."""


def takes(name: str, setting: str) -> bool:
    """Return whether `setting`, which is `mode` or `rubric`, is one of a scorer's."""
    prefix = name.partition(":")[0]
    if name in SCORERS:
        own = type(imported(SCORERS[name]).preset(name).settings)
    elif f"{prefix}:" in PREFIXES:
        own = PREFIXES[f"{prefix}:"]
    elif prefix in VQA:
        own = VQA[prefix].settings_of
    else:
        return False
    return setting in own.model_fields


def resolve_scorer(
    name: str,
    weights: WeightsName,
    overrides: Mapping[str, Any],
    gpu_gib: float = 80.0,
    chat: Chat | None = None,
    answers: Chat | None = None,
) -> Scorer:
    """Return the scorer a user named; UsageError names the valid ones.

    `chat` gives the stage of a chat model by name, for `judge:NAME` and its kin;
    `answers` the one that reads an LVLM's probabilities of answers, for `vqascore:LVLM`.
    """
    if name in SCORERS:
        return _named(name, weights, overrides, gpu_gib)
    if is_custom(name):
        return custom_scorer(name, weights, overrides)
    if prefix_of(name, "scorer", Named.SCORER) is None:
        raise unknown("scorer", name, [*SCORERS, *forms(Named.SCORER), CUSTOM])
    if answers is not None and name.partition(":")[0] in VQA:
        return resolve_vqa(name, overrides, answers)
    if name.startswith("truth:"):
        raise unknown("scorer", name, [n for n in SCORERS if n.startswith("truth:")])
    return resolve_judge(name, weights, overrides, gpu_gib, chat)


def _named(
    name: str, weights: WeightsName, overrides: Mapping[str, Any], gpu_gib: float
) -> Scorer:
    of: Callable[..., Scorer] = imported(SCORERS[name]).of
    if weights != "mini":
        return of(name, weights, overrides, gpu_gib)
    scorer = of(name, "tiny", overrides, gpu_gib)
    if scorer.stage.weights is None:
        return scorer
    with mini_settings(name, overrides) as settings:
        return with_stage(of(name, "pretrained", settings, gpu_gib), as_mini)
