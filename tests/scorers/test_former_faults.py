"""What was wrong with former versions of a scorer is known by its name alone."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from paths import CHECKOUT

from plait.generators.catalogue import Named, by_name
from plait.scorers import former_faults, resolve_scorer

JUDGE = "judge:mmie-score"
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in (*by_name(Named.SCORER), JUDGE)),
    ("known-answer", {"mode": "official"}),
    ("clipscore", {"processor": "transformers"}),
    ("pickscore", {"processor": "open_clip"}),
]
FAULTY = {("known-answer", 0), ("pickscore", 0), ("clipscore", 1)}
"""Names of CASES, and how many settings are given."""


@pytest.mark.parametrize(("name", "given"), CASES)
def test_they_are_those_of_the_resolved_scorer(name: str, given: dict[str, Any]) -> None:
    scorer = resolve_scorer(name, "tiny", given)
    found = former_faults(name, scorer.stage.settings)
    assert found == scorer.stage.superseded
    assert list(found) == ([1] if (name, len(given)) in FAULTY else [])
    others = [stage for stage in scorer.stages if stage is not scorer.stage]
    assert all(not stage.superseded for stage in others)


def test_settings_of_other_versions_and_scorers_of_others_are_no_error() -> None:
    stage = resolve_scorer("pickscore", "tiny", {}).stage
    assert former_faults("pickscore", {"former": 1}) == stage.superseded != {}
    for name in ("mine:Scorer", "judge:gpt-6", "vqascore:qwen2-vl-7b", "former"):
        assert former_faults(name, {"mode": "official"}) == {}


@pytest.mark.processes
def test_no_model_code_is_imported() -> None:
    code = (
        "import sys\n"
        "from plait.generators.catalogue import Named, by_name\n"
        "from plait.scorers import former_faults\n"
        f"for name in (*by_name(Named.SCORER), {JUDGE!r}, 'absent_module:Scorer'):\n"
        "    former_faults(name, {})\n"
        "assert not {'torch', 'transformers', 'open_clip', 'ray'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
