"""In what a run differs from its pinned protocol, in words.

Of the run before it is made, and of its results: systems, scorers and queries are the same
values in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plait.benchmarks.protocols.pinned import PinnedProtocol, find_protocol, protocols
from plait.generators.base import StageSpec
from plait.generators.system import DescribedSystem

_PUBLISHED = "pretrained"
_DEFAULT = "the default"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedRunFacts:
    """What of a run its protocol is compared with, besides systems and scorers."""

    protocol: str
    """NAME/EDITION; that of a later version of plait is unknown here."""
    task: str
    """Name of the task set."""
    digest: str
    """Of the data; empty where it is not known."""
    queries: int
    """How many are asked."""
    repeats: int

    @property
    def pinned(self) -> PinnedProtocol | None:
        """The protocol; None where this version of plait does not have it."""
        return find_protocol(self.protocol) if self.protocol in protocols() else None

    def differences(self, protocol: PinnedProtocol) -> Iterator[str]:
        """Say in what data, queries and repeats differ from a protocol's."""
        data = protocol.data
        if self.task != data.task:
            yield f"data {self.task} instead of {data.task}"
            return
        if data.digest and self.digest and self.digest != data.digest:
            yield f"data of digest {self.digest[:12]} instead of {data.digest[:12]}"
        if self.queries != data.queries:
            yield f"{self.queries:,} of {data.queries:,} queries"
        repeats = protocol.run.repeats
        if repeats is not None and self.repeats != repeats:
            yield f"repeats {self.repeats} instead of {repeats}"


def differences_of_system(
    protocol: PinnedProtocol, system: DescribedSystem
) -> Iterator[str]:
    """Say which weights and settings of a system differ from those of a protocol."""
    yield from _other_weights(system.stages)
    for model, table in protocol.models.items():
        stages = [stage for stage in system.stages if _is_of(stage, model)]
        for key, value in table.settings.items():
            found = [stage.settings[key] for stage in stages if key in stage.settings]
            if found and value not in found:
                yield f"{model}: {key} {found[0]} instead of {value}"


def differences_of_scorer(
    protocol: PinnedProtocol,
    name: str,
    stages: tuple[StageSpec, ...],
    settings: Mapping[str, Any],
) -> Iterator[str]:
    """Say which weights and settings of a scorer differ from those of a protocol.

    `settings` are those that its config gives. A scorer of another name is none of the
    protocol's, and differs in all.
    """
    yield from _other_weights(stages)
    if name not in protocol.scorers:
        yield f"scorer {name} instead of {' or '.join(protocol.scorers)}"
        return
    table = protocol.scorers[name]
    for key, value in table.settings.items():
        own = settings.get(key, _DEFAULT)
        if own != value:
            yield f"{name}: {key} {own} instead of {value}"
    rubric = str(settings.get("rubric", ""))
    if table.rubric and not rubric.startswith("official:"):
        yield f"{name}: rubric {rubric or _DEFAULT} instead of {table.rubric}"


def _is_of(stage: StageSpec, model: str) -> bool:
    """Return whether a stage is one of a model: named as it is, or as a part of it.

    That of a user's class `module:Class` has the name of the class.
    """
    own = model.partition(":")[2]
    return stage.name in (model, own) or stage.name.startswith((f"{model}-", f"{model} "))


def _other_weights(stages: tuple[StageSpec, ...]) -> Iterator[str]:
    """Say which stages have other weights than published ones, by kind."""
    by_kind: dict[str, list[str]] = {}
    for stage in stages:
        if stage.weights not in (None, _PUBLISHED):
            by_kind.setdefault(str(stage.weights), []).append(stage.name)
    for kind, names in by_kind.items():
        yield f"{kind} weights of {', '.join(names)}"
