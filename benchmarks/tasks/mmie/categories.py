"""The three categories and twelve fields of MMIE (paper Tables 1 and 10)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from benchmarks.tasks.reading.rules import RowError, Rule

CATEGORIES: Mapping[str, int] = MappingProxyType({"SA": 5005, "PBL": 11482, "MSR": 3616})
"""Queries per category in the published set (Table 1), the weights of its averages."""

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

TITLES: Mapping[str, str] = MappingProxyType(
    {
        "SA": "Situational analysis",
        "PBL": "Project-based learning",
        "MSR": "Multi-step reasoning",
    }
)

_WRITTEN = {
    re.sub(r"[^a-z]", "", name.lower()): category
    for category, title in TITLES.items()
    for name in (category, title)
}
_FIELDS = {name.lower(): name for name in FIELDS}


def category_of(id: str, stated: Sequence[str]) -> str:
    """The category that the prefix of `id` names, checked against the stated ones.

    The strings in the published rows are not known to us, so a stated category that is not
    one of the three is ignored as long as the id has a prefix. Raises RowError where
    they disagree, and where neither can be read.
    """
    prefix = id.partition("-")[0]
    named = {"id": prefix} if prefix in CATEGORIES and "-" in id else {}
    for text in stated:
        if known := _WRITTEN.get(re.sub(r"[^a-z]", "", text.lower())):
            named[f"category {text!r}"] = known
    if not named:
        raise RowError(
            Rule.CATEGORY,
            f"the id begins with none of SA-, PBL-, MSR-, and the category is "
            f"{' / '.join(map(repr, stated)) or 'not given'}",
        )
    if len(set(named.values())) > 1:
        claims = ", ".join(f"{who} says {what}" for who, what in named.items())
        raise RowError(Rule.CATEGORY, claims)
    return next(iter(named.values()))


def field_of(stated: str) -> str:
    """`stated` as the paper spells it; a field unknown to the paper is left unchanged."""
    name = stated.strip()
    return _FIELDS.get(name.lower(), name)
