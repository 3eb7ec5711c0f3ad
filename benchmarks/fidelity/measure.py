"""Runs all ways and compares them: the whole measurement as one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.fidelity.answers import WayAnswers, answers_of
from benchmarks.fidelity.comparison import MEASURES, fidelity_of
from benchmarks.fidelity.config import FidelityConfig, queries_of
from benchmarks.fidelity.gates import REPEAT, FidelityGate
from benchmarks.fidelity.pictures import PictureMeter, picture_meter
from benchmarks.fidelity.report import FidelityReport, gated
from benchmarks.fidelity.scores import WayScore, scores_of
from benchmarks.fidelity.ways import ResolvedWay
from benchmarks.local import LocalScorer
from cluster.manifest import environment, now
from generators.base import Kind
from generators.document import Sample
from generators.errors import PlaitError
from generators.system import Prompter

Say = Callable[[str], None]


class NoReference(PlaitError, RuntimeError):
    """The first way cannot be run, so that nothing can be compared with it."""


def measured(
    config: FidelityConfig,
    command: Sequence[str] = (),
    say: Say = lambda line: None,
    *,
    clip_required: bool = False,
) -> FidelityReport:
    """Answer all queries in every way, and compare the answers.

    Everything named is resolved before any model is loaded. `say` is given a line of
    progress. Raises UsageError for names, settings and gates that are not valid,
    NoReference where the first way cannot be run.
    """
    ways = config.resolve()
    samples, prompt, remarks = queries_of(config)
    scorers = [_scorer(name, config) for name in config.scorers]
    gates = _gates(config, ways)
    meter = _meter(config, ways, clip_required)
    answers = _answers(config, ways, samples, prompt, say)
    scores: list[WayScore] = []
    for scorer in scorers:
        say(f"scoring with {scorer.scorer.name}")
        scores += scores_of(scorer.scorer, samples, answers)
    say("comparing")
    fidelity = [fidelity_of(a, answers[0], samples, meter) for a in answers]
    return FidelityReport(
        name=config.system,
        samples=samples,
        ways=fidelity,
        scores=scores,
        gates=gated(gates, fidelity, scores),
        notes=[*remarks, *meter.notes],
        about=_about(config, command),
    )


def _scorer(name: str, config: FidelityConfig) -> LocalScorer:
    return LocalScorer.named(name, weights=config.weights, models=config.models)


def _gates(config: FidelityConfig, ways: Sequence[ResolvedWay]) -> list[FidelityGate]:
    names = [*MEASURES, *(REPEAT + name for name in MEASURES)]
    for scorer in config.scorers:
        names += [f"score.{scorer}.mean", f"score.{scorer}.difference"]
    labels = [way.label for way in ways]
    return [FidelityGate.parsed(text, labels, names) for text in config.gates]


def _meter(
    config: FidelityConfig, ways: Sequence[ResolvedWay], required: bool
) -> PictureMeter:
    """No networks are loaded where no way can draw."""
    draws = any(spec.kind is Kind.RENDER for way in ways for spec in way.stages)
    return picture_meter(
        weights=config.weights,
        clip=None if config.clip == "off" or not draws else config.clip,
        lpips=config.lpips if draws else None,
        required=required,
    )


def _answers(
    config: FidelityConfig,
    ways: Sequence[ResolvedWay],
    samples: Sequence[Sample],
    prompt: Prompter,
    say: Say,
) -> list[WayAnswers]:
    answers: list[WayAnswers] = []
    for way in ways:

        def started(number: int, label: str = way.label) -> None:
            say(f"{label}: run {number} of {config.repeats}, {len(samples):,} queries")

        made = answers_of(
            way,
            samples,
            prompt,
            seed=config.seed,
            repeats=config.repeats,
            on_round=started,
        )
        if made.problem:
            if not answers:
                raise NoReference(
                    f"the reference {way.label!r} cannot be run: {made.problem}"
                )
            say(f"{way.label} cannot be run: {made.problem}")
        answers.append(made)
    return answers


def _about(config: FidelityConfig, command: Sequence[str]) -> dict[str, Any]:
    from benchmarks.speed.instruments.device import device_name

    return {
        **environment(),
        "device": device_name(),
        "finished": now(),
        "command": ["plait", "bench", "fidelity", *command],
        "config": config.model_dump(mode="json"),
    }
