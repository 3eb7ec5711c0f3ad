"""The forecast on the command line: `plan` shows it, `run` keeps it and compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_helpers import manifest, plait

from plait.api import plan

PAIR = ("--data", "sample", "--weights", "tiny", "--system", "qwen2-vl-72b+sdxl-turbo")
PAIR = (*PAIR, "--set", "scorers=[]")

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of four queries, and what its command printed."""
    root = tmp_path_factory.mktemp("runs") / "small"
    done = plait("run", *PAIR, "--limit", "4", "--out", str(root))
    assert done.returncode == 0, done.stderr
    return root, done.stdout


def test_a_first_run_says_what_was_not_known_before(small: tuple[Path, str]) -> None:
    root, printed = small
    assert "forecast: not available" in printed
    assert ", took " not in printed
    kept = manifest(root)
    assert kept["forecast"]["lower_bound"]
    assert "qwen2-vl-72b" in kept["forecast"]["missing"][0]
    loads = kept["timing"]["load_seconds"] | kept["timing"]["takeover_seconds"]
    assert sorted(f.rpartition("-")[0] for f in loads) == ["qwen2-vl-72b", "sdxl-turbo"]
    assert kept["timing"]["seconds"] > kept["timing"]["scheduling_seconds"] > 0
    # Two of the four queries may be answered by text alone.
    assert 0.5 <= kept["pictures_per_document"]["qwen2-vl-72b+sdxl-turbo"] <= 1.0


def test_a_further_run_is_forecast_from_it_and_compared(small: tuple[Path, str]) -> None:
    root, _ = small
    before = manifest(root)
    words = ("--limit", "6", "--out", str(root))
    planned = plait("plan", *PAIR, *words).stdout
    assert "this run: 4 records of small" in planned
    assert "at least" not in planned
    done = plait("run", *PAIR, *words)
    assert done.returncode == 0, done.stderr
    assert ", took " not in done.stdout  # of a run of seconds
    kept = manifest(root)
    assert kept["forecast_outcome"]["seconds"] > 0
    written, drawn = (s["jobs"] for s in kept["forecast"]["stages"].values())
    assert written == 2
    assert drawn == 2 * before["pictures_per_document"]["qwen2-vl-72b+sdxl-turbo"]
    assert not kept["forecast"]["lower_bound"]
    assert len(next(iter(kept["timing"]["load_seconds"].values()))) == 2

    again = plait("run", *PAIR, *words)
    assert ", took " not in again.stdout
    assert manifest(root)["forecast_outcome"] == kept["forecast_outcome"]
    assert manifest(root)["timing"] == kept["timing"]


def test_a_budget_refuses_a_run_or_trims_it(small: tuple[Path, str]) -> None:
    root, _ = small
    new = ("--out", str(root.parent / "new"))
    refused = plait("run", *PAIR, *new, "--budget-hours", "0.0001")
    assert refused.returncode == 2
    assert "more than --budget-hours 0.0001" in refused.stderr
    assert not (root.parent / "new").exists()
    planned = plait("plan", *PAIR, *new, "--budget-hours", "0.0001")
    assert planned.returncode == 2
    first, refused_for, *_ = planned.stdout.splitlines()
    assert first.startswith("forecast: ")
    assert refused_for.startswith("over budget")
    options: Any = {"data": "sample", "weights": "tiny", "scorers": []}
    options |= {"systems": ["qwen2-vl-72b+sdxl-turbo"], "out": root.parent / "new"}
    hours = plan(**options, limit=20).forecast.hours.mean
    fitting = plait("plan", *PAIR, *new, "--budget-hours", f"{hours:.9f}", "--trim")
    assert fitting.returncode == 0, fitting.stdout
    assert "of 40 queries, drawn by category, to fit the budget" in fitting.stdout


def test_a_budget_without_rates_is_refused(tmp_path: Path) -> None:
    done = plait("run", *PAIR, "--out", str(tmp_path / "x"), "--budget-hours", "9")
    assert done.returncode == 2
    assert "seconds per record and load time of qwen2-vl-72b" in done.stderr
