"""What a pinned protocol does to a run: it fills in what the user has not set.

    values = fill_from_pinned({"pinned": "geneval2/2026", "data": {"place": "geneval2:X"}})

What the user sets stays, and is named where it differs (`differences_of_run`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from plait.benchmarks.protocols.differences import (
    PinnedRunFacts,
    differences_of_scorer,
    differences_of_system,
)
from plait.benchmarks.protocols.pinned import PinnedProtocol, find_protocol
from plait.benchmarks.tasks.controls import is_reference
from plait.generators.catalogue import Named, by_name
from plait.generators.errors import UsageError
from plait.generators.system import System
from plait.pipelines.presets import RETIRED
from plait.pipelines.systems import parts_of
from plait.scorers.base import Scorer

_OF_JUDGES = ("mode", "rubric")
"""Settings that a scorer may also have from the run's own key of that name."""


def fill_from_pinned(
    values: Mapping[str, Any], *, joins: bool = False, today: date | None = None
) -> dict[str, Any]:
    """Return the values of a config with those of the protocol that it names as `pinned`.

    Only where the user gives none: data, systems, scorers, repeats, and settings of the
    models and scorers that are named. A config that `joins` a run takes systems and scorers
    from there. Without a protocol the values are returned as they are. UsageError for a
    protocol that is unknown, and for what it needs and neither it nor the user names.
    """
    name = values.get("pinned")
    if name is None:
        return dict(values)
    protocol = find_protocol(str(name))
    filled = dict(values)
    missing: list[str] = []
    data = dict(values.get("data") or {})
    if not data.get("place"):
        if protocol.data.place:
            filled["data"] = {**data, "place": protocol.data.place}
        else:
            missing.append(
                f"data: give --data {protocol.data.form}, with {protocol.data.get}"
            )
    if not (values.get("systems") or values.get("answers") or joins):
        filled["systems"] = _systems_of(protocol, today or date.today())
    if "scorers" not in values and not joins:
        filled["scorers"] = [*protocol.scorers]
    if protocol.run.repeats is not None:
        filled.setdefault("repeats", protocol.run.repeats)
    filled["models"] = _models_of(protocol, filled)
    rubrics = [*_missing_rubrics(protocol, filled)]
    missing += rubrics
    if missing:
        lines = "".join(f"  {line}\n" for line in missing)
        without = ""
        if rubrics:
            without = (
                "Without the rubric --mode corrected asks in plait's own wording, which is "
                "listed as a difference. "
            )
        raise UsageError(
            f"pinned protocol {protocol.name!r} needs what it does not hold:\n{lines}"
            f"{without}`plait list protocols` shows its published figures."
        )
    return filled


def _systems_of(protocol: PinnedProtocol, today: date) -> list[str]:
    """Return the systems of a protocol that can be asked; UsageError where none can."""
    systems = [name for name in protocol.systems if not _why_turned_off(name, today)]
    if systems:
        return systems
    raise UsageError(
        f"pinned protocol {protocol.name!r} names no system that can be run here; name "
        "one with --system"
    )


def _why_turned_off(system: str, today: date) -> str:
    """Say which of a system's models its provider has turned off; empty where none is."""
    for model in parts_of(system).models:
        entry = by_name(Named.LVLM).get(model)
        retired = RETIRED.get(str(entry.settings.get("model"))) if entry else None
        if retired is not None and retired.day <= today:
            return f"{model} was turned off on {retired.day}"
    return ""


def _models_of(
    protocol: PinnedProtocol, values: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the user's settings of models, and of those named the protocol's besides."""
    models: dict[str, dict[str, Any]] = {}
    for name, own in (values.get("models") or {}).items():
        models[name] = dict(own)
    named = set[str]()
    for names in (values.get("systems"), values.get("scorers")):
        for name in names or ():
            named |= _models_in(str(name))
    for name, table in protocol.models.items():
        if name in named:
            models[name] = {**table.settings, **models.get(name, {})}
    # What the user says for all judges goes before what the protocol says of one.
    run_wide = [key for key in _OF_JUDGES if values.get(key) is not None]
    for name, scorer in protocol.scorers.items():
        if name not in named:
            continue
        settings = dict(scorer.settings)
        for key in run_wide:
            settings.pop(key, None)
        if settings or name in models:
            models[name] = {**settings, **models.get(name, {})}
    return models


def _models_in(name: str) -> set[str]:
    """Return what settings may be for, given the name of a system or scorer."""
    asked = name.partition(":")[2]
    return {name, asked, *parts_of(name).models}


def _missing_rubrics(protocol: PinnedProtocol, values: Mapping[str, Any]) -> Iterator[str]:
    """Name the released texts that scorers in official mode ask by and nobody gives."""
    for name in values.get("scorers") or ():
        scorer = protocol.scorers.get(name)
        if scorer is None or not scorer.rubric:
            continue
        own = values["models"].get(name, {})
        mode = own.get("mode", values.get("mode"))
        rubric = own.get("rubric", values.get("rubric"))
        if mode == "official" and rubric is None:
            yield f"rubric: give --rubric official:PATH, your copy of {scorer.rubric}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedRemarks:
    """What is said of a run with a pinned protocol before it is made."""

    protocol: PinnedProtocol
    differs: Sequence[str]
    """In what the run differs, whatever the reason."""
    left_out: Sequence[str]
    """Systems with a published figure that are not in the run, and why."""

    @property
    def lines(self) -> list[str]:
        """All of it, a line each."""
        lines = [f"{self.protocol.name}: {self.protocol.help}"]
        lines += [f"differs: {text}" for text in self.differs]
        lines += [f"cannot be set: {unmet.text}" for unmet in self.protocol.unmet]
        lines += [f"not in the run: {text}" for text in self.left_out]
        return lines

    @property
    def as_json(self) -> dict[str, Any]:
        """What the manifest holds."""
        return {
            "protocol": self.protocol.name,
            "differs": [*self.differs],
            "left_out": [*self.left_out],
        }


def remarks_of_run(
    facts: PinnedRunFacts,
    systems: Sequence[System],
    scorers: Sequence[Scorer],
    settings: Mapping[str, Mapping[str, Any]],
    today: date | None = None,
) -> PinnedRemarks | None:
    """Return what is said of a run; None where its protocol is not known here.

    `settings` are those of scorers, by name.
    """
    protocol = facts.pinned
    if protocol is None:
        return None
    differs = [*facts.differences(protocol)]
    for system in systems:
        differs += differences_of_system(protocol, system)
    for scorer in scorers:
        own = settings.get(scorer.name, {})
        differs += differences_of_scorer(protocol, scorer.name, scorer.stages, own)
    there = {system.name for system in systems}
    left_out = _absent_systems(protocol, there, today or date.today())
    return PinnedRemarks(
        protocol=protocol,
        differs=tuple(dict.fromkeys(differs)),
        left_out=tuple(left_out),
    )


def _absent_systems(
    protocol: PinnedProtocol, there: Collection[str], today: date
) -> Iterator[str]:
    """Name systems with a published figure that are not `there`, with a reason if known."""
    for name in protocol.systems:
        if name in there:
            continue
        why = _why_turned_off(name, today)
        if is_reference(name) and not why:
            why = "the ground truth"
        yield f"{name} ({why})" if why else name
