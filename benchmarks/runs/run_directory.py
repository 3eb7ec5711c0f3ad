"""What a run directory says of its run: manifest, config, and stages as recorded.

A run made by an earlier version of plait keeps its records under the digests that its
stages had then. Commands that only read (`report`, `show`, `export`) use those digests;
commands that make records say what they would make again, and stop without --remake.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from plait.benchmarks.runs.config import (
    RunConfig,
    merge,
    with_absolute_paths,
    with_data_table,
)
from plait.benchmarks.wording import quantity
from plait.cluster.run import MANIFEST
from plait.cluster.store import Store
from plait.generators.base import SCHEMA_VERSION, Kind, StageSpec, import_target
from plait.generators.buckets import AnyPath, BucketPath
from plait.generators.errors import UsageError, WriteError
from plait.generators.keys import digest
from plait.generators.names import validate
from plait.generators.packs import PackPath
from plait.scorers.base import Scorer

FORMAT = 1
"""Of a run directory, under `plait` in its manifest."""


def read_manifest(root: AnyPath) -> dict[str, Any]:
    """Return the manifest of the run at `root`; UsageError where none can be read."""
    path = root / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{root} is not a run directory: it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("config"), dict):
        raise UsageError(f"{path} is not the manifest of a run: it holds no config")
    if manifest.get("plait", FORMAT) != FORMAT:
        raise UsageError(
            f"{path} has format {manifest['plait']}, and this version of plait reads "
            f"format {FORMAT}; read it with the version that made it"
        )
    return manifest


def former_config(
    root: AnyPath, manifest: Mapping[str, Any], changes: Mapping[str, Any] | None = None
) -> RunConfig:
    """The configuration that the run at `root` was made with, with `changes` applied."""
    former = manifest["config"]
    own = {"out": str(root)} | dict(changes or {})
    values = merge(with_data_table(former), with_data_table(own))
    config = with_absolute_paths(validate(RunConfig, values, ""))
    return config.with_rubrics(lambda rubric: rubric.or_copy_in(config.root))


Recorded = Mapping[str, Any]
"""A manifest's entry for one stage."""


@dataclass(frozen=True, slots=True)
class Supersession:
    """A stage whose records in a run directory are not found by today's keys."""

    spec: StageSpec
    """As it is today."""
    recorded: Recorded
    """As the run recorded it."""
    records: int
    """Records kept under the recorded digest."""

    def __str__(self) -> str:
        return (
            f"{self.spec.name}: {quantity(self.records, 'record')} ({self._difference()})"
        )

    def _difference(self) -> str:
        """Say in what the stage differs from what the run recorded."""
        today = stage_facts(self.spec)
        faults = self.spec.faults_of(self.recorded["version"])
        why = {"version": f", {faults}," if faults else ""}
        changes = []
        for name in ("kind", "version", "identity", "weights", "settings"):
            then = self.recorded.get(name)
            if name == "kind" and self.spec.was_of_kind(str(then)):
                continue  # which the key does not tell apart
            if then != today[name]:
                changes.append(f"{name} {then!r}{why.get(name, '')} is now {today[name]!r}")
        if self.spec.seeded and not _was_seeded(self.spec, self.recorded):
            changes.append("its inputs have seeds now, unless it sets seeded = False")
        if not changes:
            return "an earlier version of plait named its results differently"
        return "; ".join(changes)


def stage_facts(spec: StageSpec) -> dict[str, Any]:
    """Return a manifest's entry for one stage."""
    return {
        "digest": spec.digest,
        "kind": spec.kind.value,
        "stage": spec.stage,
        "class": spec.target,
        "version": spec.version,
        "identity": spec.identity,
        "weights": spec.weights,
        "settings": dict(spec.settings),
        "seeded": spec.seeded,
        "batch_size": spec.placement.batch_size,
    }


def digest_in_run(facts: Recorded) -> str:
    """Digest under which a run keeps a stage's records.

    Manifests without one are older, from when the digest contained the class's module.
    """
    if "digest" in facts:
        return str(facts["digest"])
    names = ("kind", "class", "version", "identity", "weights", "settings")
    return digest(SCHEMA_VERSION, *[facts[name] for name in names])


class _RecordedStage(NamedTuple):
    """A stage as it is today, and the run's entry for it."""

    spec: StageSpec
    facts: Recorded


