"""Published agreement of judges with people, and of whom it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from judging_helpers import chat_spec

from plait.benchmarks.results.people import agreement_of, published_rows
from plait.generators.catalogue import Named, by_name, by_prefix
from plait.scorers.judging.resolve import resolve_judge
from plait.scorers.pairwise.mmrb2 import Mmrb2, Mmrb2Wording

NAME = "mmrb2:qwen3-vl-32b"


def judge(weights: Any = "pretrained", rubric: str = "plait") -> Any:
    stage = chat_spec(weights=weights)
    settings = {"baseline": "gt", "rubric": rubric}
    return resolve_judge(NAME, "tiny", settings, chat=lambda _: stage)


def test_a_judge_of_pairs_has_the_figures_of_its_model_in_the_published_wording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """README.md of MMRB2@7ff0552."""
    assert not list(agreement_of(judge()))
    wording = Mmrb2Wording("a", "b", "c", "d")
    monkeypatch.setattr(Mmrb2, "wording_in", classmethod(lambda cls, path: wording))
    released = f"official:{Path('anywhere')}"
    found = {f.split: f.value for f in agreement_of(judge(rubric=released))}
    assert found == {"t2i": 64.1, "edit": 67.3, "interleaved": 70.5, "reasoning": 56.6}
    assert not list(agreement_of(judge("tiny", released)))


def test_every_figure_is_of_something_that_has_a_name_and_states_its_source() -> None:
    plain = {*by_name(Named.SCORER), *(e.form for e in by_prefix(Named.SCORER).values())}
    asked = {f"mmrb2:{name}" for name in by_name(Named.LVLM)}
    rows = published_rows()
    assert len({row.judge for row in rows}) == len(rows)
    for row in rows:
        assert {*row.scorers} <= plain | asked, row
        assert "arXiv" in row.source
        assert any(c.isdigit() for c in row.figures)
