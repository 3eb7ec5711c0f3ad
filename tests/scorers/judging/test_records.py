"""Judgements as records, on Ray: what is asked once is not asked again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from contents import document
from judging_helpers import chat_spec, judge_of, picture, sample
from trial import LIGHT, run

from plait.cluster.plan import Plan, evaluations
from plait.cluster.store import Store
from plait.generators.document import Document
from plait.generators.given import GivenAnswers
from plait.scorers.judging.judge import RubricJudge
from plait.scorers.judging.mmie import Corrected
from plait.scorers.judging.rubrics import OWN, Rubric

pytestmark = pytest.mark.contract

ORACLE = chat_spec(name="oracle", target="judging_helpers:Oracle", placement=LIGHT)
SAMPLES = [sample(f"{kind}-{i}") for kind in ("SA", "PBL", "MSR") for i in range(3)]
SAYS = ["good", "!late good good", "!mute"]
FOLLOW_UPS = 2
"""Of each three answers, one is read at the second attempt and one never."""


def answers(word: str) -> dict[str, Document]:
    return {
        s.id: document(f"{word} {SAYS[i % 3]}", picture(word))
        for i, s in enumerate(SAMPLES)
    }


def plan_of(judge: RubricJudge, *words: str) -> Plan:
    systems = [GivenAnswers(name=w, answers=answers(w)) for w in words]
    return Plan(systems=systems, queries=SAMPLES, scorers=[judge], prompt=None)


def scores(plan: Plan, root: Any) -> list[Any]:
    outcomes = [e for e in evaluations(plan, Store(root)) if e.complete]
    raw = [getattr(e.scores["judge:chatty"], "value", None) for e in outcomes]
    return [score and score.parts["raw"] for score in raw]


class Hasty(Corrected):
    """A later reader, which takes any reply for the highest score."""

    def read(self, reply: str, rubric: Rubric) -> Any:
        return super().read("### Score\n6", rubric)


@pytest.mark.usefixtures("worker_threads")
def test_nothing_is_judged_twice(tmp_path):
    judge = judge_of(ORACLE)
    first = run(plan_of(judge, "one"), tmp_path)
    assert first.made == 3 * (3 + FOLLOW_UPS)
    assert (first.counts["scored"], first.counts["unscored"]) == (6, 3)
    assert scores(plan_of(judge, "one"), tmp_path) == [2, 3, None] * 3

    assert run(plan_of(judge, "one"), tmp_path).made == 0
    assert run(plan_of(judge, "one", "two"), tmp_path).made == 3 * (3 + FOLLOW_UPS)

    hasty = replace(judge, examiner=Hasty(OWN))
    assert run(plan_of(hasty, "one", "two"), tmp_path).made == 0
    assert scores(plan_of(hasty, "one"), tmp_path) == [6] * 9

    wording = OWN["SA"].template.replace("story", "tale", 1)
    reworded = Corrected(dict(OWN) | {"SA": replace(OWN["SA"], template=wording)})
    again = run(plan_of(replace(judge, examiner=reworded), "one"), tmp_path)
    assert again.made == 3 + FOLLOW_UPS
