"""Pairs of documents as a plan of the engine, without Ray."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pairwise_helpers import document, sample
from trial import filled

from benchmarks.studies.pairwise.match import (
    judgement_of,
    matchups,
    plan_of,
    wording_digest,
)
from benchmarks.tasks.published import as_asked
from cluster.counts import totals_of
from cluster.plan import Plan, compared, lookup_in
from cluster.store import Store
from generators.base import Failure, Fault, Kind, Result, Skip, StageSpec, Unscored
from generators.document import Document, Malformed
from generators.system import System
from scorers.pairwise import resolve_protocol
from scorers.pairwise.games import Judgement, ReplyReading, Verdict
from scorers.pairwise.matchup import Matchup, PairwiseJudge, mean_preference

CHAT = StageSpec(name="judge", kind=Kind.DRAFT, target="comparing_helpers:Longest")
SAMPLES = [
    sample("plain", id="q0"),
    sample("!mute", id="q1"),
    sample("!refuse", id="q2"),
    Malformed(id="row-3", row=3, reason="row 3: duplicate id"),
    sample("unanswered", id="q4"),
]


def given(name: str, text: str, *ids: str) -> System:
    answers: dict[str, Document | Skip] = {i: document(text) for i in ids}
    return System(name=name, draft=None, answers=answers)


def plan(repeats: int = 1) -> Plan:
    systems = [
        given("a", "one", "q0", "q1", "q2", "q4"),
        given("b", "one " * 9, "q0", "q1", "q2"),
    ]
    return Plan(
        systems=systems, samples=SAMPLES, scorers=(), prompt=as_asked, repeats=repeats
    )


def matchups_of(
    root: Path, pair: tuple[str, str] = ("a", "b"), repeats: int = 1
) -> list[Matchup]:
    run_plan = plan(repeats)
    systems = {s.name: s for s in run_plan.systems}
    return list(matchups(run_plan, systems, [pair], Store(root)))


def referee(chat: StageSpec = CHAT, repeats: int = 1) -> PairwiseJudge:
    protocol = resolve_protocol("creation")
    return PairwiseJudge(protocol=protocol, chat=chat, seed=0, repeats=repeats)


def keys(pair_plan: Plan) -> set[str]:
    """Of everything that is asked."""
    job_keys = set()
    for walk in pair_plan.walks():
        try:
            job_keys |= {job.key for job in next(walk)}
        except StopIteration:
            continue
    return job_keys


def test_a_duel_says_why_there_is_nothing_to_compare(tmp_path: Path) -> None:
    pairs = [d.pair for d in matchups_of(tmp_path)]
    assert [type(p) for p in pairs] == [Result, Result, Result, Failure, Skip]
    assert pairs[3] == Failure("a: row 3: duplicate id")
    assert pairs[4] == Skip("b: no answer is given for it")
    stage = StageSpec(name="w", kind=Kind.DRAFT, target="comparing_helpers:Writer")
    run_plan = replace(
        plan(), systems=[given("a", "x", "q0"), System(name="c", draft=stage)]
    )
    (first, *_) = matchups(
        run_plan, {s.name: s for s in run_plan.systems}, [("a", "c")], Store(tmp_path)
    )
    assert first.pair == Skip("c: has not answered yet")


def test_a_pair_named_the_other_way_round_asks_the_same(tmp_path: Path) -> None:
    forward = keys(plan_of(matchups_of(tmp_path), referee(), 1))
    backward = keys(plan_of(matchups_of(tmp_path, ("b", "a")), referee(), 1))
    assert forward == backward
    assert len(forward) == 3 * 2


def test_the_engine_counts_replies_that_say_nothing(tmp_path: Path) -> None:
    matched = matchups_of(tmp_path)
    pair_plan = plan_of(matched, referee(), 1)
    totals = totals_of(list(compared(pair_plan, filled(pair_plan, tmp_path))))
    assert (totals["done"], totals["skipped"]) == (3, 1)
    assert (totals["scored"], totals["unscored"], totals["failed_scores"]) == (1, 1, 1)
    lookup = lookup_in(Store(tmp_path))
    outcomes = [judgement_of(m, referee(), 0, lookup) for m in matched]
    assert [type(o) for o in outcomes] == [Result, Result, Result, Failure, Skip]
    table = referee().protocol.aggregate(
        [m.game(o, referee().protocol) for m, o in zip(matched, outcomes, strict=True)]
    )
    row = table.rows[0]
    assert row.values["reward"].value == 100
    assert {
        n: row.counts[n] for n in ("questions", "unjudged", "read", "unread", "failed")
    } == {
        "questions": 5,
        "unjudged": 2,
        "read": 2,
        "unread": 2,
        "failed": 2,
    }
    unasked = judgement_of(matched[0], referee(), 0, lookup_in(Store(tmp_path / "empty")))
    assert unasked == Skip("not judged yet")


def test_one_failed_reply_makes_the_judgement_a_failure() -> None:
    """Else the command would end as if nothing had failed."""
    refused = Failure("will not judge", Fault.REFUSED)

    def score(*outcomes: Any) -> Any:
        readings = (
            ReplyReading("preference", swapped, outcome)
            for swapped, outcome in zip((False, True), outcomes, strict=True)
        )
        return mean_preference(Judgement(tuple(readings)))

    better, unread = Result(Verdict("A>>B", 2)), Unscored("?")
    assert score(better, refused) == refused
    assert score(unread, unread) == unread
    assert score(better, unread) == Result(-2.0)
    assert score(better, Result(Verdict("B>A", -1))) == Result(-1.5)
    assert score(better, Result(Verdict("A=B", 0))) == Result(-1.0)


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("creation", "37bb2832c5cf"),
        ("mllm-bench", "0760ae7b4766"),
        ("probench", "9f0ac2205147"),
    ],
)
def test_a_wording_keeps_its_name_wherever_its_class_is(name: str, digest: str) -> None:
    """Judgements that were written down are found by it."""
    assert wording_digest(resolve_protocol(name)) == digest
