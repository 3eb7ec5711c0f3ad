"""The page of forecast jobs, from manifests made by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.runs.forecast.jobs import JOBS, page_of
from benchmarks.runs.forecast.rates import FigureRange


def manifest() -> dict[str, Any]:
    """Of a run whose second stage was loaded by the process of the first."""
    stage = {
        "jobs": 4.0,
        "seconds_per_record": asdict(FigureRange.exact(0.5)),
        "load_seconds": asdict(FigureRange.exact(2.0)),
        "origin": "this run",
    }
    return {
        "started": "2026-01-01T00:00:00Z",
        "forecast": {
            "seconds": asdict(FigureRange(10.0, 8.0, 12.0)),
            "lower_bound": False,
            "stages": {"write-1": stage, "draw-2": stage},
        },
        "forecast_outcome": {
            "seconds": 11.0,
            "stages": {"write-1": {"jobs": 4, "seconds_per_record": 0.25}},
        },
        "timing": {
            "load_seconds": {"write-1": [7, 9]},
            "takeover_seconds": {"draw-2": [3]},
        },
    }


def test_each_job_has_its_forecast_beside_what_came_of_it() -> None:
    page = page_of([manifest() for _ in JOBS])
    assert "| 10 s (8 s to 12 s) | 11 s | +10% | yes |" in page
    assert page.count("| write | 4 | 4 | 0.5 | 0.25 | 2 | 9 | this run |") == len(JOBS)


def test_the_load_of_a_stage_by_a_process_at_hand_is_told_as_well() -> None:
    page = page_of([manifest() for _ in JOBS])
    assert page.count("| draw | 4 | 0 | 0.5 | 0 | 2 | 3 | this run |") == len(JOBS)
