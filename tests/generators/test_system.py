"""Walks: what a system asks of which stage, without any stage being run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from trial import (
    as_asked,
    painter,
    plan_of,
    rebuild,
    sample,
    system_of_stages,
    talk,
    writer,
)

from plait.cluster.counts import count
from plait.cluster.records import Item, encode
from plait.cluster.store import Store
from plait.cluster.walks import drive, read, together
from plait.generators.base import Failure, Job, Kind, Outcome, Result, Skip, StageSpec, Walk
from plait.generators.catalogue import Named, by_name
from plait.generators.document import (
    Document,
    Draft,
    Image,
    ImageRequest,
    Payload,
    Query,
    Request,
    Text,
    Turn,
)
from plait.generators.errors import UsageError
from plait.generators.given import GroundTruth
from plait.generators.rendering import Rendering
from plait.generators.system import Repetition, System, Variant
from plait.pipelines.composition import protocol
from plait.pipelines.systems import Models, resolve

REPETITION = Repetition(as_asked, seed=7)
SYSTEM = system_of_stages(name="s", draft=writer(), render=painter())
DRAFTED = Result(Draft((ImageRequest("a cat"),)))
SAMPLED = rebuild(SYSTEM, draft=replace(writer(), seeded=True))


def drawing(job: Job) -> Outcome[Any]:
    if isinstance(job.input, Request):
        requests = (ImageRequest("one"), Text("between"), ImageRequest("two"))
        return Result(Draft((Text("start"), *requests)))
    assert isinstance(job.input, ImageRequest)
    return Result(Image.of(f"{job.input.prompt} {job.input.seed}".encode()))


def follow(
    system: System, stage: Callable[[Job], Outcome[Any]] = drawing, query: Any = None
) -> tuple[Any, list[Job]]:
    """Walk a system with `stage` answering every job; the outcome, and what was asked."""
    asked: list[Job] = []

    def lookup(job: Job) -> Outcome[Any]:
        asked.append(job)
        return stage(job)

    walk = system.answer(sample(0) if query is None else query, REPETITION)
    return read(walk, lookup), asked


def inputs(asked: list[Job], kind: type) -> list[Any]:
    return [job.input for job in asked if isinstance(job.input, kind)]


def test_images_stand_where_they_were_asked_for() -> None:
    outcome, asked = follow(SYSTEM)
    texts = [s.text if isinstance(s, Text) else s.read() for s in outcome.value.segments]
    seeds = [REPETITION.seed_at(sample(0), i) for i in range(2)]
    images = [f"{p} {s}".encode() for p, s in zip(("one", "two"), seeds, strict=True)]
    assert texts == ["start", images[0], "between", images[1]]
    assert [j.spec.kind for j in asked] == [Kind.DRAFT, Kind.RENDER, Kind.RENDER]


def test_images_that_came_with_the_answer_keep_their_places_and_numbers() -> None:
    ready = Image.of(b"drawn by the server")

    def half_drawn(job: Job) -> Outcome[Any]:
        if isinstance(job.input, Request):
            return Result(Draft((ready, Text("then"), ImageRequest("one"), ready)))
        return drawing(job)

    outcome, asked = follow(rebuild(SYSTEM, rounds=2), half_drawn)
    seeds = [REPETITION.seed_at(sample(0), i) for i in (1, 4)]
    drawn = [Image.of(f"one {seed}".encode()) for seed in seeds]
    half = [(ready, Text("then"), image, ready) for image in drawn]
    assert outcome.value == Document((*half[0], *half[1]))
    assert inputs(asked, Request)[1].turns[-1] == Turn("assistant", half[0])


def test_a_system_that_would_drop_images_of_an_answer_fails_instead() -> None:
    def showing(job: Job) -> Outcome[Any]:
        return Result(Draft((Text("look"), Image.of(b"a"), Image.of(b"a"))))

    system = protocol("mmie").system("s", writer(), Rendering(render=painter()))
    outcome, asked = follow(system, showing)
    assert isinstance(outcome, Failure)
    assert "2" in outcome.reason
    assert len(asked) == 1
    outcome, _ = follow(rebuild(SYSTEM, render=None), showing)
    assert len(outcome.value.images) == 2


def test_a_system_that_asks_for_images_and_renders_none_fails() -> None:
    outcome, asked = follow(rebuild(SYSTEM, render=None))
    assert isinstance(outcome, Failure)
    assert len(asked) == 1


@pytest.mark.parametrize("seeded", [False, True])
def test_only_sampled_text_has_seeds_and_all_models_of_a_row_the_same(seeded: bool) -> None:
    """Every round has seeds of its own, and images do not depend on who draws them."""
    rows = []
    for hue in (0, 1):
        system = rebuild(SAMPLED if seeded else SYSTEM, render=painter(hue), rounds=3)
        _, asked = follow(system)
        texts = [request.seed for request in inputs(asked, Request)]
        images = [request.seed for request in inputs(asked, ImageRequest)]
        assert len({*texts, *images}) == (3 if seeded else 1) + 6
        assert (None in texts) is not seeded
        rows.append(images)
    assert rows[0] == rows[1]


def test_a_failed_image_fails_the_document_and_a_skip_skips_it() -> None:
    def second_fails(job: Job) -> Outcome[Any]:
        lost = isinstance(job.input, ImageRequest) and job.input.prompt == "two"
        return Failure("no memory") if lost else drawing(job)

    assert follow(SYSTEM, second_fails)[0] == Failure("no memory")
    in_turn = rebuild(SYSTEM, input_images=1, rounds=2)
    outcome, asked = follow(in_turn, second_fails)
    assert outcome == Failure("no memory")
    assert len(inputs(asked, ImageRequest)) == 2
    outcome, asked = follow(SYSTEM, lambda _: Skip("one only"))
    assert outcome == Skip("one only")
    assert len(asked) == 1


def test_every_turn_is_answered_after_the_systems_own_answers() -> None:
    outcome, asked = follow(rebuild(SAMPLED, rounds=2), query=talk(0))
    first, second = outcome.value.answers
    assert outcome.value.segments == first.segments + second.segments
    assert [len(a.segments) for a in (first, second)] == [8, 8]
    question, _, follow_up = talk(0).turns
    mine = Turn("assistant", first.segments)
    before = [
        (question,),
        (question, Turn("assistant", first.segments[:4])),
        (question, mine, follow_up),  # not the published answer
        (question, mine, follow_up, Turn("assistant", second.segments[:4])),
    ]
    assert [request.turns for request in inputs(asked, Request)] == before
    assert len({j.input.seed for j in asked}) == 4 + 8


def three_turns(second: str = "a given answer") -> Query:
    """A conversation of three questions, with given answers to the first two."""
    given = Turn("assistant", (Text(second), Image.of(b"given")))
    last = Turn("user", (Text("And last?"),))
    return replace(talk(0), turns=(*talk(0).turns, given, last))


def test_with_given_history_later_turns_follow_the_answers_of_the_data() -> None:
    system = rebuild(SAMPLED, history="given")
    query = three_turns()
    outcome, asked = follow(system, query=query)
    assert outcome.value.history == "given"
    assert len(outcome.value.answers) == 3
    requests = inputs(asked, Request)
    assert [request.turns for request in requests] == [
        query.turns[:1],
        query.turns[:3],
        query.turns,
    ]
    edits, asked = follow(rebuild(SYSTEM, history="given", input_images=1), query=query)
    assert seen(asked)[4:] == [[b"given"], [edits.value.images[4].read()]]


def test_own_and_given_history_part_after_the_first_turn() -> None:
    own, given = rebuild(SAMPLED), rebuild(SAMPLED, history="given")
    keys = [[job.key for job in follow(s, query=three_turns())[1]] for s in (own, given)]
    of_turn = 1 + 2
    assert keys[0][:of_turn] == keys[1][:of_turn]
    drafts = [set(k[of_turn::of_turn]) for k in keys]
    assert drafts[0].isdisjoint(drafts[1])
    alone = [[job.key for job in follow(s)[1]] for s in (own, given)]
    assert alone[0] == alone[1], "one turn has no history"
    assert follow(given)[0].value.history is None
    said = follow(own, query=talk(0))[0].value.answers[0].segments
    as_own = replace(talk(0).turns[1], content=said)
    same = replace(talk(0), turns=(talk(0).turns[0], as_own, talk(0).turns[2]))
    keys = [[job.key for job in follow(s, query=same)[1]] for s in (own, given)]
    assert keys[0] == keys[1], "of equal answers nothing is made twice"


def test_a_turn_that_is_made_again_has_only_what_follows_from_it_made_again() -> None:
    records: dict[str, Outcome[Any]] = {}
    made: list[str] = []

    def walk_again(text: str, system: System = SAMPLED) -> list[str]:
        made.clear()

        def stage(job: Job) -> Outcome[Any]:
            if job.key not in records:
                made.append(job.key)
                outcome = drawing(job)
                if isinstance(job.input, Request) and len(job.input.turns) == 3:
                    outcome = Result(Draft((Text(text),)))
                records[job.key] = outcome
            return records[job.key]

        outcome, asked = follow(system, stage, three_turns())
        assert isinstance(outcome, Result)
        return [job.key for job in asked]

    keys = walk_again("second")
    assert made == keys
    second = keys[3]
    del records[second]
    assert walk_again("second") == keys
    assert made == [second], "the same answer: what follows is there already"
    del records[second]
    later = walk_again("another")
    assert made == later[3:5], "another answer: its turn, and the draft that reads it"
    walk_again("given", rebuild(SAMPLED, history="given"))
    del records[made[0]]
    walk_again("another", rebuild(SAMPLED, history="given"))
    assert len(made) == 1, "no turn reads it"


HISTORIED = ("openai:m+sdxl-turbo", "qwen2-vl-7b@text", "bagel", "users_own:Poet")
"""A composed system, one that writes, a server that draws, and a user's class."""


