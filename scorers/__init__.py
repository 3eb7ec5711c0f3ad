"""Judges of documents. Of `generators` they see values and contracts only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plait.generators.base import Kind, WeightsName, imported
from plait.generators.custom import custom_spec
from plait.generators.errors import UsageError
from plait.generators.mini.resolve import as_mini, mini_settings
from plait.generators.names import unknown
from plait.generators.own_code import is_given, own_code
from plait.generators.registry import CUSTOM, Named, forms, is_custom, prefix_of
from plait.generators.settings import StageSettings
from plait.scorers.base import (
    DIRECTIONS,
    UNBOUNDED,
    CustomScorer,
    Scorer,
    bounds,
    with_stage,
)
from plait.scorers.judging.resolve import JUDGES, PREFIXES, Chat, chat_model, resolve_judge
from plait.scorers.own_parts import declared_parts, scale_of_parts
from plait.scorers.parts import KINDS, PartScale, PartTable
from plait.scorers.vqa import VQA

SCORERS: dict[str, str] = {
    "aesthetic": "plait.scorers.preferences:AestheticScorer",
    "bertscore": "plait.scorers.texts:TextScorer",
    "bleu": "plait.scorers.texts:TextScorer",
    "chrf": "plait.scorers.texts:TextScorer",
    "clipscore": "plait.scorers.clipscore:ClipScorer",
    "clipscore-prompt": "plait.scorers.clipscore:PromptClipScorer",
    "clip-fid": "plait.scorers.sets:SetScorer",
    "clip-kid": "plait.scorers.sets:SetScorer",
    "consistency": "plait.scorers.clipscore:ConsistencyScorer",
    "consistency-dino": "plait.scorers.clipscore:ConsistencyScorer",
    "isg-structure": "plait.scorers.answers:StructureScorer",
    "known-answer": "plait.scorers.answers:KnownAnswerScorer",
    "dists": "plait.scorers.ssim:PairedScorer",
    "diversity": "plait.scorers.sets:SetScorer",
    "fid": "plait.scorers.sets:SetScorer",
    "hpsv2": "plait.scorers.preferences:CosineScorer",
    "hpsv2.1": "plait.scorers.preferences:CosineScorer",
    "hpsv3": "plait.scorers.preferences:RewardScorer",
    "imagereward": "plait.scorers.preferences:RewardScorer",
    "kid": "plait.scorers.sets:SetScorer",
    "lpips": "plait.scorers.ssim:PairedScorer",
    "pickscore": "plait.scorers.preferences:CosineScorer",
    "rouge1": "plait.scorers.texts:RougeScorer",
    "rouge2": "plait.scorers.texts:RougeScorer",
    "rougeL": "plait.scorers.texts:RougeScorer",
    "siglip2": "plait.scorers.preferences:CosineScorer",
    "ssim": "plait.scorers.ssim:PairedScorer",
    "truth:answer": "plait.scorers.truth.scorers:TruthScorer",
    "truth:image": "plait.scorers.truth.scorers:ImageTruthScorer",
    "truth:match": "plait.scorers.truth.scorers:ImageTruthScorer",
    "truth:text": "plait.scorers.truth.scorers:TruthScorer",
}
"""Name -> `module:Class` of a `Scorer`."""


def takes(name: str, setting: str) -> bool:
    """Return whether `setting`, which is `mode` or `rubric`, is one of a scorer's."""
    prefix = name.partition(":")[0]
    if name in SCORERS:
        own = type(imported(SCORERS[name]).presets[name].settings)
    elif f"{prefix}:" in PREFIXES:
        own = PREFIXES[f"{prefix}:"]
    elif prefix in VQA:
        own = VQA[prefix].settings_of
    else:
        return False
    return setting in own.model_fields


def former_faults(name: str, settings: Mapping[str, Any]) -> Mapping[int, str]:
    """Return what was wrong with former versions of a scorer's stage, by version.

    `settings` are the stage's, as a run recorded them: with some it has another version.
    The scorer is not resolved, so that its weights are not looked for. Nothing is known of
    scorers that are not built in, nor of the chat models that judges ask.
    """
    usual: StageSettings
    if name in SCORERS:
        usual = imported(SCORERS[name]).presets[name].settings
    elif (model := chat_model(name)) in JUDGES:
        usual = imported(JUDGES[model])()
    else:
        return {}
    # Not validated: a run of an earlier version of plait may have recorded others.
    return usual.model_copy(update=dict(settings)).former_faults()


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
    if is_custom(name) or is_given(name):
        return custom_scorer(name, weights, overrides)
    if prefix_of(name, "scorer", Named.SCORER) is None:
        raise unknown("scorer", name, [*SCORERS, *forms(Named.SCORER), CUSTOM])
    prefix, _, lvlm = name.partition(":")
    if answers is not None and prefix in VQA:
        return VQA[prefix].asking(name, answers(lvlm), overrides)
    if name.startswith("truth:"):
        raise unknown("scorer", name, [n for n in SCORERS if n.startswith("truth:")])
    return resolve_judge(name, weights, overrides, gpu_gib, chat)


def custom_scorer(
    name: str, weights: WeightsName, overrides: Mapping[str, Any]
) -> CustomScorer:
    """Return the scorer of a user's own, whose attributes say how to read its values.

    They are `scale`, `LOW-HIGH` such as `0-10` (values beyond it are failures; without it
    any finite number counts), `direction`, `higher` (the default) or `lower`, whichever
    is better, `parts`, what it returns in place of a score (`own_parts.py`), and
    `part_scales`, what else it says (`parts.py`). UsageError for an invalid one.
    """
    stage = custom_spec(name, weights, overrides, [Kind.SCORE])
    cls = own_code(name).code
    weighted = declared_parts(cls, f"scorer {name!r}")
    usual = scale_of_parts(cls, weighted) or UNBOUNDED
    scale, direction = getattr(cls, "scale", usual), getattr(cls, "direction", "higher")
    if direction not in DIRECTIONS:
        raise unknown(f"direction of scorer {name!r}", str(direction), DIRECTIONS)
    _check_ends(str(scale), f"scorer {name!r}")
    others = _declared_parts(name, getattr(cls, "part_scales", ()))
    own = PartTable.of(*(part.described(n) for n, part in weighted.items()), *others.rows)
    return CustomScorer(name, stage, str(scale), direction, own_parts=own)


def _check_ends(scale: str, whose: str) -> None:
    if (ends := bounds(scale)) and ends[0] >= ends[1]:
        raise UsageError(
            f"scale {scale!r} of {whose} is not valid: the lower end comes first, as in "
            "'0-10'"
        )


def _declared_parts(name: str, rows: Any) -> PartTable:
    if not isinstance(rows, list | tuple) or not all(map(_is_part_scale, rows)):
        raise UsageError(
            f"part_scales of scorer {name!r} must be a list of "
            "plait.scorers.parts.PartScale, as in "
            f"[PartScale('words', 'words', '0-10000')], not {rows!r}"
        )
    for row in rows:
        whose = f"part {row.path!r} of scorer {name!r}"
        _check_ends(row.scale, whose)
        if row.kind not in (None, *KINDS):
            raise unknown(f"kind of {whose}", row.kind, KINDS)
    return PartTable(tuple(rows))


def _is_part_scale(row: Any) -> bool:
    if not isinstance(row, PartScale):
        return False
    texts = row.path, row.unit or "", row.scale, row.kind or ""
    return all(isinstance(text, str) for text in texts)


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
