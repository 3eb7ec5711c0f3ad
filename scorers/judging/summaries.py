"""What released programs print of all scores of a system, which averages in its own way.

`Scorer.released_summary` says whose summary stands beside a judge's means.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

from plait.scorers.judging.rubrics import ASPECT_TOP, ASPECTS, KINDS, TOP, kind_of

OVERALL = "Overall"
"""The mean of all aspects, as OpenING's released summary names it."""
AVERAGE = "Average"
"""The mean of all tracks, as SpecV's README names it."""
GEDIT_GROUPS = (
    *("background_change", "color_alter", "material_alter", "motion_change", "ps_human"),
    *("style_change", "subject-add", "subject-remove", "subject-replace", "text_change"),
    "tone_transfer",
)
"""GEdit's types of edit, over which its program averages."""
GEDIT_LANGUAGES = ("en", "cn")
GEDIT_INTERSECTION = ", intersection"
"""What the field of a query ends with that all models of the paper would answer."""
UNISON_MEASURES = ("Und.", "Gen.", "Uni.")
"""What Unison's judge gives a session: understanding, generation, and both."""


@dataclass(frozen=True, slots=True)
class Averages:
    """What MMIE's released scorer prints, on the raw scale of 0 to 6."""

    n: int
    """Scores that could be read."""
    average: float | None
    """Over all of them (a micro average), rounded to 3 decimals."""
    kinds: Mapping[str, float | None]
    """By SA, PBL and MSR, rounded likewise."""


def averages(scores: Iterable[tuple[str, float]]) -> Averages:
    """main.py's last lines (MMIE), for (query id, raw score of 0 to 6)."""
    # Imported here: planning a run needs no numpy.
    import numpy as np

    def average(values: list[float]) -> float | None:
        return float(np.round(np.mean(values), 3)) if values else None

    pairs = list(scores)
    kinds = {}
    for kind in KINDS:
        kinds[kind] = average([score for id, score in pairs if kind_of(id) == kind])
    return Averages(len(pairs), average([score for _, score in pairs]), kinds)


def mmie_summary(scores: Iterable[tuple[str, float]]) -> dict[str, float | None]:
    """Return n, the averages of (query id, raw score of 0 to 6), and the percent.

    The paper's authors divide the average by 6 (MMIE, issue 10 of the repository).
    """
    raw = averages(scores)
    percent = None if raw.average is None else round(raw.average / TOP * 100, 2)
    return {"n": raw.n, "average": raw.average, "percent": percent, **raw.kinds}


