"""The stage to measure, and its inputs as in a run on the sample set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plait.benchmarks.tasks.controls import CONTROLS, Pool
from plait.benchmarks.tasks.task_set import load
from plait.cluster.local import LocalStages
from plait.cluster.record_values import with_bytes
from plait.generators.base import Job, StageInput, StageSpec
from plait.generators.document import Document, ImageRequest, Query, Text, with_blobs
from plait.generators.errors import UsageError
from plait.generators.names import unknown
from plait.generators.system import Repetition, System
from plait.generators.writing import NativeSystem
from plait.pipelines.systems import (
    Models,
    answers_spec,
    chat_spec,
    is_lvlm,
    is_t2i,
    lvlm_spec,
    resolve,
    t2i_spec,
)
from plait.scorers import resolve_scorer

CLIPSCORE = "clipscore"
PARTS = ("draft", "condition", "render")
Workload = tuple[StageSpec, Sequence[StageInput]]
"""A stage and its inputs."""


def of_system(name: str, part: str, models: Models, queries: int) -> Workload:
    """Return a part of a system, an LVLM or a T2I model, on `queries` queries.

    The stages before it are run, one record at a time.

    Raises:
        UsageError: Where the system has no such part or the sample set no job for it.
    """
    samples = _samples()[:queries]
    if is_t2i(name):
        spec = t2i_spec(name, models)
        return spec, [_image_request(sample, i) for i, sample in enumerate(samples)]
    if is_lvlm(name):
        system: System = NativeSystem(name=name, draft=lvlm_spec(name, models))
    else:
        system = resolve(name, models)
    parts: dict[str, StageSpec] = {}
    for role, spec in system.roles.items():
        if role in PARTS:
            parts[role] = spec
    if part not in parts:
        raise unknown(f"part of system {name!r}", part, parts)
    repetition = Repetition(load("sample").prompt)
    walks = [system.answer(sample, repetition) for sample in samples]
    return _reach(parts[part], walks)


def of_scorer(
    name: str, weights: Any, settings: Mapping[str, Any], queries: int, answers: int = 1
) -> Workload:
    """Return the last stage of a scorer, given `answers` answers to each of the queries.

    These are the ground truth and the controls made from it, query by query, like the
    answers of several systems in a run. CLIPScore remembers no features of earlier rounds,
    unless `settings` say so.
    """
    models = Models(weights=weights)
    settings = {"remembered": 0, **settings} if name == CLIPSCORE else settings
    scorer = resolve_scorer(
        name,
        weights,
        dict(settings),
        chat=lambda model: chat_spec(model, models),
        answers=lambda model: answers_spec(model, models),
    )
    walks: list[Any] = []
    for query in _samples()[:queries]:
        for document in _answers(query)[:answers]:
            if scorer.opponent:
                truth = query.reference or Document()
                walks.append(scorer.judge_beside(query, truth, document, 0))
            else:
                walks.append(scorer.judge(query, document))
    return _reach(scorer.stages[-1], walks)


def _samples() -> list[Query]:
    queries = []
    for sample in load("sample").samples:
        if isinstance(sample, Query) and sample.wants_images:
            queries.append(sample)
    return queries


def _answers(sample: Query) -> list[Document]:
    """Return the ground truth of a query, and the controls made from it."""
    truth = sample.reference or Document()
    pool = Pool(_samples(), seed=0)
    answers = [truth]
    for control in CONTROLS.values():
        answer = control(sample, truth, pool)
        # Not every query has every control: one without images cannot lose them.
        if isinstance(answer, Document):
            answers.append(answer)
    return answers


def _image_request(sample: Query, seed: int) -> StageInput:
    """Ask for one image of the question's own words."""
    words = [segment.text for segment in sample.question if isinstance(segment, Text)]
    return ImageRequest(prompt=" ".join(words), seed=seed)


def _reach(spec: StageSpec, walks: Sequence[Any]) -> Workload:
    """Run the stages before `spec`, and return it with the inputs that walks give it."""
    stages = LocalStages()
    inputs: list[StageInput] = []
    for walk in walks:
        inputs += _inputs(spec, walk, stages)
    if not inputs:
        raise UsageError(f"no query of the sample set asks anything of stage {spec.name}")
    return spec, inputs


def _inputs(spec: StageSpec, walk: Any, stages: LocalStages) -> list[StageInput]:
    """Return a walk's inputs to the stage `spec`; none where it ends before."""
    try:
        jobs: list[Job] = next(walk)
        while jobs[0].spec.digest != spec.digest:
            jobs = walk.send(stages.outcomes(jobs))
    except StopIteration:
        return []
    return [with_blobs(job.input, with_bytes) for job in jobs]