@pytest.mark.parametrize("name", [*by_name(Named.NATIVE), *HISTORIED])
def test_every_kind_of_system_is_shown_the_given_images(name: str) -> None:
    system = resolve(name, Models(weights="tiny")).with_history("given")
    payload = Payload.of(b"states")

    def stage(job: Job) -> Outcome[Any]:
        values: dict[Kind, Any] = {
            Kind.DRAFT: Draft((Text("said"),)),
            Kind.CONDITION: payload,
            Kind.RENDER: Image.of(b"drawn"),
        }
        return Result(values[job.spec.kind])

    outcome, asked = follow(system, stage, three_turns())
    assert isinstance(outcome, Result)
    assert len(outcome.value.answers) == 3
    last = inputs(asked, Request)[-1]
    assert Image.of(b"given") in last.images
    assert Image.of(b"drawn") not in last.images


def test_history_that_cannot_be_given_is_told() -> None:
    given = rebuild(SYSTEM, history="given")
    outcome, asked = follow(given, query=replace(talk(0), turns=talk(0).turns[::2]))
    assert isinstance(outcome, Skip)
    assert "turn 1 of 2" in outcome.reason
    assert not asked
    models = Models(weights="tiny")
    drawing_alone = resolve("sdxl-turbo@t2i", models)
    for system in (drawing_alone, GroundTruth(name="gt")):
        assert system.with_history("own") == system
        with pytest.raises(UsageError, match=system.name):
            system.with_history("given")
    assert resolve("anole", models).with_history("given").facts["history"] == "given"


