"""`plait sensitivity`: which settings of a text-to-image system move its figure.

One factor at a time: each level of guidance, steps and size is the system with that one
setting changed, a variant in the same run, so that all draw the same queries from the same
seeds and share every record that does not depend on the setting. Differences from the
reference are paired by query. The factor seed compares repeats of the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.comparisons import round_p
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.paired import mean_difference
from plait.benchmarks.results.repeats import values_by_repeat
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn
from plait.benchmarks.runs.config import RunConfig, VariantConfig, merge
from plait.benchmarks.runs.resolving import models_of, with_variant
from plait.generators.errors import UsageError
from plait.generators.system import System
from plait.pipelines.systems import parts_of, resolve
from plait.scorers.base import Scorer, ends_of, scale_text
from plait.scorers.statistics.estimate import Estimate, Floats
from plait.scorers.statistics.means import mean, of_differences, paired_differences
from plait.scorers.statistics.multiple import LEVEL, correct, paired_p_value

Factor = Literal["guidance", "steps", "size", "seed"]
VARIED: tuple[Factor, ...] = ("guidance", "steps", "size")
"""Factors that are settings of the model."""
_MULTIPLE = 16
"""Sides are multiples of so many pixels."""
ABOUT = (
    "Difference: the mean of level minus reference over the queries that both have a score "
    "of, with its 95% interval by query. A level moves the figure where the p-value of the "
    "difference, corrected for all levels of all factors (Holm), is below 0.05."
)


class Level(NamedTuple):
    """One value of one factor."""

    factor: Factor
    text: str
    """As it is shown: `20`, `512x768`."""
    settings: Mapping[str, Any]
    """Of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityDesign:
    """The system, what is varied around it, and the run that does so."""

    config: RunConfig
    """With the reference and a variant for each level."""
    system: str
    """The reference."""
    model: str
    """What is varied: the model that draws."""
    reference: Mapping[str, str]
    """By factor, its level in the reference."""
    levels: Mapping[str, Level]
    """By the name of the variant."""
    remarks: Sequence[str] = ()
    """What is not varied, and why."""


def parse_levels(factor: Factor, text: str) -> list[Level]:
    """Return the levels of `20,50`, or of a size `512,768x512`; UsageError."""
    return [_parse_level(factor, part.strip()) for part in text.split(",")]


def _parse_level(factor: Factor, text: str) -> Level:
    rule = {
        "guidance": "a number from 0, such as 3.5",
        "steps": "a whole number from 1",
        "size": "SIDE or WIDTHxHEIGHT in pixels, such as 512 or 768x512",
    }[factor]
    try:
        if factor == "size":
            width, by, height = text.partition("x")
            return _size(int(width), int(height if by else width))
        value: float = int(text) if factor == "steps" else float(text)
        if not value >= (1 if factor == "steps" else 0):
            raise ValueError
    except ValueError:
        raise UsageError(f"--{factor} {text!r} is not valid: give {rule}") from None
    return Level(factor, f"{value:g}", {factor: value})


def _size(width: int, height: int) -> Level:
    text = str(width) if width == height else f"{width}x{height}"
    return Level("size", text, {"height": height, "width": width})


def design_of(
    config: RunConfig, asked: Mapping[Factor, Sequence[Level]], seeds: int | None
) -> SensitivityDesign:
    """Return the design around the one system of a config.

    `asked` are the levels of a factor; those of others are made from the reference. A
    setting that the system does not have yet has the first level asked as its reference.
    UsageError for no or several systems, for one that draws nothing, for a level that its
    model does not take, and where nothing is left to vary.
    """
    name = _one_system(config)
    named = parts_of(name)
    model = named.t2i or named.lvlm
    own = _settings_of(_resolve(name, config))
    for factor, levels in asked.items():
        if _level_in(own, factor) is None and levels:
            settings = merge(config.models, {model: dict(levels[0].settings)})
            config = config.model_copy(update={"models": settings})
    # Again, with what is asked of settings that it did not have.
    system = _resolve(name, config)
    if "render" not in system.roles:
        raise UsageError(f"system {name!r} draws nothing that could be varied")
    choice = _choose_levels(name, model, _settings_of(system), asked)
    variants = {}
    for variant, level in choice.levels.items():
        settings = {model: dict(level.settings)}
        variants[variant] = VariantConfig(system=name, models=settings)
    # By default two at least, since the factor seed compares repeats.
    repeats = seeds or max(2, config.repeats)
    config = config.model_copy(update={"variants": variants, "repeats": repeats})
    remarks = [*choice.remarks]
    kept = _distinct(name, config, remarks)
    if not kept and repeats < 2:
        raise UsageError(f"nothing is left to vary of {name!r}: {'; '.join(remarks)}")
    config = config.model_copy(
        update={
            "systems": (name, *kept),
            "variants": {variant: variants[variant] for variant in kept},
        }
    )
    return SensitivityDesign(
        config=config,
        system=name,
        model=model,
        reference=choice.reference,
        levels={variant: choice.levels[variant] for variant in kept},
        remarks=tuple(remarks),
    )


