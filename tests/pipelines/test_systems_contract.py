"""One suite for every kind of system: what planning, running and reading rely on.

A further kind of system is one more entry of SYSTEMS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from trial import (
    CONDITIONER,
    answering,
    as_asked,
    painter,
    reviewed,
    sample,
    system_of_stages,
    talk,
    writer,
)

from plait.cluster.walks import noting, read
from plait.generators.base import Job, Kind, Outcome, Result, StageSpec, Walk
from plait.generators.document import (
    AnswerForm,
    Content,
    Document,
    Image,
    Query,
    Request,
    Text,
    Turn,
)
from plait.generators.given import GivenAnswers, GroundTruth
from plait.generators.staged import AnswerState, StagedSystem
from plait.generators.system import (
    ROLES,
    Limits,
    Progress,
    Repetition,
    Role,
    System,
    Variant,
)
from plait.pipelines.composition import protocol
from plait.pipelines.thinker import OWN_WORDING, StepReview, ThinkerPlanner

pytestmark = pytest.mark.contract

REPETITION = Repetition(as_asked, seed=3)
WRITER = writer(pictures=2)
THINKER = StageSpec(
    name="thinker",
    kind=Kind.DRAFT,
    target="stages:Thinker",
    settings={"steps": 3},
    seeded=True,
)
THERE = Document((Text("there"), Image.of(b"an image"), Image.of(b"another")))
DRAWING = {"draft": WRITER, "render": painter(), "max_images": 2}
NATIVE = system_of_stages(**DRAWING)
PLANNED = system_of_stages(
    draft=THINKER,
    render=painter(),
    critic=replace(THINKER, name="critic", settings={"steps": 4}),
    planner=ThinkerPlanner(OWN_WORDING, attempts=6, max_steps=3),
    review=StepReview(OWN_WORDING.critic, most_tries=3, attempts=4),
    max_images=3,
    in_turn=True,
    lvlm="thinker",
    t2i="painter",
)


@dataclass(frozen=True, kw_only=True)
class Revised(StagedSystem):
    """A kind of system that plait does not have: a draft, and then a second look at it."""

    draft: StageSpec

    variant: ClassVar[Variant] = "interleaved"

    @property
    def roles(self) -> Mapping[Role, StageSpec]:
        return {"draft": self.draft, **self.rendering.roles}  # type: ignore[union-attr]

    @property
    def limits(self) -> Limits:
        return Limits(drafts=2, images=2)

    @property
    def opening(self) -> tuple[Any, ...]:
        return self.draft.digest, self.variant

    def answer_form(self, query: Query) -> AnswerForm | None:
        return AnswerForm(images=self.most_images(query))

    def reply_to(self, query: Query, state: AnswerState) -> Walk[Content]:
        turns = query.turns
        for _ in range(2):
            (draft,) = yield [Job(self.draft, Request(turns), query.id)]
            if not isinstance(draft, Result):
                return draft
            turns = (*turns, Turn("assistant", (Text(draft.value.text),)))
        return (yield from self.fill(draft.value, query, state, seen=()))


SYSTEMS: dict[str, System] = {
    "a kind of one's own": Revised(
        name="revised", draft=WRITER, rendering=NATIVE.rendering
    ),
    "ground truth": GroundTruth(name="gt"),
    "given answers": GivenAnswers(name="given", answers={"SA-0": THERE}),
    "native": NATIVE,
    "native, in rounds": system_of_stages(**DRAWING, condition=CONDITIONER, rounds=3),
    "one after another": system_of_stages(**DRAWING, input_images=1),
    "composed": protocol("mmie").system(
        "composed", WRITER, NATIVE.rendering, lvlm="w", t2i="p"
    ),
    "text alone": protocol("text").system("text", WRITER, None, lvlm="w", t2i="none"),
    "with a critic": reviewed(NATIVE, threshold=0.9),
    "planned": PLANNED,
    "text-to-image alone": system_of_stages(render=painter(), condition=CONDITIONER),
    "edits alone": system_of_stages(render=painter(), input_images=1),
}
QUERIES = {
    "one turn": replace(sample(0), reference=THERE),
    "a talk": talk(0),
    "an image to edit": replace(
        sample(0), turns=(Turn("user", (Text("Brighter."), Image.of(b"dark"))),)
    ),
    "text alone": replace(sample(0), wants_images=False),
}


def walked(system: System, query: Query) -> tuple[Any, list[list[Job]]]:
    """The outcome of a walk over the stages of the trial, and the jobs of its steps."""
    steps: list[list[Job]] = []
    walk = noting(system.answer(query, REPETITION), steps)
    return read(walk, answering()), steps


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> System:
    return SYSTEMS[request.param]


@pytest.fixture(params=QUERIES)
def query(request: pytest.FixtureRequest) -> Query:
    return QUERIES[request.param]


def test_a_walk_asks_the_same_each_time_and_only_its_own_stages(
    system: System, query: Query
) -> None:
    outcome, steps = walked(system, query)
    again, same = walked(system, query)
    assert outcome == again
    assert [[job.key for job in step] for step in steps] == [
        [job.key for job in step] for step in same
    ]
    own = {stage.digest for stage in system.stages}
    for step in steps:
        (stage,) = {job.spec.digest for job in step}
        assert stage in own


def test_no_walk_asks_for_more_than_its_bound_at_any_step(
    system: System, query: Query
) -> None:
    _, steps = walked(system, query)
    turns = len(query.openings)
    digests = tuple(step[0].spec.digest for step in steps)
    for number in range(len(steps) + 1):
        most = Counter[str]()
        for later in system.jobs_after(Progress(turns, digests[:number])):
            assert later.jobs >= 0
            most[later.stage.digest] += later.jobs
        made = Counter[str]()
        for step in steps[number:]:
            made[step[0].spec.digest] += len({job.key for job in step})
        assert made <= most


def test_an_answer_holds_no_more_than_its_form_and_bound_say(
    system: System, query: Query
) -> None:
    outcome, _ = walked(system, query)
    form = system.answer_form(query)
    assert system.expected_images(query) <= max(system.most_images(query), 0)
    if form is None:
        assert not isinstance(outcome, Result)
        return
    if not isinstance(outcome, Result):
        return
    images = len(outcome.value.images)
    assert images <= form.images
    assert images <= system.most_images(query)
    assert form.text or not outcome.value.text


def test_its_stages_stand_in_chain_order_and_can_be_changed(system: System) -> None:
    assert [role for role in ROLES if role in system.roles] == [*system.roles]
    assert system.stages == tuple(system.roles.values())
    renamed = system.with_stages(lambda stage: replace(stage, version=stage.version + 1))
    assert [s.version for s in renamed.stages] == [s.version + 1 for s in system.stages]
    assert list(renamed.roles) == list(system.roles)
    variant = system.as_variant("v")
    assert (variant.name, variant.lvlm) == ("v", None)
    assert variant.stages == system.stages


def test_the_reply_to_the_last_turn_is_the_answer_to_a_single_one(system: System) -> None:
    query = QUERIES["one turn"]
    lookup = answering()
    answer: Outcome[Document] | Any = read(system.answer(query, REPETITION), lookup)
    reply: Outcome[Document] | Any = read(system.reply(query, REPETITION), lookup)
    assert getattr(reply, "value", reply) == getattr(answer, "value", answer)
