"""Whole systems behind servers: named, run, interrupted, paid and read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from endpoint_apis import BLUE, CHAT_IMAGES, RED, draw, part
from endpoint_helpers import KEY, MODEL, Answer, Server, completion, error, serving
from trial import Measuring, Witness, as_asked, outcomes, plan_of, run, sample, writer

from benchmarks.local import LocalSystem, NoDocument
from cluster.plan import Plan, evaluations
from cluster.store import Store, notes_of, read_blob
from cluster.usage import Spending, committed_usage, usage_of
from generators.base import Failure, Fault, Job, Kind, Result, StageSpec
from generators.document import Image, Sample, Text, Turn
from generators.errors import UsageError
from generators.registry import PREFIXES, Named
from generators.system import Repetition, answer
from pipelines.endpoints.settings import ImagesSettings
from pipelines.systems import INTERLEAVED, Models, resolve

TINY = Models(weights="tiny")
DRAWER = f"chat-images:{MODEL}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(CHAT_IMAGES.reply) as running:
        yield running


@pytest.fixture
def images_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(partial(draw, "sglang")) as running:
        yield running


def written(root: Path) -> bytes:
    return b"".join(p.read_bytes() for p in root.rglob("*") if p.is_file())


# Names


def test_a_name_is_one_drafting_stage_whose_model_is_all_that_follows() -> None:
    assert set(INTERLEAVED) <= set(PREFIXES[Named.SYSTEM])
    digests = set()
    for prefix in INTERLEAVED:
        system = resolve(f"{prefix}:org/model+x@1", Models(weights="pretrained"))
        (stage,) = system.stages
        assert (stage.kind, stage.weights, stage.seeded) == (Kind.DRAFT, None, True)
        assert stage.settings["model"] == "org/model+x@1"
        assert (system.variant, system.tells_modality) == ("interleaved", True)
        digests.add((stage.stage, stage.digest))
    assert len(digests) == len(INTERLEAVED)
    (stage,) = resolve("gemini:m", TINY).stages
    assert stage.identity == "endpoint:generativelanguage.googleapis.com"
    assert stage.secrets == ("GEMINI_API_KEY",)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gemini:m+sdxl-turbo", "neither a text-to-image model nor a protocol"),
        ("gemini:m@outline", "neither a text-to-image model nor a protocol"),
        ("bagel@outline", "neither a text-to-image model nor a protocol"),
        ("sensenova-u1+sdxl-turbo", "neither a text-to-image model nor a protocol"),
        ("responses:", "responses:MODEL"),
        ("chat_images:m", "chat"),
    ],
)
def test_wrong_names_are_explained(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve(name, TINY)


# Interleaved systems


def local(server: Server, **settings: Any) -> LocalSystem:
    quick = {"base_url": server.url, "max_attempts": 1, **settings}
    return LocalSystem.named(DRAWER, weights="tiny", models={DRAWER: quick})


def test_a_conversation_is_answered_turn_by_turn_with_its_own_images(
    server: Server,
) -> None:
    turns = (
        Turn("user", (Text("draw"),)),
        Turn("assistant", (Text("a published answer"),)),
        Turn("user", (Text("again"),)),
    )
    replies = iter([RED, BLUE])
    server.script = lambda body: Answer(completion([part(next(replies))]))
    query = Sample(id="s", category="c", field="f", turns=turns)
    (answered,) = local(server).answers([query])
    assert [i.digest for i in answered.document.images] == [RED.digest, BLUE.digest]
    second = server.bodies[1]["messages"]
    assert [m["role"] for m in second] == ["user", "assistant", "user", "user"]
    assert second[2]["content"] == [part(RED)]


def test_a_failure_is_told_and_a_query_answered(server: Server) -> None:
    document = local(server)("Draw a red square.")
    shown = [s.text if isinstance(s, Text) else s.digest for s in document.segments]
    assert shown == ["first", RED.digest, "then"]
    server.always(completion([part("https://cdn.example.org/a.png")]))
    with pytest.raises(NoDocument, match="image_hosts"):
        local(server)("Draw a red square.")


def test_only_systems_that_can_be_told_are_told_that_no_image_is_wanted() -> None:
    query = replace(sample(0), wants_images=False)
    asked: list[Job] = []
    for name in ("gemini:m", "anole"):
        asked += next(answer(resolve(name, TINY), query, Repetition(as_asked)))
    modalities = [job.input.modality for job in asked]  # type: ignore[union-attr]
    assert modalities == ["text", None]


@pytest.mark.usefixtures("worker_threads")
def test_a_run_keeps_images_and_what_is_known_of_their_order(
    server: Server, tmp_path: Path
) -> None:
    server.always(completion("look", images=[part(RED)]))
    overrides = {DRAWER: {"base_url": server.url}}
    system = resolve(DRAWER, Models(weights="tiny", overrides=overrides))
    samples = [sample(i) for i in range(4)]
    plan = Plan(systems=[system], samples=samples, scorers=[Measuring()], prompt=as_asked)
    run(plan, tmp_path)
    store = Store(tmp_path)
    for evaluation in evaluations(plan, store):
        document: Any = evaluation.document
        assert [read_blob(i) for i in document.value.images] == [RED.read()]
    assert len(server.bodies) == 4
    rows = store.rows(system.stages[0])
    assert all("unknown" in notes_of(row)["order"] for row in rows.values())
    assert KEY.encode() not in written(tmp_path)


# Compositions that draw by a server


def artist(url: str, **settings: Any) -> StageSpec:
    quick = {"backoff_s": 0.01, "max_attempts": 2, "concurrency": 1}
    values = {"model": MODEL, "base_url": url, "dialect": "sglang", **quick, **settings}
    return ImagesSettings.model_validate(values).spec(f"images:{MODEL}", "pretrained")


def plan_with(stage: StageSpec, count: int, *texts: str) -> Plan:
    samples = [sample(i, dict(enumerate(texts)).get(i, "")) for i in range(count)]
    return plan_of(samples, write=writer(), paint=[stage])


@pytest.mark.usefixtures("worker_threads")
def test_a_run_keeps_refusals_and_makes_again_what_a_dead_server_left(
    images_server: Server, tmp_path: Path
) -> None:
    def first(body: dict[str, Any]) -> Answer:
        if "!blocked" in body["prompt"]:
            return Answer(error("flagged", "moderation_blocked"), 400)
        broken = any(f"query {n} " in body["prompt"] + " " for n in (3, 4))
        down = Answer(error("overloaded"), 503)
        return down if broken else images_server.default(body)

    images_server.script = first
    plan = plan_with(artist(images_server.url), 6, "", "!blocked")
    result = run(plan, tmp_path, Witness())
    assert (result.counts["done"], result.counts["failed"]) == (3, 3)
    faults = [o.fault for o in outcomes(plan, tmp_path).values() if isinstance(o, Failure)]
    assert sorted(faults) == sorted([Fault.REFUSED, Fault.ENDPOINT, Fault.ENDPOINT])

    images_server.script, before = images_server.default, len(images_server.bodies)
    assert run(plan, tmp_path).counts["done"] == 5
    assert len(images_server.bodies) - before == 2, "only what failed is asked again"
    ended = [getattr(e, "document", None) for e in evaluations(plan, Store(tmp_path))]
    documents = [d.value for d in ended if isinstance(d, Result)]
    stored = {read_blob(i) for d in documents for i in d.images if isinstance(i, Image)}
    assert len(stored) == 5
    assert KEY.encode() not in written(tmp_path)


@pytest.mark.usefixtures("worker_threads")
def test_the_budget_of_a_run_counts_images(images_server: Server, tmp_path: Path) -> None:
    stage = artist(images_server.url, price_per_image=0.5)
    plan = plan_with(stage, 6)
    for max_cost, done, sent in ((1.5, 3, 3), (1.5, 3, 3), (9.0, 6, 6)):
        assert run(plan, tmp_path, max_cost=max_cost).counts["done"] == done
        assert len(images_server.bodies) == sent, "what was drawn before counts"
    used = usage_of(plan, Store(tmp_path))[stage.name]
    assert (used["images"], used["cost"], used["server_seconds"]) == (6, 3.0, 1.5)
    assert used["peak_memory_mb"] == 812.5, "the peak, not the sum of all peaks"
    assert committed_usage(tmp_path, stage)["peak_memory_mb"] == 812.5
    assert Spending(3.0).is_paid(stage)
    assert not Spending(3.0).is_paid(artist(images_server.url))
