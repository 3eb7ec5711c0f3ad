"""The exact prompts, replies, settings and seeds behind one sample of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich.text import Text as Styled

from benchmarks.runs.experiment import Experiment
from cluster.plan import evaluated, lookup_in
from cluster.records import RecordRow, decode
from cluster.store import Store, notes_of
from generators.base import Job, Result, outcome_name
from generators.document import (
    Candidate,
    Draft,
    Image,
    ImageRequest,
    Malformed,
    Request,
    Sample,
    Text,
)
from generators.names import unknown
from generators.system import TRIES, System


def describe(
    experiment: Experiment, store: Store, sample_id: str, system: str | None
) -> Iterator[str | Styled]:
    """Lines for the terminal; UsageError for an unknown sample or system."""
    samples = [s for s in experiment.samples if s.id == sample_id]
    if not samples:
        raise unknown("sample", sample_id, (s.id for s in experiment.samples))
    systems = [s for s in experiment.systems if system in (None, s.name)]
    if not systems:
        raise unknown("system", str(system), (s.name for s in experiment.systems))
    for sample in samples:
        yield Styled.assemble((sample.id, "bold"), f"  {sample.category}, {sample.field}")
        if isinstance(sample, Malformed):
            yield f"malformed: {sample.reason}"
            if experiment.plan.query(sample) is None:
                continue
        for one in systems:
            for repeat in range(experiment.config.repeats):
                yield from _system(experiment, store, one, sample, repeat)


def _system(
    experiment: Experiment,
    store: Store,
    system: System,
    sample: Sample | Malformed,
    repeat: int,
) -> Iterator[str | Styled]:
    again = f", repeat {repeat + 1}" if experiment.config.repeats > 1 else ""
    yield Styled.assemble("\n", (system.name, "bold"), again)
    lookup = lookup_in(store, notes=True)
    answered = evaluated(experiment.plan, (system, sample, repeat), lookup)
    jobs = {job.key: job for asked in answered.jobs.values() for job in asked}
    for job in jobs.values():
        yield from _job(store, job)
    for tried in getattr(answered.document, "notes", {}).get(TRIES, ()):
        yield f"  drawn: {json.dumps(tried, ensure_ascii=False)}"
    if not answered.complete:
        yield Styled("not finished", "yellow")
    for name, score in answered.scores.items():
        if isinstance(score, Result):
            yield f"  {name}: {outcome_name(score)}, {score.value.value:z.4g}"
            yield f"    {json.dumps(dict(score.value.parts), ensure_ascii=False)}"
        elif score is not None:
            yield f"  {name}: {outcome_name(score)}, {score.reason}"
            if parts := getattr(score, "parts", {}):
                yield f"    {json.dumps(dict(parts), ensure_ascii=False)}"


def _job(store: Store, job: Job) -> Iterator[str | Styled]:
    row = store.row(job)
    state = "not made" if row is None else row.outcome
    settings = json.dumps(dict(job.spec.settings), ensure_ascii=False)
    about = f"({job.spec.kind.value}) {state}, key {store.key_of(job)}"
    yield Styled.assemble("  ", (job.spec.name, "cyan"), f" {about}")
    yield f"    model {job.spec.identity or job.spec.target}"
    yield f"    settings {settings}"
    for line in _input(job.input):
        yield f"    {line}"
    if row is not None:
        yield from (f"    {line}" for line in _output(job, row))


def _input(value: Request | ImageRequest | Candidate) -> Iterator[str]:
    if isinstance(value, Request):
        yield f"seed {value.seed}"
        for turn in value.turns:
            for part in turn.content:
                yield f"{turn.role}: {_shown(part)}"
    elif isinstance(value, ImageRequest):
        yield f"seed {value.seed}"
        yield f"prompt: {value.prompt if value.payload is None else '(payload)'}"
        yield from (f"context: {_shown(part)}" for part in value.context)


def _shown(part: Text | Image) -> str:
    return part.text if isinstance(part, Text) else f"(image {part.place or part.digest})"


def _output(job: Job, row: RecordRow) -> Iterator[str]:
    if row.reason:
        yield f"reason: {row.reason}"
    for name, value in notes_of(row).items():
        # The messages sent to an endpoint repeat the turns above.
        if name != "prompt" or isinstance(value, str):
            yield f"{name}: {value}"
    value = getattr(decode(job.spec.kind, row), "value", None)
    if isinstance(value, Draft):
        yield from _reply(value)


def _reply(draft: Draft) -> Iterator[str]:
    """The text and what is asked for; part by part where images came with it."""
    if not draft.images:
        yield f"reply: {draft.text}"
    for segment in draft.segments:
        if isinstance(segment, ImageRequest):
            yield f"asks for an image: {segment.prompt or '(payload)'}"
        elif draft.images:
            yield f"reply: {_shown(segment)}"
