"""The options of `plait compare`, and what they name in a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.runs.config import parsed_setting, with_settings
from benchmarks.runs.experiment import Experiment
from benchmarks.tasks.published import PREFIX, is_published, published
from generators.base import StageSpec, WeightsName
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
    weights: WeightsName | None = None
    """Of the judge; by default the run's."""
    judgings: int = 1
    """How often the judge is asked about each pair, with different seeds."""
    address: str | None = None
    settings: tuple[str, ...] = ()
    """`models.NAME.key=value` for the judge."""


def protocol_of(options: CompareOptions) -> Pairwise:
    """The protocol; UsageError for unknown names and texts that are not published."""
    counted = options.protocol == "probench" and options.mode == "official"
    arguments = {"count": gpt_tokens()} if counted else {}
    return resolve_protocol(
        options.protocol, options.mode, options.rubric.path, **arguments
    )


def systems_of(experiment: Experiment, options: CompareOptions) -> dict[str, System]:
    """The systems to compare, by name, with the baseline.

    UsageError for unknown names, and when there are fewer than two.
    """
    names = list(options.systems) or [s.name for s in experiment.systems]
    if options.baseline is not None and options.baseline not in names:
        names.insert(0, options.baseline)
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
    systems: Mapping[str, System], options: CompareOptions
) -> list[tuple[str, str]]:
    """The pairs of systems to compare."""
    return pairs(list(systems), options.baseline)


def models_of(experiment: Experiment, options: CompareOptions) -> Models:
    """Settings of the judge's model, from the run and the command.

    UsageError for `--set` of anything else, which would have no effect.
    """
    config = experiment.config
    _refuse_settings_of_others(options)
    values = with_settings({"models": config.models}, options.settings)
    return Models(
        weights=options.weights or config.weights or "pretrained",
        overrides=values["models"],
        gpu_gib=config.engine.gpu_memory_gib,
    )


def _refuse_settings_of_others(options: CompareOptions) -> None:
    bare = options.judge.removeprefix(JUDGE)
    # A chat model has its own name; `judge:NAME` are settings of a rubric judge.
    name = f"{JUDGE}{bare}" if bare in JUDGES else bare
    for setting in options.settings:
        parsed = parsed_setting(setting)
        models = parsed.pop("models", None)
        if parsed or not isinstance(models, Mapping):
            raise UsageError(
                f"--set {setting!r} does not concern the judge; give models.NAME.key=value"
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