def test_a_turn_that_fails_ends_the_conversation() -> None:
    def fails(job: Job) -> Outcome[Any]:
        long = isinstance(job.input, Request) and len(job.input.turns) > 1
        return Failure("too long") if long else drawing(job)

    outcome, asked = follow(SYSTEM, fails, talk(0))
    assert outcome == Failure("too long")
    assert len(asked) == 1 + 2 + 1


def seen(asked: list[Job]) -> list[list[bytes]]:
    """The images that each image was drawn from."""
    return [[i.read() for i in r.context] for r in inputs(asked, ImageRequest)]


def test_each_image_is_drawn_from_the_last_ones_of_question_and_answer() -> None:
    asking = replace(sample(0), turns=(Turn("user", (Text("?"), Image.of(b"asked"))),))
    seeds = [REPETITION.seed_at(asking, i) for i in range(4)]
    words = ("one", "two", "one", "two")
    drawn = [f"{w} {s}".encode() for w, s in zip(words, seeds, strict=True)]
    outcome, asked = follow(rebuild(SYSTEM, rounds=2, input_images=1), query=asking)
    assert seen(asked) == [[b"asked"], [drawn[0]], [drawn[1]], [drawn[2]]]
    assert [i.read() for i in outcome.value.images] == drawn
    _, asked = follow(rebuild(SYSTEM, input_images=2), query=asking)
    assert seen(asked) == [[b"asked"], [b"asked", drawn[0]]]
    _, asked = follow(rebuild(SYSTEM, input_images=2))
    assert seen(asked) == [[], [b"one %d" % REPETITION.seed_at(sample(0), 0)]]
    _, asked = follow(rebuild(SYSTEM, input_images=1), query=talk(0))
    drawn = [f"{r.prompt} {r.seed}".encode() for r in inputs(asked, ImageRequest)]
    assert seen(asked) == [[], *([image] for image in drawn[:-1])], "in later turns too"


