"""Queueing, batching, bisection and blame, without Ray."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trial import LIGHT, writer

from plait.cluster.placement import Node, Resources, best_node, free_resources
from plait.cluster.stage_queue import (
    DEATHS_TO_QUARANTINE,
    MOST_UNREAD,
    Batch,
    StageQueue,
)
from plait.generators.base import Fault, Job, ServerCommand, WeightsName
from plait.generators.document import Request, Text, Turn


def job(text: str, group: str = "") -> Job:
    return Job(writer(), Request((Turn("user", (Text(text),)),)), text, group)


def queue(
    batch_size: int = 4, longest_first: bool = False, growing: bool = False
) -> StageQueue:
    placement = replace(LIGHT, batch_size=batch_size, longest_first=longest_first)
    queue = StageQueue(writer(placement), 0)
    queue.growing = growing
    return queue


def labels(batch: Batch | None) -> list[str]:
    assert batch is not None
    return [j.label for j in batch.jobs]


def test_a_busy_worker_waits_for_a_full_batch_while_the_queue_grows() -> None:
    p = queue(growing=True)
    for text in "abc":
        p.add(job(text))
    assert p.take(idle=False, workers=1) is None
    assert labels(p.take(idle=True, workers=1)) == ["a", "b", "c"]


def test_a_batch_that_is_not_full_waits_for_further_jobs() -> None:
    now = [100.0]
    p = StageQueue(writer(replace(LIGHT, batch_size=2)), 0, lambda: now[0])
    p.patience_s = 5.0
    p.add(job("a"))
    assert (p.take(idle=True, workers=1), p.rest_s) == (None, 5.0)
    now[0] += 3.0
    p.add(job("b"))
    assert p.rest_s == 0.0
    assert labels(p.take(idle=True, workers=1)) == ["a", "b"]
    p.add(job("c"))
    now[0] += 5.0
    assert labels(p.take(idle=True, workers=1)) == ["c"]


def test_the_last_records_are_shared_out_but_not_crumbled() -> None:
    p = queue(batch_size=8)
    for text in "abcdefghij":
        p.add(job(text))
    assert p.take(idle=False, workers=2) is None, "they go to who is idle first"
    sizes = []
    while (batch := p.take(idle=True, workers=2)) is not None:
        sizes.append(len(batch.jobs))
    assert sizes == [5, 4, 1]


def test_jobs_of_a_group_travel_together_the_longest_first() -> None:
    """What several systems answered to one question, however their answers came in."""
    p = queue(batch_size=3, longest_first=True)
    for system in ("x", "xxxx", "xx"):
        for question in "ab":
            p.add(job(system + question, group=question))
    batches = [labels(p.take(idle=True, workers=1)) for _ in range(2)]
    assert batches == [["xxxxa", "xxa", "xa"], ["xxxxb", "xxb", "xb"]]
    assert job("x", group="a").key == job("x", group="b").key


@given(
    st.integers(1, 33).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), max_size=4))
    )
)
def test_bisection_finds_exactly_the_poison(case: tuple[int, set[int]]) -> None:
    size, poison = case
    p = queue(batch_size=size)
    for i in range(size):
        p.add(job(str(i)))
    done, failed = set(), set()
    while (batch := p.take(idle=True, workers=1)) is not None:
        bad = [j for j in batch.jobs if int(j.label) in poison]
        if not bad:
            p.finish_batch()
            done |= {int(j.label) for j in batch.jobs}
            continue
        failed |= {int(j.label) for j, _ in p.batch_raised(batch, "RuntimeError: no")}
    assert failed == poison
    assert done == set(range(size)) - poison
    assert p.out == 0


@given(st.integers(1, 16), st.data())
def test_a_killer_is_found_and_everyone_else_is_done(
    size: int, data: st.DataObject
) -> None:
    killer = data.draw(st.integers(0, size - 1))
    p = queue(batch_size=size)
    for i in range(size):
        p.add(job(str(i)))
    done: list[int] = []
    set_aside = []
    deaths = 0
    while (batch := p.take(idle=True, workers=1)) is not None:
        names = [int(j.label) for j in batch.jobs]
        if killer in names:
            deaths += 1
            assert deaths < 20
            set_aside += p.worker_died(batch, "worker died", certain=batch.alone)
        else:
            done += names
    assert sorted(done) == [i for i in range(size) if i != killer]
    assert [j.label for j, _ in set_aside] == [str(killer)]
    assert set_aside[0][1].fault is Fault.DIED
    assert deaths >= DEATHS_TO_QUARANTINE


def test_suspects_go_only_to_a_worker_with_nothing_else() -> None:
    p = queue()
    p.worker_died(Batch((job("a"), job("b"))), "died", certain=False)
    for text in "cdefg":
        p.add(job(text))
    assert labels(p.take(idle=False, workers=1)) == ["c", "d", "e", "f"]
    suspects = p.take(idle=True, workers=1)
    assert suspects is not None
    assert suspects.alone


def test_requests_of_a_server_that_died_are_alone_only_after_a_second_death() -> None:
    own = replace(LIGHT, server=ServerCommand(name="x", argv=("x",)))
    p = StageQueue(writer(own), 0)
    for expected in (False, True):
        p.worker_died(Batch((job("a"),)), "died", certain=False)
        suspect = p.take(idle=True, workers=1)
        assert suspect is not None
        assert suspect.alone == expected


@pytest.mark.parametrize(
    ("replies", "weights", "unread"),
    [
        ({False: MOST_UNREAD}, "mini", True),
        ({False: MOST_UNREAD - 1}, "mini", False),
        ({False: 2 * MOST_UNREAD, True: 1}, "mini", False),
        ({False: MOST_UNREAD}, "tiny", False),
    ],
)
def test_judgements_alone_leave_the_queue_of_a_judge_that_cannot_be_read(
    replies: dict[bool, int], weights: WeightsName, unread: bool
) -> None:
    p = StageQueue(replace(writer(), weights=weights), 0)
    answers, judgements = [job("a"), job("b")], [job("c"), job("d")]
    asked = [replace(j, readable=lambda outcome: False) for j in judgements]
    p.add(answers[0])
    p.add(asked[0])
    p.put_back(Batch((answers[1], asked[1]), alone=True))
    p.replies.update(replies)
    assert p.unread() == (asked if unread else [])
    left = p.take(idle=True, workers=1)
    assert left is not None
    assert left.alone
    assert labels(left) == (["b"] if unread else ["b", "d"])


def test_needs_fit_or_do_not() -> None:
    node = Node("n", Resources(8.0, 2.0, 100.0))
    assert Resources(8, 2, 100).fits(node.total)
    assert not Resources(8.5, 0, 0).fits(node.total)
    assert not Resources(0, 3, 0).fits(node.total)
    room = free_resources(
        [node], [("n", Resources(0, 0.5)), ("n", Resources(0, 0.5)), ("gone", Resources(9))]
    )
    assert room["n"].gpus == 1.0


def test_the_fullest_fitting_node_is_chosen() -> None:
    room = {"wide": Resources(8, 8), "narrow": Resources(8, 1), "none": Resources(8, 0)}
    assert best_node(Resources(1, 1), room) == "narrow"
    assert best_node(Resources(1, 4), room) == "wide"
    assert best_node(Resources(1, 0), room) == "none"
    assert best_node(Resources(1, 9), room) is None
