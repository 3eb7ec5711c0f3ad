"""A user's own stage: how it is run, and which seeds reach it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from PIL import Image as Pillow
from trial import painter, plan_of, sample

from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.experiment import open_experiment
from plait.cluster.walks import Pending, read
from plait.generators.base import Job, Kind, Outcome, Placement, Result, StageSpec
from plait.generators.custom import AsDrawn, custom_spec, custom_system, request_of_drawing
from plait.generators.document import Draft, Request
from plait.generators.errors import UsageError
from plait.generators.images import decode
from plait.generators.settings import StageSettings


class Sampler:
    """A stage that is written as the README shows it."""

    kind = "draft"
    placement = Placement(batch_size=3, num_cpus=2)

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        raise NotImplementedError


class Greedy(Sampler):
    seeded = False


def spec_of(cls: type, **overrides: Any) -> StageSpec:
    return custom_spec(f"{__name__}:{cls.__name__}", "tiny", overrides, [Kind.DRAFT])


PLACED = {"batch_size": 5, "workers": 2, "num_gpus": 1.0, "num_cpus": 3.0} | {
    "memory_gib": 4.0,
    "batch_timeout_s": 60.0,
    "load_timeout_s": 7200.0,
}


def test_how_a_stage_is_run_goes_to_its_placement_and_into_no_key() -> None:
    assert set(PLACED) == StageSettings.placed
    usual, placed = spec_of(Sampler), spec_of(Sampler, **PLACED, words=9)
    assert {name: getattr(placed.placement, name) for name in PLACED} == PLACED
    assert placed.settings == {"words": 9}
    assert spec_of(Sampler, load_timeout_s=1).digest == usual.digest
    assert (usual.placement.batch_size, usual.placement.num_cpus) == (3, 2)
    assert spec_of(Sampler, batch_size=5).placement.num_cpus == 2
    for wrong in ({"batch_size": 0}, {"num_gpus": 1.5}):
        with pytest.raises(UsageError, match="Sampler"):
            spec_of(Sampler, **wrong)


def first_jobs(plan: Any) -> Iterator[Job]:
    for walk in plan.walks():
        step = read(walk, lambda job: None)
        yield from step.missing if isinstance(step, Pending) else ()


@pytest.mark.parametrize(("cls", "seeds"), [(Sampler, 3), (Greedy, 1)])
def test_a_drafting_stage_is_given_a_seed_so_that_repeats_differ(cls, seeds) -> None:
    """One that says that it is greedy is asked once."""
    plan = plan_of([sample(0)], write=spec_of(cls), paint=[painter()], repeats=3)
    jobs = list(first_jobs(plan))
    assert len({job.key for job in jobs}) == len({job.input.seed for job in jobs}) == seeds
    assert all((job.input.seed is None) == (cls is Greedy) for job in jobs)


def judge_seeds(run_seed: int, **settings: Any) -> set[int | None]:
    """Seeds with which a run's judge, which samples, is asked about ground truths."""
    name = f"judge:{__name__}:Sampler"
    flags = {"systems": ("gt",), "scorers": (name,), "weights": "tiny", "seed": run_seed}
    plan = open_experiment(load_config(None, {**flags, "models": {name: settings}})).plan
    return {job.input.seed for job in first_jobs(plan) if isinstance(job.input, Request)}


def test_the_seed_of_a_run_reaches_its_judges() -> None:
    seeds = judge_seeds(0)
    assert seeds
    assert None not in seeds
    assert not seeds & judge_seeds(5)
    assert judge_seeds(5, seed=0) == seeds, "a judge's own seed counts more"


def test_drafts_of_earlier_versions_find_their_images() -> None:
    """They hold requests whose payload is the image."""
    system = custom_system("comparing_helpers:Terse", "tiny", {})
    assert system.roles["render"].digest == "6c742cadf7b24a08b580f28fb100733d"
    (result,) = AsDrawn()([request_of_drawing(Pillow.new("RGB", (3, 2), (1, 2, 3)))])
    assert isinstance(result, Result)
    assert decode(result.value).getpixel((2, 1)) == (1, 2, 3)