class _LevelChoice(NamedTuple):
    """The levels that are to be tried, before it is known which of them draw alike."""

    reference: Mapping[str, str]
    levels: Mapping[str, Level]
    """By the name of the variant."""
    remarks: Sequence[str]


def _choose_levels(
    name: str,
    model: str,
    settings: Mapping[str, Any],
    asked: Mapping[Factor, Sequence[Level]],
) -> _LevelChoice:
    """Return the levels asked of each factor, else those around the reference's."""
    reference: dict[str, str] = {}
    chosen: dict[str, Level] = {}
    remarks = []
    for factor in VARIED:
        at = _level_in(settings, factor)
        if at is None:
            remarks.append(f"{factor} is not varied: {model} has no such setting")
            continue
        reference[factor] = at.text
        levels = asked.get(factor) or [*_levels_around(at)]
        if not levels:
            remarks.append(
                f"{factor} is not varied around {at.text}; give levels with --{factor}"
            )
        for level in levels:
            if level.text != at.text:
                chosen[f"{name} {factor}={level.text}"] = level
    return _LevelChoice(reference, chosen, remarks)


def _one_system(config: RunConfig) -> str:
    """Return the one system of a config that is no variant; UsageError for any other."""
    systems = [name for name in config.systems if name not in config.variants]
    if len(systems) != 1:
        there = ", ".join(systems) or "none"
        raise UsageError(
            f"sensitivity is of one system, and {there} are named: choose one with --system"
        )
    return systems[0]


def _resolve(name: str, config: RunConfig) -> System:
    return resolve(*with_variant(name, config, models_of(config)))


def _settings_of(system: System) -> dict[str, Any]:
    """Return the settings of the stages that draw, as they are with the run's weights."""
    settings: dict[str, Any] = {}
    # Of a setting that both have, that of the one that draws decides.
    for role in ("condition", "render"):
        stage = system.roles.get(role)
        if stage is None:
            continue
        for name, value in stage.settings.items():
            if value is not None:
                settings[name] = value
    return settings


def _level_in(settings: Mapping[str, Any], factor: Factor) -> Level | None:
    """Return the level of a factor that settings have; None where they have none."""
    if factor == "size":
        height = settings.get("height")
        width = settings.get("width")
        return _size(width, height) if height and width else None
    value = settings.get(factor)
    return None if value is None else Level(factor, f"{value:g}", {factor: value})


def _levels_around(at: Level) -> Iterator[Level]:
    """Yield the levels that are tried by default: half and more, and half the size.

    None of a guidance of 1 or less, with which a model is not guided.
    """
    if at.factor == "size":
        yield _size(_half(at.settings["width"]), _half(at.settings["height"]))
        return
    value = at.settings[at.factor]
    if at.factor == "steps":
        for steps in (max(1, round(value / 2)), 2 * value):
            yield Level("steps", f"{steps:g}", {"steps": steps})
    elif value > 1:
        for guidance in (value / 2, value * 1.5):
            yield Level("guidance", f"{guidance:g}", {"guidance": guidance})


