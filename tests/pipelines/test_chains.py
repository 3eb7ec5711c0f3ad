"""Conditioning and several rounds: plan, run, resume, show and export agree on them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from boards import stored_board
from trial import (
    CONDITIONER,
    LIGHT,
    Measuring,
    Witness,
    answering,
    as_asked,
    filled,
    missing,
    outcomes,
    painter,
    rebuild,
    reviewed,
    run,
    sample,
    system_of_stages,
    talk,
    writer,
)

from plait.cluster.counts import count
from plait.cluster.plan import Plan, evaluations
from plait.cluster.records import Item, encode
from plait.cluster.store import Store, read_blob
from plait.cluster.walks import read
from plait.generators.base import Job, Kind, Outcome, Result, StageSpec, Walk
from plait.generators.document import Candidate, Document, Query, Request, Score, Text, Turn
from plait.generators.system import TRIES, System
from plait.pipelines.critic import CriticReview, CriticSettings
from plait.pipelines.thinker import OWN_WORDING, StepReview, ThinkerPlanner

pytestmark = pytest.mark.contract

WRITER = replace(writer(pictures=2), name="writer2")


def deep(**changes: Any) -> System:
    """Three stages, two rounds, two images a draft."""
    stages = {"draft": WRITER, "condition": CONDITIONER, "render": painter()}
    return system_of_stages(
        **({"name": "deep", "max_images": 2, "rounds": 2} | stages | changes)
    )


def plan_with(*systems: System, samples: int = 3, talks: bool = False) -> Plan:
    make = talk if talks else sample
    return Plan(
        systems=systems,
        queries=[make(i) for i in range(samples)],
        scorers=[Measuring()],
        prompt=as_asked,
    )


def shown(document: Document) -> list[str]:
    """Text and the digests of images, in order."""
    return [getattr(s, "text", None) or s.digest for s in document.segments]  # type: ignore[union-attr]


@pytest.mark.usefixtures("worker_threads")
def test_the_engine_makes_what_the_stages_make_when_called_one_by_one(
    tmp_path: Path,
) -> None:
    plan = plan_with(deep(), deep(name="shallow", rounds=1, condition=None))
    witness = Witness()
    result = run(plan, tmp_path, witness)
    assert result.counts["done"] == result.counts["scored"] == 6
    assert_as_read(plan, tmp_path)
    for (name, _), outcome in outcomes(plan, tmp_path).items():
        images = outcome.value.images
        assert len({i.digest for i in images}) == (4 if name == "deep" else 2)
        assert all(read_blob(i).startswith(b"\x89PNG") for i in images)
    records = {s.name: len(Store(tmp_path).rows(s)) for s in plan.stages}
    # The first round's drafts are shared; its images are not (payload, not prompt).
    expected = {"writer2": 6, "conditioner": 12, "painter0": 18, "measure": 6}
    assert records == expected
    assert {s.name: sum(s.outcomes.values()) for s in witness.stages} == expected
    assert run(plan, tmp_path).made == 0
    talks = plan_with(deep(rounds=1), talks=True)
    assert run(talks, tmp_path / "talks").made == 3 * (2 + 4 + 4 + 1)
    assert_as_read(talks, tmp_path / "talks")
    for outcome in outcomes(talks, tmp_path / "talks").values():
        assert [len(a.images) for a in outcome.value.answers] == [2, 2]


def assert_as_read(plan: Plan, root: Path) -> None:
    """The run's documents are those of the stages called one by one."""
    made = outcomes(plan, root)
    for system in plan.systems:
        for query in plan.queries:
            expected: Any = read(plan.answer(system, query, 0), answering())  # type: ignore[arg-type]
            assert shown(made[system.name, query.id].value) == shown(expected.value)