def test_an_images_key_tells_which_images_it_is_drawn_from() -> None:
    def keys(noise: bytes) -> list[str]:
        def stage(job: Job) -> Outcome[Any]:
            made = drawing(job).value
            return Result(
                Image.of(made.read() + noise) if isinstance(made, Image) else made
            )

        _, asked = follow(rebuild(SYSTEM, input_images=1), stage)
        return [job.key for job in asked if job.spec.kind is Kind.RENDER]

    first, second = keys(b"a"), keys(b"b")
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_images_of_several_documents_are_drawn_in_one_step() -> None:
    """One after another in each document, side by side among them."""
    system = rebuild(SYSTEM, input_images=1)
    walk = together([system.answer(sample(i), REPETITION) for i in range(3)])
    steps = list[int]()
    drive(walk, lambda jobs: steps.append(len(jobs)) or [drawing(job) for job in jobs])
    assert steps == [3, 3, 3]


def test_answers_of_a_document() -> None:
    one, two, three = Text("one"), Text("two"), Text("three")
    talked = Document.of([(one, two), (), (three,)])
    assert talked.answers == (Document((one, two)), Document(), Document((three,)))
    assert talked.segments == (one, two, three)
    alone = Document.of([(one, two)])
    assert alone == Document((one, two)), "its name in keys is what it was"
    assert alone.answers == (alone,)
    assert Document().answers == (Document(),)


@pytest.mark.parametrize("seeded", [{"render"}, {"condition"}, {"condition", "render"}])
@pytest.mark.parametrize("kept", [False, True])
def test_conditioning_stands_between_draft_and_render(seeded: set[str], kept: bool) -> None:
    """Only stages that draw at random are given the image's seed."""
    seeds: dict[str, set[bool]] = {"condition": set(), "render": set()}

    def stage(job: Job) -> Outcome[Any]:
        if job.spec.kind in (Kind.CONDITION, Kind.RENDER):
            seeds[job.spec.kind].add(job.input.seed is not None)
        if job.spec.kind is Kind.CONDITION:
            return Result(Payload.of(f"matrix of {job.input.prompt}".encode()))
        if job.spec.kind is Kind.RENDER:
            assert (job.input.prompt is not None) == kept
            return Result(Image.of(job.input.payload.read()))
        return drawing(job)

    own = {
        name: replace(spec, seeded=name in seeded)
        for name, spec in (
            ("condition", StageSpec(name="c", kind=Kind.CONDITION, target="m:C")),
            ("render", painter()),
        )
    }
    outcome, _ = follow(rebuild(SYSTEM, **own, keeps_prompt=kept), stage)
    assert seeds == {name: {name in seeded} for name in own}
    assert [i.read() for i in outcome.value.images] == [b"matrix of one", b"matrix of two"]


def keys_with(system: System, noise: bytes, text: str = "so") -> list[tuple[str, ...]]:
    """The keys of an answer in which every payload holds `noise`."""
    request = ImageRequest(payload=Payload.of(b"states" + noise))
    values: dict[Kind, Any] = {
        Kind.DRAFT: Draft((Text("first"), request, Text(text), request)),
        Kind.CONDITION: Payload.of(b"matrix" + noise),
        Kind.RENDER: Image.of(b"drawn" + noise),
    }
    _, asked = follow(system, lambda job: Result(values[job.spec.kind]))
    return [job.keys for job in asked]


@pytest.mark.parametrize("name", by_name(Named.NATIVE))
def test_no_key_tells_the_last_digits_of_a_payload(name: str) -> None:
    system = resolve(name, Models(weights="tiny"))
    one, other = keys_with(system, b"1"), keys_with(system, b"2")
    assert [key for key, *_ in one] == [key for key, *_ in other]
    assert len({key for key, *_ in one}) == len(one)
    assert one[-1][1] != other[-1][1], "keys of earlier versions did"