def _half(side: int) -> int:
    return max(_MULTIPLE, side // 2 // _MULTIPLE * _MULTIPLE)


def _distinct(name: str, config: RunConfig, remarks: list[str]) -> list[str]:
    """Return the variants that draw otherwise than the reference and those before them."""
    first = {_digests(name, config): name}
    kept = []
    for variant in config.variants:
        same = first.setdefault(_digests(variant, config), variant)
        if same == variant:
            kept.append(variant)
        else:
            remarks.append(
                f"{variant.removeprefix(f'{name} ')} is left out: with {config.weights} "
                f"weights it draws as {same.removeprefix(f'{name} ')} does"
            )
    return kept


def _digests(name: str, config: RunConfig) -> tuple[str, ...]:
    return tuple(stage.digest for stage in _resolve(name, config).stages)


# --------------------------------------------------------------------------- results


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelEffect:
    """What one level does to a figure."""

    factor: Factor
    level: str
    mean: Estimate
    """Of the level's own queries."""
    difference: Estimate
    """Paired with the reference."""
    above: int
    """Queries on which the level scores higher."""
    below: int

    p: float | None
    """Of this level alone."""
    adjusted: float | None = None
    """Corrected for all levels of all factors."""

    @property
    def moves(self) -> bool | None:
        """Whether it moves the figure, as ABOUT says; None where nothing was compared."""
        return None if self.adjusted is None else self.adjusted < LEVEL

    @property
    def text(self) -> str:
        """`yes`, `not shown`, `equal on every query`, or why nothing was compared."""
        if self.moves is None:
            return f"not compared: {self.difference.reason}"
        if self.moves:
            return "yes"
        return "not shown" if self.above or self.below else "no, equal on every query"

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "factor": self.factor,
            "level": self.level,
            "mean": self.mean.as_json("value"),
            "difference": self.difference.as_json("value"),
            "above": self.above,
            "below": self.below,
            "p": round_p(self.p),
            "p_adjusted": round_p(self.adjusted),
            "moves": self.moves,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorEffect:
    """What one factor does to a figure."""

    factor: Factor
    levels: Sequence[LevelEffect]
    """Without the reference."""
    reference: str
    spread: float | None
    """The highest mean of a level less the lowest, the reference among them, over the
    queries that all have a score of; None where there are none."""
    n: int
    """Those queries."""

    @property
    def moves(self) -> bool | None:
        """Whether any of its levels moves the figure; None where none was compared."""
        known = [one.moves for one in self.levels if one.moves is not None]
        return any(known) if known else None

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "factor": self.factor,
            "reference": self.reference,
            "range": self.spread,
            "n": self.n,
            "moves": self.moves,
            "levels": [one.as_json for one in self.levels],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerSensitivity:
    """How one scorer's figure depends on the factors."""

    scorer: Scorer
    reference: Estimate
    factors: Sequence[FactorEffect]

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "scorer": self.scorer.name,
            "scale": self.scorer.scale,
            "direction": self.scorer.direction,
            "reference": self.reference.as_json("value"),
            "factors": [one.as_json for one in self.factors],
        }


def sensitivity_of(design: SensitivityDesign, board: Board) -> list[ScorerSensitivity]:
    """Return what each scorer of single documents says of the factors."""
    place = {system.name: i for i, system in enumerate(board.systems)}
    found = []
    for scorer in board.scorers:
        if scorer.of_sets:
            continue
        values = board.values[scorer.name]
        base = values[:, place[design.system]]
        by_factor: dict[Factor, dict[str, Floats]] = {factor: {} for factor in VARIED}
        for variant, level in design.levels.items():
            by_factor[level.factor][level.text] = values[:, place[variant]]
        factors = []
        for factor, columns in by_factor.items():
            if columns:
                at = design.reference[factor]
                factors.append(effect_of(factor, at, base, columns, scorer))
        repeats = _by_repeat(board, place[design.system], scorer)
        if len(repeats) > 1:
            # The first repeat is the reference that the others are compared with.
            first = next(iter(repeats))
            of_first = repeats.pop(first)
            factors.append(effect_of("seed", first, of_first, repeats, scorer))
        reference = mean(base, ends_of(scorer.scale))
        sensitivity = ScorerSensitivity(
            scorer=scorer, reference=reference, factors=correct_together(factors)
        )
        found.append(sensitivity)
    return found