class RecordedStages:
    """The stages of one manifest, by name and by digest."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self._by_name: dict[tuple[str, str], list[Recorded]] = defaultdict(list)
        self._by_digest: dict[str, Recorded] = {}
        for folder, facts in manifest.get("stages", {}).items():
            name = folder.rpartition("-")[0]
            self._by_name[name, facts["kind"]].append(facts)
            self._by_digest[digest_in_run(facts)] = facts

    def former(self, spec: StageSpec) -> Recorded | None:
        """The run's entry for `spec`, where today's keys differ from the recorded ones.

        Of several stages of its name it is the one with its settings; None where that
        leaves it open which one.
        """
        same = self._by_digest.get(spec.digest)
        if same is not None:
            return None if _was_seeded(spec, same) == spec.seeded else same
        name = spec.folder.rpartition("-")[0]
        named: list[Recorded] = []
        for kind in Kind:
            if spec.was_of_kind(kind):
                named += self._by_name.get((name, kind), ())
        # A class and its variants have one name, and each its own settings.
        alike = [facts for facts in named if _has_settings_of(spec, facts)]
        candidates = alike or named
        return candidates[0] if len(candidates) == 1 else None

    def as_recorded(self, spec: StageSpec) -> StageSpec:
        """Return `spec` as the run recorded it, under the digest of its records."""
        facts = self.former(spec)
        return spec if facts is None else _as_recorded(spec, facts)

    def find_superseded(
        self, stages: Iterable[StageSpec], store: Store, scorers: Iterable[Scorer] = ()
    ) -> list[Supersession]:
        """Return the stages whose records are not found by today's keys."""
        specs = list(stages)
        digests_of_today = {spec.digest for spec in specs}
        known: list[_RecordedStage] = []
        for spec in specs:
            facts = self.former(spec)
            if facts is not None:
                known.append(_RecordedStage(spec, facts))
        # Several scorers may have had one former stage in common.
        wholes = {scorer.former: self._whole(scorer) for scorer in scorers}
        known += [whole for whole in wholes.values() if whole is not None]
        changes = []
        for spec, facts in known:
            digest_then = digest_in_run(facts)
            if digest_then != spec.digest and digest_then in digests_of_today:
                continue  # records of another stage, such as a variant's, that stay
            rows = store.rows(_as_recorded(spec, facts))
            if rows:
                changes.append(Supersession(spec, facts, len(rows)))
        return changes

    def whole(self, scorer: Scorer) -> StageSpec | None:
        """Return the stage that gave `scorer` a record for each document, if one did."""
        found = self._whole(scorer)
        return None if found is None else _as_recorded(*found)

    def _whole(self, scorer: Scorer) -> _RecordedStage | None:
        """Return `scorer`'s stage by its former name, and the run's entry of that name."""
        facts = self._by_name.get((scorer.former, Kind.SCORE.value), [])
        if len(facts) != 1:
            return None
        return _RecordedStage(replace(scorer.stage, name=scorer.former), facts[0])


def _has_settings_of(spec: StageSpec, facts: Recorded) -> bool:
    given = (spec.identity, spec.weights, dict(spec.settings))
    return given == (facts["identity"], facts["weights"], facts["settings"])


def _as_recorded(spec: StageSpec, facts: Recorded) -> StageSpec:
    """Return `spec` as the run's entry `facts` says that it was."""
    kind = Kind(facts["kind"])
    if spec.was_of_kind(kind):
        # The stage reads its records as those of the kind that it has today.
        kind = spec.kind
    return replace(
        spec,
        kind=kind,
        version=facts["version"],
        identity=facts["identity"],
        weights=facts["weights"],
        settings=facts["settings"],
        seeded=_was_seeded(spec, facts),
        recorded=digest_in_run(facts),
    )


def _was_seeded(spec: StageSpec, facts: Recorded) -> bool:
    """Return whether a run's inputs of `spec` had seeds.

    Where its manifest does not say, inputs of a user's drafting stage had none unless its
    class sets `seeded`.
    """
    if "seeded" in facts:
        return bool(facts["seeded"])
    if spec.stage or spec.kind is not Kind.DRAFT or ":" not in spec.target:
        return spec.seeded
    return bool(getattr(import_target(spec.target), "seeded", False))


def refuse_pack(root: AnyPath) -> None:
    """UsageError where a pack would be changed."""
    if isinstance(root, PackPath):
        raise UsageError(
            f"{root} is a packed run, which is only read: name the run's own directory"
        )


@contextmanager
def folder_written(root: AnyPath, out: AnyPath | None) -> Iterator[AnyPath]:
    """Within it, files of the run in `root` are written into the folder given.

    It is `out`, else the run's own. A WriteError says that another can be named.
    """
    try:
        yield out or root
    except WriteError as error:
        if out is not None:
            raise
        told = f"{error}; name a folder for the files with --out"
        raise WriteError(error.errno, told) from None


def refuse_unless_writable(root: AnyPath) -> None:
    """UsageError where the run directory, which is made, cannot be written to.

    What a bucket allows is seen when the run is locked.
    """
    if isinstance(root, BucketPath):
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        assert isinstance(root, Path)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise UsageError(
            f"run directory {root} cannot be written ({error.strerror}); "
            "name another with --out"
        ) from None
