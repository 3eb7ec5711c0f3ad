"""Judges of documents. Of `generators` they see values and contracts only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from plait.generators.base import Kind, WeightsName
from plait.generators.catalogue import (
    Named,
    by_name,
    find,
    is_custom,
    prefix_of,
    valid_names,
)
from plait.generators.custom import custom_spec
from plait.generators.errors import UsageError
from plait.generators.mini.resolve import as_mini, mini_settings
from plait.generators.names import unknown
from plait.generators.own_code import is_given, own_code
from plait.generators.settings import StageSettings
from plait.scorers.base import (
    DIRECTIONS,
    UNBOUNDED,
    CustomScorer,
    Scorer,
    bounds,
    with_stage,
)
from plait.scorers.own_parts import parts_of_class, scale_of_parts
from plait.scorers.parts import KINDS, PartScale, PartTable
from plait.scorers.turn_names import name_of_turn_scorer
from plait.scorers.turns import TurnsScorer
from plait.scorers.vqa import is_vqa

if TYPE_CHECKING:
    from plait.scorers.judging.resolve import Chat

# Every worker of a scorer imports this module. Judges, which few of them need, take as long
# to import as all the rest, and are imported where one is named.


def takes(name: str, setting: str) -> bool:
    """Return whether `setting`, which is `mode` or `rubric`, is one of a scorer's."""
    name = name_of_turn_scorer(name)
    match = find(name, Named.SCORER)
    if match is None or not match.entry.target:
        return False
    own = match.entry.load()
    if match.entry.prefix is None:
        own = type(own.presets[name].settings)
    elif is_vqa(name):
        own = own.settings_of
    return setting in own.model_fields


def former_faults(name: str, settings: Mapping[str, Any]) -> Mapping[int, str]:
    """Return what was wrong with former versions of a scorer's stage, by version.

    `settings` are the stage's, as a run recorded them: with some it has another version.
    The scorer is not resolved, so that its weights are not looked for. Nothing is known of
    scorers that are not built in, nor of the chat models that judges ask.
    """
    from plait.scorers.judging.resolve import chat_model

    name = name_of_turn_scorer(name)
    usual: StageSettings
    judges = by_name(Named.JUDGE)
    if (entry := by_name(Named.SCORER).get(name)) is not None:
        usual = entry.load().presets[name].settings
    elif (entry := judges.get(chat_model(name))) is not None:
        usual = entry.make()
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
    if (judged := name_of_turn_scorer(name)) != name:
        settings = (weights, overrides, gpu_gib, chat, answers)
        return TurnsScorer.around(name, resolve_scorer(judged, *settings))
    if is_custom(name) or is_given(name):
        return custom_scorer(name, weights, overrides)
    match = find(name, Named.SCORER)
    if match is None:
        prefix_of(name, "scorer", Named.SCORER)
        raise unknown("scorer", name, valid_names(Named.SCORER))
    if match.entry.prefix is None:
        return _resolve_named(name, weights, overrides, gpu_gib)
    if not match.entry.target:
        family = f"{match.entry.prefix}:"
        valid = [known for known in by_name(Named.SCORER) if known.startswith(family)]
        raise unknown("scorer", name, valid)
    if answers is not None and is_vqa(name):
        scorer: Scorer = match.entry.load().asking(name, answers(match.rest), overrides)
        return scorer
    from plait.scorers.judging.resolve import resolve_judge

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
    weighted = parts_of_class(cls, f"scorer {name!r}")
    usual = scale_of_parts(cls, weighted) or UNBOUNDED
    scale = getattr(cls, "scale", usual)
    direction = getattr(cls, "direction", "higher")
    if direction not in DIRECTIONS:
        raise unknown(f"direction of scorer {name!r}", str(direction), DIRECTIONS)
    _check_ends(str(scale), f"scorer {name!r}")
    others = _check_part_scales(name, getattr(cls, "part_scales", ()))
    rows = [part.as_part_scale(criterion) for criterion, part in weighted.items()]
    own = PartTable.of(*rows, *others.rows)
    return CustomScorer(name, stage, str(scale), direction, own_parts=own)


def _check_ends(scale: str, whose: str) -> None:
    if (ends := bounds(scale)) and ends[0] >= ends[1]:
        raise UsageError(
            f"scale {scale!r} of {whose} is not valid: the lower end comes first, as in "
            "'0-10'"
        )


def _check_part_scales(name: str, rows: Any) -> PartTable:
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


def _resolve_named(
    name: str, weights: WeightsName, overrides: Mapping[str, Any], gpu_gib: float
) -> Scorer:
    of: Callable[..., Scorer] = by_name(Named.SCORER)[name].load().of
    if weights != "mini":
        return of(name, weights, overrides, gpu_gib)
    scorer = of(name, "tiny", overrides, gpu_gib)
    if scorer.stage.weights is None:
        return scorer
    with mini_settings(name, overrides) as settings:
        return with_stage(of(name, "pretrained", settings, gpu_gib), as_mini)
