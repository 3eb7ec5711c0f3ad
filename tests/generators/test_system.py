"""Walks: what a system asks of which stage, without any stage being run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trial import Measuring, as_asked, painter, plan_of, sample, talk, writer

from cluster.counts import count
from cluster.store import Store
from cluster.walks import Pending, read, together
from generators.base import Failure, Job, Kind, Outcome, Result, Skip, StageSpec, Walk
from generators.document import (
    Document,
    Draft,
    Image,
    ImageRequest,
    Payload,
    Request,
    Text,
    Turn,
)
from generators.natives import NATIVE
from generators.system import Repetition, System, answer
from pipelines.composition import composite, protocol
from pipelines.systems import Models, resolve

REPETITION = Repetition(as_asked, seed=7)


def follow(walk: Walk[Any], stage: Callable[[Job], Outcome[Any]]) -> tuple[Any, list[Job]]:
    """Run a walk with `stage` answering every job."""
    asked: list[Job] = []

    def lookup(job: Job) -> Outcome[Any]:
        asked.append(job)
        return stage(job)

    return read(walk, lookup), asked


def drawing(job: Job) -> Outcome[Any]:
    if isinstance(job.input, Request):
        requests = (ImageRequest("one"), Text("between"), ImageRequest("two"))
        return Result(Draft((Text("start"), *requests)))
    assert isinstance(job.input, ImageRequest)
    return Result(Image.of(f"{job.input.prompt} {job.input.seed}".encode()))


def test_pictures_stand_where_they_were_asked_for() -> None:
    system = System(name="s", draft=writer(), render=painter())
    outcome, asked = follow(answer(system, sample(0), REPETITION), drawing)
    texts = [s.text if isinstance(s, Text) else s.read() for s in outcome.value.segments]
    seeds = [REPETITION.seed_at(sample(0), i) for i in range(2)]
    pictures = [f"{p} {s}".encode() for p, s in zip(("one", "two"), seeds, strict=True)]
    assert texts == ["start", pictures[0], "between", pictures[1]]
    assert [j.spec.kind for j in asked] == [Kind.DRAFT, Kind.RENDER, Kind.RENDER]


def test_pictures_that_came_with_the_answer_keep_their_places_and_numbers() -> None:
    ready = Image.of(b"drawn by the server")

    def half_drawn(job: Job) -> Outcome[Any]:
        if isinstance(job.input, Request):
            return Result(Draft((ready, Text("then"), ImageRequest("one"), ready)))
        return drawing(job)

    system = System(name="s", draft=writer(), render=painter(), rounds=2)
    outcome, asked = follow(answer(system, sample(0), REPETITION), half_drawn)
    seeds = [REPETITION.seed_at(sample(0), i) for i in (1, 4)]
    drawn = [Image.of(f"one {seed}".encode()) for seed in seeds]
    half = [(ready, Text("then"), image, ready) for image in drawn]
    assert outcome.value == Document((*half[0], *half[1]))
    second = [j.input for j in asked if isinstance(j.input, Request)][1]
    assert second.turns[-1] == Turn("assistant", half[0])


def test_a_system_that_would_drop_pictures_of_an_answer_fails_instead() -> None:
    def showing(job: Job) -> Outcome[Any]:
        return Result(Draft((Text("look"), Image.of(b"a"), Image.of(b"a"))))

    rule = protocol("mmie")
    system = composite("s", writer(), painter(), rule, ("w", "p"))
    outcome, asked = follow(answer(system, sample(0), REPETITION), showing)
    assert isinstance(outcome, Failure)
    assert "2 picture(s) of its own" in outcome.reason
    assert len(asked) == 1
    alone = System(name="s", draft=writer())
    outcome, _ = follow(answer(alone, sample(0), REPETITION), showing)
    assert len(outcome.value.images) == 2


def test_all_painters_of_a_row_start_from_the_same_noise() -> None:
    seeds = []
    for hue in (0, 1):
        system = System(name="s", draft=writer(), render=painter(hue))
        _, asked = follow(answer(system, sample(0), REPETITION), drawing)
        seeds.append([j.input.seed for j in asked if isinstance(j.input, ImageRequest)])
    assert seeds[0] == seeds[1]


def test_greedy_text_has_no_seed_and_sampled_text_has_one() -> None:
    for seeded in (False, True):
        system = System(name="s", draft=replace(writer(), seeded=seeded), render=painter())
        _, asked = follow(answer(system, sample(0), REPETITION), drawing)
        request = asked[0].input
        assert isinstance(request, Request)
        assert (request.seed is not None) is seeded


def test_sampled_text_of_every_round_has_a_seed_of_its_own() -> None:
    drafting = replace(writer(), seeded=True)
    system = System(name="s", draft=drafting, render=painter(), rounds=3)
    _, asked = follow(answer(system, sample(0), REPETITION), drawing)
    seeds = [j.input.seed for j in asked if isinstance(j.input, Request)]
    pictures = [j.input.seed for j in asked if isinstance(j.input, ImageRequest)]
    assert len(seeds) == 3
    assert len({*seeds, *pictures}) == 3 + 6


def test_a_failed_picture_fails_the_document_and_a_skip_skips_it() -> None:
    def second_fails(job: Job) -> Outcome[Any]:
        if isinstance(job.input, ImageRequest) and job.input.prompt == "two":
            return Failure("no memory")
        return drawing(job)

    system = System(name="s", draft=writer(), render=painter())
    outcome, _ = follow(answer(system, sample(0), REPETITION), second_fails)
    assert outcome == Failure("no memory")
    outcome, asked = follow(
        answer(system, sample(0), REPETITION), lambda _: Skip("one only")
    )
    assert outcome == Skip("one only")
    assert len(asked) == 1


def test_every_turn_is_answered_after_the_systems_own_answers() -> None:
    drafting = replace(writer(), seeded=True)
    system = System(name="s", draft=drafting, render=painter(), rounds=2)
    outcome, asked = follow(answer(system, talk(0), REPETITION), drawing)
    first, second = outcome.value.answers
    assert outcome.value.segments == first.segments + second.segments
    assert [len(a.segments) for a in (first, second)] == [8, 8]
    asks = [j.input for j in asked if isinstance(j.input, Request)]
    question, _, follow_up = talk(0).turns
    mine = Turn("assistant", first.segments)
    assert asks[0].turns == (question,)
    assert asks[2].turns == (question, mine, follow_up), "not the published answer"
    assert asks[3].turns == (
        question,
        mine,
        follow_up,
        Turn("assistant", second.segments[:4]),
    )
    seeds = [j.input.seed for j in asked]
    assert len(set(seeds)) == 4 + 8


def test_a_turn_that_fails_ends_the_conversation() -> None:
    def fails(job: Job) -> Outcome[Any]:
        long = isinstance(job.input, Request) and len(job.input.turns) > 1
        return Failure("too long") if long else drawing(job)

    system = System(name="s", draft=writer(), render=painter())
    outcome, asked = follow(answer(system, talk(0), REPETITION), fails)
    assert outcome == Failure("too long")
    assert len(asked) == 1 + 2 + 1


def test_answers_of_a_document() -> None:
    one, two, three = Text("one"), Text("two"), Text("three")
    talked = Document.of([(one, two), (), (three,)])
    assert talked.answers == (Document((one, two)), Document(), Document((three,)))
    assert talked.segments == (one, two, three)
    alone = Document.of([(one, two)])
    assert alone == Document((one, two)), "its name in keys is what it was"
    assert alone.answers == (alone,)
    assert Document().answers == (Document(),)


def test_conditioning_stands_between_draft_and_render() -> None:
    conditioner = StageSpec(name="c", kind=Kind.CONDITION, target="m:C")

    def stage(job: Job) -> Outcome[Any]:
        if job.spec.kind is Kind.CONDITION:
            assert isinstance(job.input, ImageRequest)
            assert job.input.seed is None
            return Result(Payload.of(f"matrix of {job.input.prompt}".encode()))
        if job.spec.kind is Kind.RENDER:
            assert isinstance(job.input, ImageRequest)
            assert job.input.prompt is None
            assert job.input.payload is not None
            return Result(Image.of(job.input.payload.read()))
        return drawing(job)

    system = System(name="s", draft=writer(), condition=conditioner, render=painter())
    outcome, _ = follow(answer(system, sample(0), REPETITION), stage)
    assert [i.read() for i in outcome.value.images] == [b"matrix of one", b"matrix of two"]


def asked_with(system: System, noise: bytes, text: str = "so") -> list[Job]:
    """The jobs of an answer in which every payload holds `noise`."""
    request = ImageRequest(payload=Payload.of(b"states" + noise))
    values: dict[Kind, Any] = {
        Kind.DRAFT: Draft((Text("first"), request, Text(text), request)),
        Kind.CONDITION: Payload.of(b"matrix" + noise),
        Kind.RENDER: Image.of(b"drawn" + noise),
    }
    walk = answer(system, sample(0), REPETITION)
    return follow(walk, lambda job: Result(values[job.spec.kind]))[1]


def keys_of(jobs: Sequence[Job]) -> list[str]:
    return [job.key for job in jobs]


@pytest.mark.parametrize("name", NATIVE)
def test_no_key_tells_the_last_digits_of_a_payload(name: str) -> None:
    system = resolve(name, Models(weights="tiny"))
    one, other = asked_with(system, b"1"), asked_with(system, b"2")
    assert keys_of(one) == keys_of(other)
    assert len({*keys_of(one)}) == len(one)
    # Keys of earlier versions did.
    assert one[-1].keys[1] != other[-1].keys[1]


def test_another_draft_has_other_pictures() -> None:
    """Of another version of its stage, or the same one with other text; not of a system."""
    system = System(name="s", draft=writer(), render=painter())
    pictures = keys_of(asked_with(system, b""))[1:]
    # Those of records already made.
    assert pictures == [
        "8e35d8326d1d433303f442d99c6c3b94",
        "4f4c77532661642d9729f6a1fe1b0771",
    ]
    assert keys_of(asked_with(replace(system, name="t"), b""))[1:] == pictures
    changed = replace(system, draft=replace(writer(), version=2))
    for other in (asked_with(changed, b""), asked_with(system, b"", text="therefore")):
        assert {*keys_of(other)}.isdisjoint(pictures)


def test_a_later_round_reads_the_document_so_far() -> None:
    system = System(name="s", draft=writer(), render=painter(), rounds=2)
    outcome, asked = follow(answer(system, sample(0), REPETITION), drawing)
    requests = [j.input for j in asked if isinstance(j.input, Request)]
    assert requests[0].turns == sample(0).turns
    assert requests[1].turns[-1].role == "assistant"
    assert requests[1].turns[-1].content == outcome.value.segments[:4]
    seeds = [j.input.seed for j in asked if isinstance(j.input, ImageRequest)]
    assert len(set(seeds)) == 4


def test_the_ground_truth_is_a_system_without_stages() -> None:
    truth = Document((Text("the answer"),))
    system = System(name="gt", draft=None)
    known = replace(sample(0), reference=truth)
    assert read(answer(system, known, REPETITION), lambda _: None) == Result(truth)
    assert isinstance(read(answer(system, sample(0), REPETITION), lambda _: None), Skip)


def test_walks_side_by_side_share_their_steps() -> None:
    def steps(name: str, number: int) -> Walk[str]:
        for i in range(number):
            yield [Job(writer(), Request((), seed=i), name)]
        return Result(name)

    batches = []
    walk = together([steps("a", 1), steps("b", 3), steps("c", 0)])
    jobs = next(walk)
    ended: list[Any] = []
    while not ended:
        batches.append([j.label for j in jobs])
        try:
            jobs = walk.send([Result(None)] * len(jobs))
        except StopIteration as stop:
            ended = [o.value for o in stop.value]
    assert ended == ["a", "b", "c"]
    assert batches == [["a", "b"], ["b"], ["b"]]


def test_a_walk_stands_still_at_the_first_unknown_job() -> None:
    system = System(name="s", draft=writer(), render=painter())
    found = read(answer(system, sample(0), REPETITION), lambda _: None)
    assert isinstance(found, Pending)
    assert [j.spec.kind for j in found.missing] == [Kind.DRAFT]


def test_a_plan_counts_shared_jobs_once_and_bounds_what_follows(tmp_path: Path) -> None:
    plan = plan_of([sample(i) for i in range(5)], paint=[painter(0), painter(1)])
    counts = {c.spec.name: c for c in count(plan, Store(tmp_path))}
    assert (counts["writer"].requests, counts["writer"].distinct) == (10, 5)
    assert counts["writer"].to_run == 5
    assert [counts[f"painter{i}"].later for i in (0, 1)] == [5, 5]
    assert counts["measure"].later == 10


def test_scorers_see_only_finished_documents() -> None:
    scorer = Measuring()
    walk = scorer.judge(sample(0), Document())
    assert next(walk)[0].spec.kind is Kind.SCORE