@pytest.mark.usefixtures("worker_threads")
def test_the_engine_draws_again_what_a_critic_finds_wanting(tmp_path: Path) -> None:
    """In batches over documents; what every try cost is told."""
    outline = deep(name="w+a", lvlm="w", t2i="a", rounds=1, condition=None)
    critic = rebuild(outline, name="w+b", t2i="b")
    plan = plan_with(reviewed(critic, threshold=0.6), outline)
    run(plan, tmp_path)
    assert_as_read(plan, tmp_path)
    store = Store(tmp_path)
    made = [*evaluations(plan, store, notes=True)]
    tries = [t for e in made for t in getattr(e.document, "notes", {}).get(TRIES, ())]
    board = stored_board(
        made,
        systems=plan.systems,
        scorers=plan.scorers,
        categories={},
        fields=(),
        weights="tiny",
        store=store,
    )
    costs = board.costs or ()
    # Each document costs its own tries, and begins with the noise of the outline's.
    assert sum(c.amounts["pictures"] for c in costs[::2]) == len(tries)
    assert sum(c.amounts["pictures"] for c in costs[1::2]) == 6
    assert [c.seeds for c in costs[::2]] == [c.seeds for c in costs[1::2]]
    assert sum(t["try"] == 1 for t in tries) == sum(t["kept"] for t in tries) == 6
    assert any(t["try"] > 1 for t in tries)
    records = {s.name: len(store.rows(s)) for s in plan.stages}
    # The first tries are the images of the outline.
    assert records["painter0"] == records["look"] == len(tries)
    for one in tries:
        assert one["drawing"]["images"] == 1
        assert one["looking"]["input_tokens"] == 9
        assert min(one["drawing"]["seconds"], one["looking"]["seconds"]) >= 0
    assert run(plan, tmp_path).made == 0


def bounds_of(plan: Plan, root: Path) -> tuple[list[int], int]:
    """What is done and what may follow, before each record of a run, and at the end."""
    records: dict[str, Outcome[Any]] = {}
    for request in plan.requests():
        read(plan.evaluation(*request), answering(records))
    store, bounds = Store(root), []
    while True:
        bounds.append(sum(c.distinct + c.later for c in count(plan, store)))
        job = missing(plan, store)
        if job is None:
            return bounds, len(records)
        item = Item(job.key, job.label, job.input)
        store.commit(job.spec, encode(job.spec.kind, [item], [records[job.key]], 0.0))


ONCE = {"rounds": 1, "condition": None}
ITSELF = {"critic": WRITER, "review": CriticReview(CriticSettings(), "reply")}
THINKER = StageSpec(
    name="thinker",
    kind=Kind.DRAFT,
    target="stages:Thinker",
    settings={"steps": 3},
    seeded=True,
    placement=LIGHT,
)
OTHER_THINKER = replace(THINKER, name="critic", settings={"steps": 4})
PLANNED = {
    "draft": THINKER,
    "critic": OTHER_THINKER,
    "planner": ThinkerPlanner(OWN_WORDING, attempts=6, max_steps=3),
    "review": StepReview(OWN_WORDING.critic, most_tries=3, attempts=4),
    "variant": "plain",
    "max_images": 3,
    "in_turn": True,
    **ONCE,
}
ONE_TRY = {"review": StepReview(OWN_WORDING.critic, most_tries=1, attempts=4)}
SYSTEMS = {
    "planned": deep(**PLANNED, input_images=1),
    "planned, drawn from text alone": deep(**PLANNED),
    "its own planner and critic": deep(**{**PLANNED, "critic": THINKER}),
    "planned, one try": deep(**{**PLANNED, **ONE_TRY}),
    "plain": deep(**ONCE),
    "conditioned, twice": deep(),
    "thrice": deep(rounds=3, condition=None),
    "a critic": reviewed(deep(**ONCE), threshold=0.9),
    "its own critic": deep(**ONCE, **ITSELF),
    "one after another": deep(rounds=1, input_images=1, keeps_prompt=True),
}


@pytest.mark.parametrize("talks", [False, True])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_plan_never_counts_fewer_jobs_than_are_made(
    tmp_path: Path, name: str, talks: bool
) -> None:
    """At every moment of a run: what is done and what is left make up the end."""
    system = SYSTEMS[name]
    bounds, made = bounds_of(plan_with(system, samples=2, talks=talks), tmp_path)
    assert bounds[-1] == min(bounds) == made
    # Exact, for a system that asks for as many images as it may.
    assert bounds[0] == made or "critic" in system.roles
    assert max(bounds) == made or system.limits.in_turn or system.limits.tries > 1