def effect_of(
    factor: Factor,
    reference: str,
    base: Floats,
    columns: Mapping[str, Floats],
    scorer: Scorer,
) -> FactorEffect:
    """Return the effect of a factor from (queries,) scores of each level."""
    levels = []
    for text, column in columns.items():
        difference = mean_difference(column, base, scorer.scale)
        apart = paired_differences(column, base)
        levels.append(
            LevelEffect(
                factor=factor,
                level=text,
                mean=mean(column, ends_of(scorer.scale)),
                difference=difference,
                above=int((apart > 0).sum()),
                below=int((apart < 0).sum()),
                p=paired_p_value(apart, of_differences(ends_of(scorer.scale))),
            )
        )
    every = np.stack([base, *columns.values()])
    common = every[:, ~np.isnan(every).any(axis=0)]
    n = common.shape[1]
    spread = float(np.ptp(common.mean(axis=1))) if n else None
    return FactorEffect(
        factor=factor, levels=levels, reference=reference, spread=spread, n=n
    )


def _by_repeat(board: Board, system: int, scorer: Scorer) -> dict[str, Floats]:
    """Return by repeat the (queries,) scores of a system, NaN for none."""
    values = values_by_repeat(board, scorer.name)[:, :, system]
    return {str(number): column for number, column in enumerate(values, 1)}


def correct_together(factors: Sequence[FactorEffect]) -> list[FactorEffect]:
    """Return the factors with the p-values of all their levels corrected together."""
    p_values = []
    for factor in factors:
        p_values += [level.p for level in factor.levels]
    # All levels in a row, of which each factor takes its own back.
    adjusted = iter(correct(p_values))
    found = []
    for factor in factors:
        levels = [replace(level, adjusted=next(adjusted)) for level in factor.levels]
        found.append(replace(factor, levels=levels))
    return found


def tables_of(
    design: SensitivityDesign, found: Sequence[ScorerSensitivity]
) -> Iterator[ResultTable]:
    """Yield for each scorer the range of each factor, then every level."""
    for one in found:
        yield _factor_table(design, one)
        yield _level_table(one)


def _factor_table(design: SensitivityDesign, one: ScorerSensitivity) -> ResultTable:
    form = NumberForm.of(one.scorer.scale)
    rows = []
    for factor in one.factors:
        levels = [factor.reference]
        for level in factor.levels:
            levels.append(level.level)
        moves = {True: "yes", False: "not shown", None: "not compared"}[factor.moves]
        spread = form.number(factor.spread)
        rows.append([factor.factor, ", ".join(levels), spread, f"{factor.n:,}", moves])
    unit = scale_text(one.scorer.scale, one.scorer.direction)
    head: list[str | TableColumn] = [
        "factor",
        TableColumn("levels", numeric=False),
        TableColumn("range", numeric=True),
        TableColumn("n", numeric=True),
        "moves it",
    ]
    reference = form.counted(one.reference)
    notes = [f"Reference: {reference}. The first level of each factor is the reference's."]
    notes += [f"{text}." for text in design.remarks]
    title = f"What moves {one.scorer.name} ({unit}) of {design.system}"
    return ResultTable.of(title, head, rows, notes)


def _level_table(one: ScorerSensitivity) -> ResultTable:
    form = NumberForm.of(one.scorer.scale)
    signed = replace(form, signed=True)
    rows: list[list[str | TableCell]] = []
    for factor in one.factors:
        for level in factor.levels:
            row: list[str | TableCell] = [
                f"{factor.factor} {level.level}",
                TableCell.of(level.mean, form),
                TableCell.of(level.difference, signed, counted=True),
                level.text,
            ]
            rows.append(row)
    head: list[str | TableColumn] = [
        "level",
        TableColumn("mean", numeric=True),
        TableColumn("difference", numeric=True),
        "moves it",
    ]
    return ResultTable.of(f"{one.scorer.name}, by level", head, rows, [ABOUT])


def as_json(
    design: SensitivityDesign, board: Board, found: Sequence[ScorerSensitivity]
) -> dict[str, Any]:
    """Return all of it as plain data."""
    variants = {}
    for name, level in design.levels.items():
        about = {"factor": level.factor, "level": level.text, **level.settings}
        variants[name] = about
    return {
        "system": design.system,
        "model": design.model,
        "weights": board.weights,
        "warnings": board.warnings,
        "queries": board.n,
        "seeds": board.rounds,
        "reference": dict(design.reference),
        "variants": variants,
        "remarks": [*design.remarks],
        "scorers": [one.as_json for one in found],
    }
