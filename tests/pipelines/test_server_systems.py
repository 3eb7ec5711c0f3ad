"""Whole systems behind servers: named, run, interrupted, paid and read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from endpoint_apis import CHAT_IMAGES, RED, draw, part
from endpoint_helpers import KEY, MODEL, Answer, Server, completion, error, serving
from trial import Witness, as_asked, outcomes, plan_of, run, sample, writer

from plait.benchmarks.local import LocalSystem, NoDocument
from plait.cluster.plan import Plan
from plait.cluster.store import Store, read_blob
from plait.cluster.usage import Spending, usage_of, usage_of_stage
from plait.generators.base import Failure, Fault, Job, Kind, Result, StageSpec
from plait.generators.catalogue import Named, by_prefix
from plait.generators.document import Text, Turn
from plait.generators.system import Repetition
from plait.pipelines.endpoints.settings import ImagesSettings
from plait.pipelines.systems import Models, resolve

pytestmark = pytest.mark.contract

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
    digests = set()
    for prefix in by_prefix(Named.SERVED):
        system = resolve(f"{prefix}:org/model+x@1", Models(weights="pretrained"))
        (stage,) = system.stages
        assert (stage.kind, stage.weights, stage.seeded) == (Kind.DRAFT, None, True)
        assert stage.settings["model"] == "org/model+x@1"
        assert (system.variant, system.tells_modality) == ("interleaved", True)
        digests.add((stage.stage, stage.digest))
    assert len(digests) == len(by_prefix(Named.SERVED))
    (stage,) = resolve("gemini:m", TINY).stages
    assert stage.identity == "endpoint:generativelanguage.googleapis.com"
    assert stage.secrets == ("GEMINI_API_KEY",)


# Interleaved systems


def local(server: Server, **settings: Any) -> LocalSystem:
    quick = {"base_url": server.url, "max_attempts": 1, **settings}
    return LocalSystem.named(DRAWER, weights="tiny", models={DRAWER: quick})


def test_a_failure_is_told_and_a_query_answered(server: Server) -> None:
    document = local(server)("Draw a red square.")
    assert document.segments == (Text("first"), RED, Text("then"))
    server.always(completion([part("https://cdn.example.org/a.png")]))
    with pytest.raises(NoDocument, match="image_hosts"):
        local(server)("Draw a red square.")


def test_only_systems_that_can_be_told_are_told_that_no_image_is_wanted() -> None:
    query = replace(sample(0), wants_images=False)
    asked: list[Job] = []
    for name in ("gemini:m", "anole"):
        asked += next(resolve(name, TINY).answer(query, Repetition(as_asked)))
    modalities = [job.input.modality for job in asked]  # type: ignore[union-attr]
    assert modalities == ["text", None]


# Compositions that draw by a server


def artist(url: str, **settings: Any) -> StageSpec:
    quick = {"backoff_s": 0.01, "max_attempts": 2, "concurrency": 1}
    values = {"model": MODEL, "base_url": url, "dialect": "sglang", **quick, **settings}
    return ImagesSettings.model_validate(values).spec(f"images:{MODEL}", "pretrained")


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
    samples = [sample(i, "!blocked" * (i == 1)) for i in range(6)]
    plan = plan_of(samples, write=writer(), paint=[artist(images_server.url)])
    result = run(plan, tmp_path, Witness())
    assert (result.counts["done"], result.counts["failed"]) == (3, 3)
    faults = [o.fault for o in outcomes(plan, tmp_path).values() if isinstance(o, Failure)]
    assert sorted(faults) == sorted([Fault.REFUSED, Fault.ENDPOINT, Fault.ENDPOINT])

    images_server.script, before = images_server.default, len(images_server.bodies)
    assert run(plan, tmp_path).counts["done"] == 5
    assert len(images_server.bodies) - before == 2, "only what failed is asked again"
    made = (o.value for o in outcomes(plan, tmp_path).values() if isinstance(o, Result))
    assert len({read_blob(image) for document in made for image in document.images}) == 5
    assert KEY.encode() not in written(tmp_path)


@pytest.mark.usefixtures("worker_threads")
def test_the_budget_of_a_run_counts_images(images_server: Server, tmp_path: Path) -> None:
    stage = artist(images_server.url, price_per_image=0.5)
    plan = plan_of([sample(i) for i in range(6)], write=writer(), paint=[stage])
    for max_cost, done, sent in ((1.5, 3, 3), (1.5, 3, 3), (9.0, 6, 6)):
        assert run(plan, tmp_path, max_cost=max_cost).counts["done"] == done
        assert len(images_server.bodies) == sent, "what was drawn before counts"
    used = usage_of(plan, Store(tmp_path))[stage.name]
    assert (used["images"], used["cost"], used["server_seconds"]) == (6, 3.0, 1.5)
    assert used["peak_memory_mb"] == 812.5, "the peak, not the sum of all peaks"
    assert usage_of_stage(tmp_path, stage)["peak_memory_mb"] == 812.5
    assert Spending(3.0).is_paid(stage)
    assert not Spending(3.0).is_paid(artist(images_server.url))


# Edits by a server


@pytest.mark.usefixtures("worker_threads")
def test_a_query_is_edited_turn_by_turn_and_an_edit_is_asked_for_once(
    images_server: Server, tmp_path: Path
) -> None:
    name = f"images:{MODEL}@edit"
    quick = {"base_url": images_server.url, "dialect": "sglang", "max_attempts": 1}
    system = resolve(name, replace(TINY, overrides={f"images:{MODEL}": quick}))
    first = Turn("user", (RED, Text("Make it blue.")))
    second = Turn("user", (Text("Now green."),))
    query = replace(sample(0), turns=(first, second))
    plan = Plan(systems=[system], queries=[query], scorers=[], prompt=as_asked)
    for _ in range(2):
        assert run(plan, tmp_path).counts["done"] == 1
        assert len(images_server.bodies) == 2, "the second command asks for nothing"
    (outcome,) = outcomes(plan, tmp_path).values()
    assert isinstance(outcome, Result)
    one, two = outcome.value.images
    sent = [body["image[]"] for body in images_server.bodies]
    assert sent == [[RED.read()], [read_blob(one)]]
    assert [body["prompt"] for body in images_server.bodies] == [
        "Make it blue.",
        "Now green.",
    ]
    assert one.digest != two.digest