@dataclass(frozen=True)
class Asking(Measuring):
    """A scorer whose first stage is asked so often, before a second one scores."""

    asked: int = 1
    first: StageSpec = field(default_factory=partial(writer, style="judge"))

    @property
    def rounds(self) -> int:
        return self.asked

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        return (self.first, self.stage)

    def judge(self, sample: Query, document: Document) -> Walk[Score]:
        content = document.segments
        for _ in range(self.asked):
            turn = Turn("user", content)
            reply = (yield [Job(self.first, Request((turn,)), sample.id)])[0]
            assert isinstance(reply, Result)
            content = (*content, Text("again"))
        return (yield [Job(self.stage, Candidate(document), sample.id)])[0]


@pytest.mark.parametrize("rounds", [1, 3])
def test_what_follows_in_a_scorer_is_bounded_too(tmp_path: Path, rounds: int) -> None:
    plan = replace(plan_with(deep(), samples=2), scorers=[Asking(asked=rounds)])

    def counts(*kinds: Kind) -> dict[str, tuple[int, int]]:
        store = filled(plan, tmp_path, *kinds) if kinds else Store(tmp_path / "none")
        return {c.spec.name: (c.distinct, c.later) for c in count(plan, store)}

    assert counts()["writer"] == counts()["measure"] == (0, 2 * rounds)
    filled(replace(plan, scorers=[]), tmp_path)
    known = {c.spec.name: c for c in count(plan, Store(tmp_path))}
    assert (known["writer"].distinct, known["writer"].later) == (2, 2 * (rounds - 1))
    if rounds == 1:
        assert counts(Kind.DRAFT)["measure"] == (2, 0)


class BothOrders(Measuring):
    """A scorer that asks about a document twice at once."""

    def judge(self, sample: Query, document: Document) -> Walk[Score]:
        candidates = (Candidate(document), Candidate(Document(document.segments[::-1])))
        return (yield [Job(self.stage, c, sample.id) for c in candidates])[0]


def test_jobs_asked_at_once_are_one_round(tmp_path: Path) -> None:
    """What they were taken for made the bound too low, and a run stop before its end."""
    plan = replace(plan_with(deep(), samples=2), scorers=[BothOrders()])
    store = filled(replace(plan, scorers=[]), tmp_path)
    counts = {c.spec.name: c for c in count(plan, store)}
    assert (counts["measure"].distinct, counts["measure"].later) == (4, 0)


def test_a_stage_is_fed_by_those_before_it_and_by_later_rounds_and_turns() -> None:
    once = deep(name="once", rounds=1, render=painter(1))
    plan = plan_with(once)
    names = {s.digest: s.name for s in plan.stages}
    fed = {names[d]: sorted(names[f] for f in by) for d, by in plan.feeders.items()}
    assert fed == {
        "writer2": [],
        "conditioner": ["writer2"],
        "painter1": ["conditioner", "writer2"],
        "measure": ["conditioner", "painter1", "writer2"],
    }
    for again in (plan_with(deep()), plan_with(deep(rounds=1), talks=True)):
        assert again.feeders[WRITER.digest] == {CONDITIONER.digest, painter().digest}
    judged = reviewed(deep(rounds=1, condition=None))
    fed_again = plan_with(judged).feeders[painter().digest]
    assert fed_again == {WRITER.digest, judged.roles["critic"].digest}
    edited = deep(rounds=1, input_images=1)
    assert plan_with(edited).feeders[CONDITIONER.digest] >= {painter().digest}
    other = deep(name="other", draft=writer(), condition=None, rounds=1, render=painter(1))
    both = plan_with(deep(rounds=1), other).feeders
    assert both[painter(1).digest] == {writer().digest}


def test_notes_of_every_round_are_kept_and_a_stage_bears_the_name_it_was_first_given() -> (
    None
):
    again = replace(WRITER, name="the same by another name")
    plan = plan_with(deep(), deep(name="other", draft=again))
    assert next(iter(plan.stages)).name == "writer2"
    assert len(plan.stages) == 4
    made: Any = read(plan.answer(deep(), sample(0), 0), answering())
    assert made.notes == {"conditioner": [{"conditioned": 1}] * 4}
