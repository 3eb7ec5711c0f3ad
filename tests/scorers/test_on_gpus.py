"""On a GPU, scorers give the scores of the CPU, with no tensor left behind (`fake_gpu`)."""

from __future__ import annotations

from typing import Any

import pytest
from clipscore_helpers import candidate, picture
from contents import query_of
from fake_gpu import fake_gpus
from stages import StagesHere

from plait.cluster.walks import drive
from plait.generators.base import Result
from plait.scorers import resolve_scorer

pytestmark = pytest.mark.models


@pytest.mark.parametrize("name", ["clipscore", "consistency", "judge:mmie-score"])
def test_a_gpu_scores_as_the_cpu_does(name: str) -> None:
    limits = {"max_new_tokens": 24} if name.startswith("judge:") else {}

    def judged() -> Any:
        scorer = resolve_scorer(name, "tiny", limits)
        query = query_of("What is it?", picture(0))
        answer = candidate("a red barn", picture(1), "two cats", picture(2)).document
        return drive(scorer.judge(query, answer), StagesHere().outcomes)

    expected = judged()
    with fake_gpus():
        made = judged()
    assert type(made) is type(expected)
    if isinstance(expected, Result):
        assert made.value.value == pytest.approx(expected.value.value, abs=1e-6)
    else:
        assert made == expected
