"""What becomes of judges' replies: readings, second questions, seeds and records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pairwise_helpers import (
    CHAT,
    ONE,
    OTHER,
    PICTURE,
    draft_of,
    flat,
    sample,
    walked,
)

from generators.base import Failure, Fault, Outcome, Result, Skip, Unscored, Walk
from generators.document import Text, Turn
from scorers.pairwise import (
    PROTOCOLS,
    creation,
    resolve_protocol,
)
from scorers.pairwise.games import Verdict
from scorers.pairwise.protocol import most_questions


def conversed(walk: Walk[Any], *rounds: Sequence[Outcome[Any]]) -> tuple[list[Any], Any]:
    """The jobs of each step of a walk, and its outcome on these rounds of replies."""
    questions, given = [next(walk)], iter(rounds)
    try:
        while True:
            questions.append(walk.send(list(next(given))))
    except StopIteration as stop:
        assert not list(given)
        return questions, stop.value


TIMEOUT = Failure("no reply", Fault.TIMEOUT)
FACTS = sample("See", metadata={creation.FACTUALITY: "a red hat"})
HALF_READ = [draft_of("[[A>B]]"), draft_of("well"), TIMEOUT, draft_of("none")]


def test_replies_become_readings_and_keep_their_outcomes() -> None:
    protocol = resolve_protocol("creation", "official")
    replies = [draft_of("Final Verdict is: [[A>B]]"), *HALF_READ[1:]]
    jobs, outcome = walked(protocol.judge(FACTS, ONE, OTHER, CHAT), replies)
    assert [j.input.turns for j in jobs] == [
        a.turns for a in protocol.requests(FACTS, ONE, OTHER)
    ]
    assert isinstance(outcome, Result)
    result = [r.outcome for r in outcome.value.readings]
    assert result[0] == Result(Verdict("A>B", 1))
    assert isinstance(result[1], Unscored)
    assert result[2] == TIMEOUT
    assert isinstance(result[3], Unscored)
    assert outcome.value.verdict(swapped=True) is None


def test_what_cannot_be_read_is_asked_for_once_more() -> None:
    protocol = resolve_protocol("creation")
    asks = protocol.requests(FACTS, ONE, OTHER)
    walk = protocol.judge(FACTS, ONE, OTHER, CHAT)
    rounds = (HALF_READ, [draft_of("[[B>A]]"), draft_of("none")])
    (first, again), outcome = conversed(walk, *rounds)
    assert [j.input.turns for j in first] == [a.turns for a in asks]
    assert len(again) == 2, "what was read or failed is not asked for again"
    for job, i, reply in zip(again, (1, 3), ("well", "none"), strict=True):
        *before, their, ours = job.input.turns
        assert tuple(before) == asks[i].turns
        assert their == Turn("assistant", (Text(reply),))
        assert ours.role == "user"
        assert job.group == first[i].group
    assert "no verdict" in flat(again[0].input.turns[-1].content)
    assert "[[A>>B]]" in flat(again[0].input.turns[-1].content)
    assert "score of response A" in flat(again[1].input.turns[-1].content)
    assert "Response B Visual Factuality Score: Y/10" in flat(
        again[1].input.turns[-1].content
    )
    result = [r.outcome for r in outcome.value.readings]
    assert result[:3] == [Result(Verdict("A>B", 1)), Result(Verdict("B>A", -1)), TIMEOUT]
    assert isinstance(result[3], Unscored)
    assert [r.swapped for r in outcome.value.readings] == [False, True, False, True]


@pytest.mark.parametrize(
    ("name", "unread", "expected"),
    [
        ("mllm-bench", "no vote", 3),
        ("probench", "no verdict", 3),
        ("probench", "[[A>B]] or [[B>A]]", 1),
        ("probench", "[[B=A]]", 1),
        ("creation", "no verdict", 1),
    ],
)
def test_official_mode_asks_as_often_as_the_released_program(
    name: str, unread: str, expected: int
) -> None:
    """`--max_retry 3` of MLLM-Bench, `range(3)` of ProBench after a reply without any."""
    protocol, chat = resolve_protocol(name, "official"), replace(CHAT, seeded=True)
    replies = [[draft_of(unread)] * 2] * expected
    steps, outcome = conversed(protocol.judge(sample("See"), ONE, OTHER, chat), *replies)
    assert [[j.input.turns for j in jobs] for jobs in steps] == [
        [j.input.turns for j in steps[0]]
    ] * expected
    assert len({j.key for jobs in steps for j in jobs}) == 2 * expected
    assert all(isinstance(r.outcome, Unscored) for r in outcome.value.readings)
    assert most_questions(protocol) >= 1 + 2 * (expected - 1)
    # A greedy judge would say the same again.
    steps, _ = conversed(protocol.judge(sample("See"), ONE, OTHER, CHAT), replies[0])
    assert len(steps) == 1


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_pair_named_the_other_way_asks_for_the_same_records(
    name: str, seeded: bool
) -> None:
    protocol, chat = resolve_protocol(name), replace(CHAT, seeded=seeded)
    query = sample("See", PICTURE)
    keys = []
    for first, second in ((ONE, OTHER), (OTHER, ONE)):
        jobs, _ = walked(protocol.judge(query, first, second, chat), [Skip("-")] * 2)
        keys.append({job.key for job in jobs})
    assert keys[0] == keys[1]
    assert len(keys[0]) == 2
    jobs, _ = walked(protocol.judge(query, ONE, OTHER, chat, repeat=1), [Skip("-")] * 2)
    assert ({job.key for job in jobs} == keys[0]) is not seeded
