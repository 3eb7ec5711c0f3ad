"""A ceiling on usage holds for a stage of a run directory, whichever worker asks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from endpoint_helpers import MODEL, serving
from trial import Witness, plan_of, run, sample

from cluster.plan import Plan
from cluster.usage import committed_usage
from generators.base import StageSpec
from generators.system import System
from pipelines.chat.settings import EndpointSettings


def endpoint(url: str, **settings: float) -> StageSpec:
    validated = EndpointSettings.model_validate(
        {"model": MODEL, "base_url": url, "concurrency": 1} | settings
    )
    return validated.spec("parrot", "pretrained")


def plan_with(stage: StageSpec, samples: int) -> Plan:
    plan = plan_of([sample(i) for i in range(samples)])
    return replace(plan, systems=[System(name="parrot", draft=stage)], scorers=[])


@pytest.mark.usefixtures("worker_threads")
def test_a_new_worker_goes_on_counting_where_the_last_one_stopped(tmp_path: Path) -> None:
    """A preflight and three answers are 72 tokens; the next worker may not start at 0."""
    with serving() as server:
        run(plan_with(endpoint(server.url), 3), tmp_path)
        spec = endpoint(server.url, max_total_tokens=73)
        used = committed_usage(tmp_path, spec)
        assert (used["input_tokens"], used["output_tokens"]) == (33, 21)
        result = run(plan_with(spec, 9), tmp_path, Witness())
        assert len(server.bodies) == 4
    assert result.counts["done"] == 4
    assert result.counts["failed"] == 5
