"""How long a run's engine took to start and its workers to load, for later forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TIMING = "timing"
"""The manifest's entry,"""
LOADS, TAKEOVERS = "load_seconds", "takeover_seconds"
"""and what it holds of workers that became ready."""
_MOST_LOADS = 8
"""Loads of one stage that the manifest keeps, the latest ones."""

Loads = Mapping[str, Sequence[float]]
"""Seconds in which workers became ready, by the stage's folder."""


def timing(
    former: Mapping[str, Any],
    seconds: float,
    scheduling_s: float,
    loads: Loads,
    takeovers: Loads,
) -> dict[str, Any]:
    """The entry after a command of `seconds`, of which `scheduling_s` had workers.

    `loads` are of new processes, their start included; `takeovers` of processes that had
    hosted another stage. A command that started no worker leaves the entry as it is.
    """
    if not scheduling_s:
        return dict(former)
    return {
        "seconds": round(seconds, 3),
        "scheduling_seconds": round(scheduling_s, 3),
        LOADS: _latest(former.get(LOADS, {}), loads),
        TAKEOVERS: _latest(former.get(TAKEOVERS, {}), takeovers),
    }


def _latest(known: Loads, new: Loads) -> dict[str, list[float]]:
    merged = {f: [*known.get(f, ()), *new.get(f, ())] for f in sorted({*known, *new})}
    return {f: [round(s, 3) for s in all_[-_MOST_LOADS:]] for f, all_ in merged.items()}
