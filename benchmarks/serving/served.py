"""What is served: what answers chats, what draws from prompts, and what scores answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from plait.benchmarks.runs.config import RunConfig
from plait.benchmarks.runs.resolving import scorer_of
from plait.generators.base import Kind, StageSpec, WeightsName
from plait.generators.catalogue import is_custom
from plait.generators.custom import custom_spec, custom_system
from plait.generators.errors import UsageError
from plait.generators.keys import digest
from plait.generators.system import System
from plait.pipelines.composition import text_alone
from plait.pipelines.systems import (
    Models,
    is_lvlm,
    is_t2i,
    lvlm_spec,
    parts_of,
    resolve,
    t2i_spec,
)
from plait.scorers.base import Scorer
from plait.scorers.judging.resolve import is_judge, judge_settings, refuse_mini_lvlm
from plait.scorers.pairwise.scorer import PairSettings

_FIGURES = "it gives one figure for all answers of a system and no value of a single one"
_PAIRS = (
    "it judges an answer beside that of another system, and a request brings one answer"
)


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A system or model, scorers, or both behind HTTP."""

    name: str
    """Of the system or model; of scorers alone, theirs."""
    weights: WeightsName
    system: System | None = None
    """Answers chats; None for a T2I model."""
    t2i: StageSpec | None = None
    """Draws from prompts; None where images are not made from prompts."""
    t2i_name: str = ""
    may_leave_images_out: bool = True
    """Whether a client can ask for text alone: a native model cannot be told."""
    scorers: Mapping[str, Scorer] = field(default_factory=dict)
    """By name, those that score answers: the scorers that a run of these names has."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages of the system or model, in chain order."""
        if self.system is not None:
            return self.system.stages
        return () if self.t2i is None else (self.t2i,)

    @property
    def every_stage(self) -> tuple[StageSpec, ...]:
        """Those, and the stages of the scorers."""
        stages = list(self.stages)
        for scorer in self.scorers.values():
            stages += scorer.stages
        return tuple(stages)

    @property
    def has_model(self) -> bool:
        """Whether there is a system or model beside the scorers."""
        return self.system is not None or self.t2i is not None

    @property
    def title(self) -> str:
        """What is served, for people."""
        names = ", ".join(self.scorers)
        return f"{self.name} with {names}" if self.has_model and names else self.name

    @property
    def abilities(self) -> dict[str, tuple[str, ...]]:
        """What each name can do that a request may give as its model."""
        can: tuple[str, ...] = ()
        if self.system:
            can = (*can, "chat")
        if self.t2i:
            can = (*can, "images")
        abilities = {self.name: can} if can else {}
        if self.t2i:
            abilities.setdefault(self.t2i_name, ("images",))
        return abilities

    @property
    def fingerprint(self) -> str:
        """Changes with anything that can change an answer."""
        return f"plait-{digest([s.digest for s in self.stages])[:12]}"


def resolve_served(name: str, models: Models) -> ServedModel:
    """Return what `plait serve NAME` serves; UsageError says what is valid."""
    own = partial(ServedModel, name=name, weights=models.weights)
    if is_custom(name):
        kinds = [Kind.DRAFT, Kind.RENDER]
        spec = custom_spec(name, models.weights, models.of(name), kinds)
        if spec.kind is Kind.RENDER:
            return own(t2i=spec, t2i_name=name)
        own_system = custom_system(name, models.weights, models.of(name))
        return own(system=own_system, may_leave_images_out=False)
    if is_t2i(name):
        return own(t2i=t2i_spec(name, models), t2i_name=name)
    if is_lvlm(name):
        return own(system=text_alone(name, lvlm_spec(name, models), name))
    system = resolve(name, models)
    if not system.stages:
        raise UsageError(
            f"system {name!r} cannot be served: its answers come from a task set"
        )
    # A text-to-image model of two stages draws for the system alone.
    render = None if "condition" in system.roles else system.roles.get("render")
    if render is not None and "draft" not in system.roles:
        return own(t2i=render, t2i_name=system.t2i or "")
    t2i = parts_of(name).t2i if render is not None else None
    return own(
        system=system,
        t2i=render if t2i else None,
        t2i_name=t2i or "",
        may_leave_images_out=system.may_leave_images_out,
    )


def resolve_scorers(config: RunConfig, models: Models) -> dict[str, Scorer]:
    """Return the scorers that a config names, by name.

    UsageError for an unknown one, and for one that has no value of a single answer.
    """
    scorers = {}
    for name in config.scorers:
        if is_judge(name) and issubclass(judge_settings(name), PairSettings):
            raise UsageError(f"scorer {name!r} cannot be served: {_PAIRS}")
        refuse_mini_lvlm(name, models.weights)
        scorer = scorer_of(name, config, models)
        if scorer.of_sets:
            raise UsageError(f"scorer {name!r} cannot be served: {_FIGURES}")
        scorers[name] = scorer
    return scorers
