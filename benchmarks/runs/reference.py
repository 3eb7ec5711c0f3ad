"""The reference of a run with `[fidelity]`: two small runs in RUN/fidelity.

A few queries are answered by the reference and by the run itself, each in a run directory
of its own, so that no record of one counts as the other's: settings such as `batch_size`
change no key. What differs in nothing at all, such as an LVLM before another text-to-image
model, or a scorer, is made once for both. The run then goes on from the records of its own
part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from plait.benchmarks.runs.config import FidelityConfig, ReferenceSettings, RunConfig
from plait.benchmarks.runs.experiment import FIDELITY, Experiment
from plait.cluster.manifest import read_entries, write_json
from plait.cluster.parts import parts_in
from plait.cluster.store import Store
from plait.generators.base import StageSpec
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.keys import digest

_NOT_ASKED: dict[str, Any] = {"out": None, "fidelity": None, "pinned": None}
"""What the small runs do without."""


@dataclass(frozen=True, kw_only=True)
class FidelityPlan:
    """What is to be shown of a run before it answers all of its queries."""

    fidelity: FidelityConfig
    root: AnyPath
    """The run directory."""
    fast: RunConfig
    """The run, of a few queries."""
    reference: RunConfig | AnyPath
    """The same without its lever, or a finished run."""
    key: str
    """Names all that the result depends on."""

    @classmethod
    def of(cls, experiment: Experiment) -> FidelityPlan | None:
        """Return what the config of `experiment` asks for, if it asks for anything."""
        config = experiment.config
        fidelity = config.fidelity
        if fidelity is None:
            return None
        measured = {margin.scorer for margin in fidelity.parsed_margins}
        scorers = tuple(name for name in config.scorers if name in measured)
        limit = min(fidelity.queries, len(experiment.queries))
        few = config.model_copy(update={**_NOT_ASKED, "limit": limit, "scorers": scorers})
        fast = _in_its_folder(few, experiment, "run")
        reference: RunConfig | AnyPath
        if isinstance(fidelity.reference, ReferenceSettings):
            models = {**config.models, **fidelity.reference.models}
            slow = few.model_copy(update={"models": models})
            reference = _in_its_folder(slow, experiment, "reference")
        else:
            reference = fidelity.reference
        asked = fidelity.model_dump(mode="json")
        digests = [stage.digest for stage in _stages(experiment, scorers)]
        return cls(
            fidelity=fidelity,
            root=config.root,
            fast=fast,
            reference=reference,
            key=digest(fast.root.name, asked, sorted(digests)),
        )

    @property
    def result(self) -> dict[str, Any]:
        """What was shown before, of the same; empty where nothing was."""
        entries = read_entries(self.root / FIDELITY)
        return entries if entries.get("key") == self.key else {}

    @property
    def passed(self) -> bool:
        """Whether all margins were shown before."""
        return bool(self.result.get("passed"))

    def keep(self, result: dict[str, Any]) -> None:
        """Keep the result beside the small runs, for the manifest and later commands."""
        about = {"key": self.key, "queries": self.fidelity.queries}
        write_json(self.root / FIDELITY, about | result)

    def __str__(self) -> str:
        margins = [f"{name}={value}" for name, value in self.fidelity.margins.items()]
        if isinstance(self.reference, RunConfig):
            who = "the reference and this run answer"
        else:
            who = f"compared with {self.reference}, this run answers"
        state = "; shown" if self.passed else ""
        return f"{who} {self.fast.limit:,} queries first: {', '.join(margins)}{state}"


def _stages(experiment: Experiment, scorers: Sequence[str]) -> Iterator[StageSpec]:
    """Yield the stages of the systems, and of those of the scorers that are named."""
    for system in experiment.systems:
        yield from system.stages
    for scorer in experiment.scorers:
        if scorer.name in scorers:
            yield from scorer.stages


def _in_its_folder(few: RunConfig, experiment: Experiment, name: str) -> RunConfig:
    """Return a small run in its folder, to which systems and scorers may be added.

    With other settings, and with data that have changed since, it has another folder.
    """
    naming = few.model_copy(update={"systems": (), "scorers": (), "variants": {}})
    own = digest(naming.digest, experiment.task.about.get("digest"))[:10]
    folder = experiment.config.root / FIDELITY.partition("/")[0] / f"{name}-{own}"
    return few.model_copy(update={"out": folder})


def changed_systems(fast: Experiment, reference: Experiment) -> list[str]:
    """Return the systems of which a stage differs, if only in how it is run.

    UsageError where none does.
    """
    there = {system.name: system for system in reference.systems}
    changed = []
    for system in fast.systems:
        if system.stages != there[system.name].stages:
            changed.append(system.name)
    if not changed:
        raise UsageError(
            "fidelity.reference is the run itself: no setting of its models differs. Name "
            "the models that are faster here with their settings in the reference, such as "
            "[fidelity.reference.models.flux]"
        )
    return changed


def shared_stages(fast: Experiment, reference: Experiment) -> list[StageSpec]:
    """Return the stages of both of which nothing differs, not even how they are run."""
    # Compared as values: equal digests would not tell how a stage is run.
    there = [*reference.plan.stages]
    return [stage for stage in fast.plan.stages if stage in there]


def share_records(source: AnyPath, target: AnyPath, stages: Iterable[StageSpec]) -> None:
    """Copy the records of stages from one run directory to another.

    A part is named by the digest of its bytes, so that none is copied twice.
    """
    here = Store(source)
    there = Store(target)
    for stage in stages:
        copies = there.folder(stage)
        known = {part.name for part in parts_in(copies)}
        for part in parts_in(here.folder(stage)):
            if part.name not in known:
                write_whole(copies / part.name, part.read_bytes())
