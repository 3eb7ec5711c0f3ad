"""In which order a stage meets its jobs in a run: as they come, or long ones first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from endpoint_helpers import MODEL, Server, serving
from trial import as_asked, run, sample

from cluster.plan import Plan
from generators.base import StageSpec
from generators.system import System
from pipelines.chat.settings import EndpointSettings
from pipelines.presets import LVLMS

pytestmark = pytest.mark.usefixtures("worker_threads")

WORDS = [3, 9, 1, 7, 5, 2]
"""Length of each question; as many of them as make one batch."""


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def endpoint(server: Server) -> StageSpec:
    """A chat endpoint that answers one request at a time."""
    options: dict[str, Any] = {"concurrency": 1, "batch_size": len(WORDS)}
    return EndpointSettings(model=MODEL, base_url=server.url, **options).spec(
        "chat", "tiny"
    )


def met(server: Server, spec: StageSpec, root: Path) -> list[int]:
    """How long the questions were that the server met, in its order."""
    samples = [sample(i, "long " * words) for i, words in enumerate(WORDS)]
    system = System(name="s", draft=spec)
    plan = Plan(systems=[system], samples=samples, scorers=[], prompt=as_asked)
    result = run(plan, root)
    assert result.counts["done"] == len(WORDS), result.counts
    return [body["messages"][-1]["content"].count("long") for body in server.bodies]


def test_an_endpoint_is_asked_in_the_order_of_the_run(
    server: Server, tmp_path: Path
) -> None:
    """Neighbours begin alike, which a server's prefix cache serves."""
    assert met(server, endpoint(server), tmp_path) == WORDS


def test_a_stage_that_computes_in_batches_gets_long_inputs_first(
    server: Server, tmp_path: Path
) -> None:
    """The same run with the placement that local text models have."""
    spec = endpoint(server)
    local = LVLMS["qwen2-vl-7b"].spec("local", "tiny").placement
    spec = replace(
        spec, placement=replace(spec.placement, longest_first=local.longest_first)
    )
    assert met(server, spec, tmp_path) == sorted(WORDS, reverse=True)