def official_summary(scores: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the mean of each aspect's scores and `OVERALL`, as summarize_GPT_scores.py.

    Both are rounded to 2 decimals, the second being the mean of rounded ones.
    """
    several: dict[str, list[float]] = {}
    for name, score in scores:
        several.setdefault(name, []).append(score)
    summary = {name: round(sum(own) / len(own), 2) for name, own in several.items()}
    if summary:
        summary[OVERALL] = round(sum(summary.values()) / len(summary), 2)
    return summary


def opening_summary(shares: Iterable[tuple[str, float]]) -> dict[str, float | None]:
    """Return the summary of (aspect, share of its highest score): what was asked for.

    None for an aspect without scores. Others, which replies may hold, count in `OVERALL`.
    """
    means = official_summary((name, ASPECT_TOP * share) for name, share in shares)
    return {name: means.get(name) for name in (*ASPECTS, OVERALL)}


def specv_summary(
    dimensions: Mapping[str, Collection[str]], scores: Iterable[tuple[str, float]]
) -> dict[str, float | None]:
    """Return the mean of each track, as its score_and_rank.py, and the mean of the tracks.

    `dimensions` are those of the tracks that the system was run on, and of others none;
    `scores` are of (dimension, score). Means are rounded to 2 decimals, that of a dimension
    in which nothing was judged is 0. The mean of tracks, for which there is no program, is
    None where one of them was not run.
    """
    several: dict[str, list[float]] = {}
    for name, score in scores:
        several.setdefault(name, []).append(score)
    summary: dict[str, float | None] = {}
    for track, names in dimensions.items():
        means: list[float] = []
        for name in names:
            own = several.get(name, [])
            means.append(round(sum(own) / len(own), 2) if own else 0.0)
        summary[track] = round(sum(means) / len(means), 2) if means else None
    tracks = [mean for mean in summary.values() if mean is not None]
    whole = len(tracks) == len(summary) > 0
    summary[AVERAGE] = round(sum(tracks) / len(tracks), 2) if whole else None
    return summary


class GeditValue(NamedTuple):
    """One number of a judgement on an edit."""

    field: str
    """The language, with GEDIT_INTERSECTION or without."""
    group: str
    measure: str
    value: float


def gedit_summary(values: Iterable[GeditValue]) -> dict[str, float | None]:
    """Return what calculate_statistics.py prints last, by language and measure.

    Each is the mean of the means of GEDIT_GROUPS, rounded to 3 decimals, of all queries and
    of the intersection; None while a group has no score, where that program prints nan. A
    language without any score is left out.
    """
    several: dict[tuple[str, str], dict[str, list[float]]] = {}
    for one in values:
        language = one.field.removesuffix(GEDIT_INTERSECTION)
        sets = dict.fromkeys((language, one.field))
        for name in (language, f"{language}{GEDIT_INTERSECTION}"):
            own = several.setdefault((name, one.measure), {})
            if name in sets:
                own.setdefault(one.group, []).append(one.value)
    summary: dict[str, float | None] = {}
    for (name, measure), groups in several.items():
        whole = all(group in groups for group in GEDIT_GROUPS)
        means = [sum(own) / len(own) for own in groups.values()] if whole else []
        mean = round(sum(means) / len(means), 3) if means else None
        summary[f"{name}: {measure}"] = mean
    return summary


def imgedit_summary(
    types: Iterable[str], scores: Iterable[tuple[str, float]]
) -> dict[str, float | None]:
    """Return the mean of (type, score) of each type, as step2_typescore.py rounds it.

    None for one of `types` without a score, which that program leaves out.
    """
    several: dict[str, list[float]] = {}
    for name, score in scores:
        several.setdefault(name, []).append(score)
    summary: dict[str, float | None] = {}
    for name in types:
        own = several.get(name)
        summary[name] = round(sum(own) / len(own), 2) if own else None
    return summary


class ImugValue(NamedTuple):
    """A criterion of a judgement on a session: mostly the value of one turn."""

    group: str
    """The class."""
    criterion: str
    """`turn 2 (image)`; others are left out."""
    value: float
    """From 0 to 1."""


_IMUG_TURN = re.compile(r"(turn \d+) \((text|image)\)")


def imug_summary(values: Iterable[ImugValue]) -> dict[str, float | None]:
    """Return the means over turns as summarize_results.py: all, and by modality.

    Then the same of each class and of each turn, all in percent and rounded to 2 decimals;
    None where there are none.
    """
    several: dict[tuple[str, str], list[float]] = {}
    for one in values:
        turn = _IMUG_TURN.fullmatch(one.criterion)
        if turn is None:
            continue
        for group in ("", one.group, turn[1]):
            for modality in ("all", turn[2]):
                several.setdefault((group, modality), []).append(one.value * 100)
    groups = dict.fromkeys(group for group, _ in several) or {"": None}
    summary: dict[str, float | None] = {}
    for group in sorted(groups):
        for modality in ("all", "text", "image"):
            own = several.get((group, modality))
            name = f"{group}: {modality}" if group else modality
            summary[name] = round(sum(own) / len(own), 2) if own else None
    return summary


class UnisonValue(NamedTuple):
    """One number of a judgement on a session."""

    task: str
    measure: str
    value: float
    """From 0 to 1."""


def unison_summary(
    tasks: Iterable[str], values: Iterable[UnisonValue]
) -> dict[str, float | None]:
    """Return the mean of each measure by task, and OVERALL, as aggregate_results.py does.

    Means are rounded to 6 decimals; None for a task without values. The last is the mean of
    what the other tasks have of the last measure.
    """
    several: dict[tuple[str, str], list[float]] = {}
    for one in values:
        several.setdefault((one.task, one.measure), []).append(one.value)
    summary: dict[str, float | None] = {}
    unified: list[float] = []
    for task in tasks:
        for measure in UNISON_MEASURES:
            own = several.get((task, measure))
            found = round(mean(own), 6) if own else None
            summary[f"{task}: {measure}"] = found
            if found is not None and measure == UNISON_MEASURES[-1]:
                unified.append(found)
    summary[OVERALL] = round(mean(unified), 6) if unified else None
    return summary
