"""What a user asks of `plait compare`, and what of a run it concerns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.runs.config import merged, parsed_setting
from benchmarks.runs.experiment import Experiment
from benchmarks.tasks.published import PREFIX, is_published, published
from generators.base import StageSpec, Weights
from generators.errors import UsageError
from generators.names import unknown
from generators.system import System
from pipelines.systems import Models, chat_spec
from scorers.features import gpt_tokens
from scorers.judging.resolve import JUDGES, resolve_judge
from scorers.judging.resolve import PREFIX as JUDGE
from scorers.judging.sources import OWN_WORDING, Mode, RubricSource
from scorers.pairwise import pairs, resolve_protocol
from scorers.pairwise.protocol import Pairwise

TRUTH = "gt"


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What is to be compared, by which protocol, and by which judge."""

    protocol: str
    judge: str
    """Name of a judge or chat model, with or without `judge:`."""
    baseline: str | None = None
    """A system of the run, `gt`, or `published:NAME`; all are paired without one."""
    systems: tuple[str, ...] = ()
    """Only these; by default all of the run."""
    mode: Mode = "corrected"
    rubric: RubricSource = OWN_WORDING
    """Whose wording; a released one is a checkout of the benchmark, or its prompts."""
    weights: Weights | None = None
    """Of the judge; by default the run's."""
    judgings: int = 1
    """How often the judge is asked about each pair, with different seeds."""
    address: str | None = None
    settings: tuple[str, ...] = ()
    """`models.NAME.key=value` for the judge."""


def protocol_of(wanted: CompareOptions) -> Pairwise:
    """The protocol; UsageError for unknown names and texts that are not published."""
    counted = wanted.protocol == "probench" and wanted.mode == "official"
    options = {"count": gpt_tokens()} if counted else {}
    return resolve_protocol(wanted.protocol, wanted.mode, wanted.rubric.path, **options)


def systems_of(experiment: Experiment, wanted: CompareOptions) -> dict[str, System]:
    """The systems that play, by name, the baseline among them.

    UsageError for unknown names, and when there are fewer than two.
    """
    names = list(wanted.systems) or [s.name for s in experiment.systems]
    if wanted.baseline is not None and wanted.baseline not in names:
        names.insert(0, wanted.baseline)
    systems = {name: _system(experiment, name) for name in names}
    if len(systems) < 2:
        raise UsageError(
            f"a comparison needs two systems, but there is {', '.join(systems) or 'none'}"
        )
    return systems


def _system(experiment: Experiment, name: str) -> System:
    known = {s.name: s for s in experiment.systems}
    if name in known:
        return known[name]
    if is_published(name):
        return published(name, experiment.task)
    if name == TRUTH:
        return System(name=TRUTH, draft=None)
    published_answers = [f"{PREFIX}{writer}" for writer in experiment.task.answers]
    raise unknown("system", name, [*known, TRUTH, *published_answers])


def pairs_of(
    systems: Mapping[str, System], wanted: CompareOptions
) -> list[tuple[str, str]]:
    """Who is compared with whom."""
    return pairs(list(systems), wanted.baseline)


def models_of(experiment: Experiment, wanted: CompareOptions) -> Models:
    """What the run and the command say about the judge's model.

    UsageError for `--set` of anything else, which would change nothing.
    """
    config = experiment.config
    _refuse_settings_of_others(wanted)
    values: dict[str, Any] = {"models": config.models}
    for setting in wanted.settings:
        values = merged(values, parsed_setting(setting))
    return Models(
        weights=wanted.weights or config.weights or "pretrained",
        overrides=values["models"],
        gpu_gib=config.engine.gpu_memory_gib,
    )


def _refuse_settings_of_others(wanted: CompareOptions) -> None:
    bare = wanted.judge.removeprefix(JUDGE)
    # A chat model goes by its own name; `judge:` alone is a rubric's settings.
    name = f"{JUDGE}{bare}" if bare in JUDGES else bare
    for setting in wanted.settings:
        parsed = parsed_setting(setting)
        models = parsed.pop("models", None)
        if parsed or not isinstance(models, Mapping):
            raise UsageError(
                f"--set {setting!r} says nothing of the judge; give models.NAME.key=value"
            )
        for named, values in models.items():
            if named != name:
                raise unknown("judge in --set models", named, [name])
            if not isinstance(values, Mapping):
                raise UsageError(f"--set {setting!r} names no key of {name!r}")


def judge_stage(name: str, models: Models) -> StageSpec:
    """The stage of the judge `NAME` or `judge:NAME`, without any rubric.

    Raises UsageError for names that are neither a judge nor a chat model.
    """
    full = name if name.startswith(JUDGE) else f"{JUDGE}{name}"
    judge = resolve_judge(
        full,
        models.weights,
        models.of(full),
        models.gpu_gib,
        chat=lambda model: chat_spec(model, models),
    )
    return judge.stage
