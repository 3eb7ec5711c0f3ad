"""The three categories and twelve fields of MMIE (paper Tables 1 and 10)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from plait.benchmarks.tasks.reading.rules import RowError, Rule

CATEGORIES: Mapping[str, int] = MappingProxyType({"SA": 5005, "PBL": 11482, "MSR": 3616})
"""Queries per category in the published set (Table 1), the weights of its averages."""
MMIE = "MMIE"
BENCHMARK = "benchmark"
"""Key under which rows in MMIE's format name the benchmark whose queries they are."""

FIELDS = (
    "Art",
    "EECS",
    "Education",
    "Finance",
    "Health",
    "Philosophy",
    "Sports",
    "Literature",
    "Mathematics",
    "Physics",
    "Coding",
    "Statistics",
)
"""In the order of Table 10: project-based learning, situational analysis, reasoning."""

_WRITTEN = {
    **{name.lower(): name for name in CATEGORIES},
    "situationalanalysis": "SA",
    "projectbasedlearning": "PBL",
    "multistepreasoning": "MSR",
}
_FIELDS = {name.lower(): name for name in FIELDS}


def benchmark_of(row: Any) -> str:
    """Return the benchmark that a row names; MMIE's own rows name nothing."""
    return str(row.get(BENCHMARK, MMIE)) if isinstance(row, Mapping) else MMIE


def weights_of(benchmarks: Iterable[str]) -> Mapping[str, int]:
    """Return the published numbers of queries, unless some are of another benchmark."""
    return CATEGORIES if set(benchmarks) <= {MMIE} else {}


def category_of(id: str, stated: Sequence[str]) -> str:
    """Return the category that the prefix of `id` names, checked against the stated ones.

    The strings in the published rows are not known to us, so a stated category that is not
    one of the three is ignored as long as the id has a prefix. Raises RowError where
    they disagree, and where neither can be read.
    """
    prefix, dash, _ = id.partition("-")
    named = {"id": prefix} if dash and prefix in CATEGORIES else {}
    for text in stated:
        known = _WRITTEN.get(re.sub(r"[^a-z]", "", text.lower()))
        if known:
            named[f"category {text!r}"] = known
    if not named:
        given = " / ".join(map(repr, stated)) or "not given"
        detail = f"the id begins with none of SA-, PBL-, MSR-, and the category is {given}"
        raise RowError(Rule.CATEGORY, detail)
    if len(set(named.values())) > 1:
        claims = ", ".join(f"{who} says {what}" for who, what in named.items())
        raise RowError(Rule.CATEGORY, claims)
    return next(iter(named.values()))


def field_of(stated: str) -> str:
    """Spell `stated` as the paper does; a field unknown to the paper is left unchanged."""
    name = stated.strip()
    return _FIELDS.get(name.lower(), name)