def test_another_draft_has_other_images() -> None:
    """Of another version of its stage, or the same one with other text; not of a system."""
    images = [key for key, *_ in keys_with(SYSTEM, b"")[1:]]
    already_made = ("8e35d8326d1d433303f442d99c6c3b94", "4f4c77532661642d9729f6a1fe1b0771")
    assert images == [*already_made]
    assert [k for k, *_ in keys_with(rebuild(SYSTEM, name="t"), b"")[1:]] == images
    changed = rebuild(SYSTEM, draft=replace(writer(), version=2))
    for other in (keys_with(changed, b""), keys_with(SYSTEM, b"", text="therefore")):
        assert {key for key, *_ in other}.isdisjoint(images)


def test_the_ground_truth_is_a_system_without_stages() -> None:
    truth = Document((Text("the answer"),))
    system = GroundTruth(name="gt")
    assert follow(system, query=replace(sample(0), reference=truth))[0] == Result(truth)
    assert isinstance(follow(system)[0], Skip)


def test_walks_side_by_side_share_their_steps() -> None:
    def steps(name: str, number: int) -> Walk[str]:
        for i in range(number):
            yield [Job(writer(), Request((), seed=i), name)]
        return Result(name)

    batches = list[list[str]]()

    def stage(jobs: Sequence[Job]) -> list[Outcome[Any]]:
        batches.append([job.label for job in jobs])
        return [Result(None)] * len(jobs)

    walks = together([steps("a", 1), steps("b", 3), steps("c", 0)])
    assert [o.value for o in drive(walks, stage)] == ["a", "b", "c"]
    assert batches == [["a", "b"], ["b"], ["b"]]


def test_systems_open_alike_where_they_begin_with_the_same_job() -> None:
    """A plan walks one of them for a query, and counts them all."""
    draft = writer(style="other")
    systems = [
        SYSTEM,
        rebuild(SYSTEM, render=painter(1), rounds=2, max_images=3),
        rebuild(SYSTEM, draft=draft),
        rebuild(SYSTEM, instruction="Draw."),
        rebuild(SYSTEM, tells_modality=True),
        rebuild(SYSTEM, variant="text"),
        *(rebuild(SYSTEM, draft=None, render=painter(i)) for i in (0, 1)),
    ]

    def worded(query: Query, variant: Variant) -> tuple[Turn, ...]:
        return (Turn("user", (Text(variant), *query.question)),)

    def first_jobs(system: System) -> tuple[str, ...]:
        queries = (replace(sample(0), wants_images=wants) for wants in (True, False))
        walks = (system.answer(query, Repetition(worded)) for query in queries)
        return tuple(job.key for walk in walks for job in next(walk, ()))

    assert len({system.opening for system in systems}) == 7
    for one, other in combinations(systems, 2):
        assert (one.opening == other.opening) == (first_jobs(one) == first_jobs(other))


@pytest.mark.parametrize("only_scorers", [False, True])
def test_systems_that_open_alike_are_counted_one_by_one_once_drafts_are_there(
    tmp_path: Path, only_scorers: bool
) -> None:
    """Of five queries, two have a draft, and one of those an image of one system."""
    plan = plan_of([sample(i) for i in range(5)], paint=[painter(0), painter(1)])
    store = Store(tmp_path)
    for system, query in product(plan.systems, plan.queries[:2]):
        walk = plan.answer(system, query, 0)
        (draft,) = next(walk)
        answers = encode(Kind.DRAFT, [Item(draft.key, "", draft.input)], [DRAFTED], 0.0)
        store.commit(draft.spec, answers)
        if (system, query) == (plan.systems[1], plan.queries[0]):
            (image,) = walk.send([DRAFTED])
            item = Item(image.key, "", image.input)
            drawn = [Result(Image.of(b"png"))]
            store.commit(image.spec, encode(Kind.RENDER, [item], drawn, 0.0))
    counts = {c.spec.name: c for c in count(plan, store, only_scorers=only_scorers)}
    told = {n: (c.requests, c.distinct, c.done, c.later) for n, c in counts.items()}
    if only_scorers:
        assert told == {
            "writer": (0, 0, 0, 0),
            "painter0": (0, 0, 0, 0),
            "painter1": (0, 0, 0, 0),
            "measure": (1, 1, 0, 0),
        }
    else:
        assert told == {
            "writer": (10, 5, 2, 0),
            "painter0": (2, 2, 0, 3),
            "painter1": (2, 2, 1, 3),
            "measure": (1, 1, 0, 9),
        }
