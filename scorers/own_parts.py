"""Parts that a user's own scorer returns: `{"layout": 7, "style": 9}` in place of a score.

The class says on which scales they are:

    parts = {"layout": "0-10", "style": {"scale": "yes/no", "weight": 2}}

Their weighted mean is the score, unless the class has a method `score_of(parts)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plait.generators.base import Failure, Fault, Outcome, Result
from plait.generators.document import Score
from plait.generators.names import validate
from plait.scorers.base import bounds
from plait.scorers.weighted import WeightedPart, common_scale, weighted_mean

SCORE_OF = "score_of"
_EXAMPLE = "parts = {'layout': '0-10', 'style': '0-10'}"


def parts_of_class(cls: Any, whose: str) -> dict[str, WeightedPart]:
    """Return the parts that a class declares; UsageError for wrong scales and weights.

    Empty where its attribute `parts` is none, or is about something else.
    """
    declared = getattr(cls, "parts", None)
    if not isinstance(declared, Mapping):
        return {}
    if not all(isinstance(name, str) for name in declared):
        return {}
    parts = {}
    for name, value in declared.items():
        table = value if isinstance(value, Mapping) else {"scale": value}
        parts[name] = validate(WeightedPart, table, f"part {name!r} of {whose}")
    return parts


def scale_of_parts(cls: Any, parts: Mapping[str, WeightedPart]) -> str | None:
    """Return the scale of the mean of a class's parts; None where it makes no mean."""
    return None if not parts or hasattr(cls, SCORE_OF) else common_scale(parts.values())


def with_scores(stage: Any, returned: Any) -> Any:
    """Return what a stage returned, each mapping of parts as their score.

    One that lacks a part, or has another, or a value beyond its scale, is a Failure.
    """
    if not isinstance(returned, list | tuple) or not any(map(_parts_in, returned)):
        return returned
    cls = type(stage)
    parts = parts_of_class(cls, cls.__name__)
    declared = str(getattr(cls, "scale", ""))
    scale = declared if bounds(declared) else common_scale(parts.values())
    return [_score(stage, parts, scale, one) for one in returned]


def _parts_in(returned: Any) -> Mapping[Any, Any] | None:
    """Return the parts that stand in place of a score; None where there are none."""
    value = returned.value if isinstance(returned, Result) else returned
    return value if isinstance(value, Mapping) else None


def _score(
    stage: Any, parts: Mapping[str, WeightedPart], scale: str, returned: Any
) -> Outcome[Score] | Any:
    """Return what was returned for one input, parts as their score."""
    if (said := _parts_in(returned)) is None:
        return returned
    name = type(stage).__name__
    if problem := _problem(parts, said):
        return Failure(f"{name} returned {dict(said)!r}: {problem}", Fault.ERROR)
    values = {part: float(said[part]) for part in parts}
    own = getattr(stage, SCORE_OF, None)
    number = float(own(values)) if own else weighted_mean(parts, values, scale)
    score = Score(number, {"criteria": values})
    return replace(returned, value=score) if isinstance(returned, Result) else Result(score)


def _problem(parts: Mapping[str, WeightedPart], said: Mapping[Any, Any]) -> str:
    """Return what is wrong with parts, by those that are declared; empty for nothing."""
    if not parts:
        return f"the class declares no parts; add a line such as {_EXAMPLE}"
    if said.keys() != parts.keys():
        return f"the parts that the class declares are {', '.join(map(repr, parts))}"
    for name, part in parts.items():
        value = said[name]
        low, high = part.ends
        try:
            within = math.isfinite(value) and low <= value <= high
        except TypeError:
            within = False
        if not within:
            return f"{name!r} is no number on the declared scale {part.scale}"
    return ""
