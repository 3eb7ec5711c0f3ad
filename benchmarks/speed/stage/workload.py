"""The stage to measure, and its inputs as in a run on the sample set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.speed.stage.whole import Whole
from benchmarks.tasks.controls import CONTROLS, Pool
from benchmarks.tasks.task_set import load
from cluster.local import LocalStages, at_hand
from generators.base import Job, StageInput, StageSpec
from generators.document import Document, ImageRequest, Sample, Text, with_blobs
from generators.errors import UsageError
from generators.names import unknown
from generators.system import Repetition, System, answer
from pipelines.systems import (
    Models,
    artist_spec,
    chat_spec,
    is_artist,
    is_writer,
    resolve,
    writer_spec,
)
from scorers import resolve_scorer

CLIPSCORE = "clipscore"
PARTS = ("draft", "condition", "render")


@dataclass(frozen=True)
class Workload:
    """A stage and what it is given."""

    spec: StageSpec
    inputs: Sequence[StageInput]


def whole(name: str, models: Models, queries: int) -> tuple[Whole, list[Sample]]:
    """A whole system and the samples it answers."""
    return Whole(resolve(name, models), load("sample").prompt), _samples()[:queries]


def of_system(name: str, part: str, models: Models, queries: int) -> Workload:
    """A part of a system, an LVLM or a text-to-image model, on `queries` queries.

    The stages before it are run, one record at a time. UsageError where the system has no
    such part or the sample set has no job for it.
    """
    samples = _samples()[:queries]
    if is_artist(name):
        spec = artist_spec(name, models)
        return Workload(spec, [_drawing(sample, i) for i, sample in enumerate(samples)])
    if is_writer(name):
        system = System(name=name, draft=writer_spec(name, models))
    else:
        system = resolve(name, models)
    spec = getattr(system, part) or _no_part(name, part, system)
    earlier = _Earlier(spec)
    prompt = load("sample").prompt
    walks = [answer(system, sample, Repetition(prompt)) for sample in samples]
    return _checked(spec, [job for walk in walks for job in earlier.inputs(walk)])


def of_scorer(
    name: str, weights: Any, settings: Mapping[str, Any], queries: int, answers: int = 1
) -> Workload:
    """The last stage of a scorer, given `answers` answers to each of `queries` queries.

    These are the ground truth and the controls made from it, query by query, like the
    answers of several systems in a run. CLIPScore remembers no features of earlier rounds,
    unless `settings` say so.
    """
    models = Models(weights=weights)
    settings = {"remembered": 0, **settings} if name == CLIPSCORE else settings
    scorer = resolve_scorer(
        name, weights, dict(settings), chat=lambda model: chat_spec(model, models)
    )
    spec = scorer.stages[-1]
    earlier = _Earlier(spec)
    pairs = [(s, d) for s in _samples()[:queries] for d in _answers(s)[:answers]]
    walks = [scorer.judge(sample, document) for sample, document in pairs]
    return _checked(spec, [job for walk in walks for job in earlier.inputs(walk)])


def _samples() -> list[Sample]:
    samples = load("sample").samples
    return [s for s in samples if isinstance(s, Sample) and s.wants_images]


def _answers(sample: Sample) -> list[Document]:
    """The ground truth of a query, and the controls made from it."""
    truth, pool = sample.reference or Document(), Pool(_samples(), seed=0)
    answers = [control(sample, truth, pool) for control in CONTROLS.values()]
    return [truth, *(document for document in answers if isinstance(document, Document))]


def _drawing(sample: Sample, seed: int) -> StageInput:
    """One picture of the question's own words."""
    words = " ".join(s.text for s in sample.question if isinstance(s, Text))
    return ImageRequest(prompt=words, seed=seed)


def _no_part(name: str, part: str, system: System) -> StageSpec:
    has = [p for p in PARTS if getattr(system, p) is not None]
    raise unknown(f"part of system {name!r}", part, has)


def _checked(spec: StageSpec, inputs: Sequence[StageInput]) -> Workload:
    if not inputs:
        raise UsageError(f"no query of the sample set asks anything of stage {spec.name}")
    return Workload(spec, inputs)


class _Earlier:
    """Runs the stages before the measured one."""

    def __init__(self, measured: StageSpec) -> None:
        self._measured = measured
        self._stages = LocalStages()

    def inputs(self, walk: Any) -> list[StageInput]:
        """The walk's inputs to the measured stage; none where it ends before."""
        try:
            jobs: list[Job] = next(walk)
            while jobs[0].spec.digest != self._measured.digest:
                jobs = walk.send(self._stages.outcomes(jobs))
        except StopIteration:
            return []
        return [with_blobs(job.input, at_hand) for job in jobs]
