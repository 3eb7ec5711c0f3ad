"""Whole systems that draw by a server: run, interrupted, paid, and read again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endpoint_helpers import KEY, Answer, error
from images_helpers import MODEL, ImagesServer, rejection, serving_images
from trial import Witness, outcomes, plan_of, run, sample, writer

from benchmarks.local import LocalSystem
from cluster.plan import Plan, evaluations
from cluster.store import Store, read_blob
from cluster.usage import Spending, committed_usage, usage_of
from cluster.worker import Receipt
from generators.base import Failure, Fault, Result, StageSpec, add_usage
from generators.document import Document
from generators.pictures import decode
from pipelines.endpoints.settings import ImagesSettings


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ImagesServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving_images("sglang") as running:
        yield running


def artist(url: str, **settings: Any) -> StageSpec:
    quick = {"backoff_s": 0.01, "max_attempts": 2, "concurrency": 1}
    values = {"model": MODEL, "base_url": url, "dialect": "sglang", **quick, **settings}
    return ImagesSettings.model_validate(values).spec(f"images:{MODEL}", "pretrained")


def plan_with(stage: StageSpec, count: int, *texts: str) -> Plan:
    samples = [sample(i, dict(enumerate(texts)).get(i, "")) for i in range(count)]
    return plan_of(samples, write=writer(), paint=[stage])


def test_a_composition_draws_by_a_server_in_this_process(server: ImagesServer) -> None:
    settings = {"base_url": server.url, "dialect": "sglang", "steps": 4}
    settings |= {"width": 96, "height": 48}
    system = LocalSystem.named(
        f"users_own:Poet+images:{MODEL}",
        weights="tiny",
        models={f"images:{MODEL}": settings},
    )
    (picture,) = system("a question").pictures
    assert picture.size == (96, 48)
    (body,) = server.bodies
    assert body["num_inference_steps"] == 4
    assert "a poem about a question" in body["prompt"]


@pytest.mark.usefixtures("worker_threads")
def test_a_run_keeps_refusals_and_makes_again_what_a_dead_server_left(
    server: ImagesServer, tmp_path: Path
) -> None:
    def first(body: dict[str, Any]) -> Answer:
        if "!blocked" in body["prompt"]:
            return rejection("flagged", None, "moderation_blocked")
        broken = any(f"query {n} " in body["prompt"] + " " for n in (3, 4))
        return Answer(error("overloaded"), 503) if broken else server.draw(body)

    server.script = first
    plan = plan_with(artist(server.url), 6, "", "!blocked")
    result = run(plan, tmp_path, Witness())
    assert (result.counts["done"], result.counts["failed"]) == (3, 3)
    faults = [o.fault for o in outcomes(plan, tmp_path).values() if isinstance(o, Failure)]
    assert sorted(faults) == sorted([Fault.REFUSED, Fault.ENDPOINT, Fault.ENDPOINT])

    server.script, before = server.draw, len(server.bodies)
    assert run(plan, tmp_path).counts["done"] == 5
    assert len(server.bodies) - before == 2, "only what failed is asked again"
    stored = [p for d in documents(plan, tmp_path) for p in d.images]
    assert len({decode(read_blob(p)).tobytes() for p in stored}) == 5
    everything = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert KEY.encode() not in everything


def documents(plan: Plan, root: Path) -> list[Document]:
    ended = (getattr(e, "document", None) for e in evaluations(plan, Store(root)))
    return [document.value for document in ended if isinstance(document, Result)]


@pytest.mark.usefixtures("worker_threads")
def test_the_budget_of_a_run_counts_pictures(server: ImagesServer, tmp_path: Path) -> None:
    stage = artist(server.url, price_per_image=0.5)
    plan = plan_with(stage, 6)
    result = run(plan, tmp_path, max_cost=1.5)
    assert (result.counts["done"], result.counts["failed"]) == (3, 3)
    assert len(server.bodies) == 3
    assert run(plan, tmp_path, max_cost=1.5).counts["done"] == 3
    assert len(server.bodies) == 3, "what was drawn before counts"
    assert run(plan, tmp_path, max_cost=9.0).counts["done"] == 6
    used = usage_of(plan, Store(tmp_path))[stage.name]
    assert (used["images"], used["cost"], used["server_seconds"]) == (6, 3.0, 1.5)
    assert used["peak_memory_mb"] == 812.5, "the peak, not the sum of all peaks"
    assert committed_usage(tmp_path, stage)["peak_memory_mb"] == 812.5


def test_a_price_by_the_picture_makes_a_stage_a_paid_one() -> None:
    spending = Spending(3.0)
    assert spending.is_paid(artist("http://h/v1", price_per_image=0.5))
    assert not spending.is_paid(artist("http://h/v1"))
    spending.count_receipt(artist("http://h/v1", price_per_image=0.5), Receipt("done"))
    assert spending.exhausted() is None


def test_peaks_of_usage_are_compared_and_all_else_is_added_up() -> None:
    total: dict[str, float] = {}
    for peak in (2.0, 5.0, 3.0):
        add_usage(total, {"peak_memory_mb": peak, "images": 1})
    assert total == {"peak_memory_mb": 5.0, "images": 3}
