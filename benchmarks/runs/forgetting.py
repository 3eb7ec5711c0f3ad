"""`plait forget`: systems and scorers are taken out of a run, as if never named.

Results are written first, then the manifest: wherever the command ends early, the results
that are there belong to the run of the manifest, and the same command goes on from there.
Records stay until they are pruned.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plait.benchmarks.results.files.about import RunAbout
from plait.benchmarks.results.files.forgetting import about_without, forget_rows
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.rulings import COMPARE, RULINGS
from plait.benchmarks.runs.experiment import digest_of_run
from plait.benchmarks.runs.forecast.rates import IMAGES
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.resolving import models_named
from plait.benchmarks.runs.run_directory import (
    digest_in_run,
    former_config,
    read_manifest,
    refuse_pack,
)
from plait.cluster.counts import totals_of
from plait.cluster.ledger import PartLedger
from plait.cluster.lock import RunLock
from plait.cluster.manifest import RECORDS, read_entries, write_json
from plait.cluster.parts import open_part, parts_in, stage_folders
from plait.cluster.run import MANIFEST, RUN_DIGEST
from plait.generators.buckets import AnyPath, matching, unlink_all
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.names import unknown

Manifest = dict[str, Any]


@dataclass(frozen=True)
class PrunedRecords:
    """What was removed for good."""

    records: int = 0
    bytes: int = 0
    stages: tuple[str, ...] = ()
    """Names of the folders."""

    def __add__(self, other: PrunedRecords) -> PrunedRecords:
        return PrunedRecords(
            self.records + other.records,
            self.bytes + other.bytes,
            self.stages + other.stages,
        )


@dataclass(frozen=True)
class ForgottenParts:
    """Systems and scorers that a run is to be without."""

    systems: Collection[str]
    scorers: Collection[str]

    @classmethod
    def of(
        cls, manifest: Manifest, systems: Iterable[str], scorers: Iterable[str]
    ) -> ForgottenParts:
        """Return those of a run by their names; UsageError where they cannot be forgotten.

        The last system cannot, nor what the config does not name: answers that come with
        the data, and some of those that lie at one place.
        """
        forgotten = cls(dict.fromkeys(systems), dict.fromkeys(scorers))
        for what in ("system", "scorer"):
            valid = manifest.get(f"{what}s", ())
            for name in getattr(forgotten, f"{what}s"):
                if name not in valid:
                    raise unknown(what, name, valid)
        if {*manifest["systems"]} == {*forgotten.systems}:
            raise UsageError(
                "a run cannot forget its last system: remove its folder, or add another "
                "system before"
            )
        forgotten._refuse_unnamed(manifest)
        return forgotten

    def _refuse_unnamed(self, manifest: Manifest) -> None:
        """UsageError for systems that the config does not name one by one."""
        unnamed = {*self.systems} - {*manifest["config"]["systems"]}
        for label, names in _systems_at(manifest).items():
            left = names - {*self.systems}
            # The config names a place, not its systems: without one of them it would bring
            # all of them back.
            if unnamed & names and left:
                raise UsageError(
                    f"the answers at {label} are named together: forget "
                    f"{', '.join(sorted(left))} too, or none of them"
                )
            unnamed -= names
        if unnamed:
            raise UsageError(
                f"the answers of {', '.join(sorted(unnamed))} come with the data "
                f"{manifest['config']['data']}, and cannot be forgotten"
            )

    def labels(self, manifest: Manifest) -> set[str]:
        """Return the names of places in the config whose answers are forgotten."""
        labels = set()
        for label, names in _systems_at(manifest).items():
            if names & {*self.systems}:
                labels.add(label)
        return labels


def _systems_at(manifest: Manifest) -> dict[str, set[str]]:
    """Return the systems whose answers were made elsewhere, by their place's name."""
    places = manifest.get("data", {}).get("answers", {})
    return {label: {*about["systems"]} for label, about in places.items()}


def forget(
    root: AnyPath, systems: Iterable[str], scorers: Iterable[str], *, prune: bool = False
) -> PrunedRecords:
    """Take systems and scorers out of config and results of a run; what was pruned.

    Data and modules are not needed where the results are there. UsageError for names that
    the run does not have and for packs, RunInUse while a job is at work there.
    """
    refuse_pack(root)
    # Wrong names, and a run that is in use, are refused before anything is made.
    manifest = read_manifest(root)
    with RunLock(root):
        forgotten = ForgottenParts.of(manifest, systems, scorers)
    # Made where they lack something. Without the lock, since they are kept in the run's
    # folder only where nobody is at work.
    open_results(root)
    with RunLock(root):
        manifest = read_manifest(root)
        results = RunResults.at(root)
        about = about_without(results.about, forgotten.systems, forgotten.scorers)
        new = _manifest_without(root, manifest, forgotten, about)
        config = new["config"]
        digest = new[RUN_DIGEST]
        about = replace(about, config=config, run_digest=digest, data=new["data"])
        forget_rows(results, forgotten.systems, forgotten.scorers, about)
        judging = _forget_comparisons(root, forgotten.systems)
        left = RunResults.at(root)
        write_json(root / MANIFEST, new | {"counts": _counts(left)})
        if not prune:
            return PrunedRecords()
        used = set()
        for facts in (*new["stages"].values(), *about.stages.values()):
            # So much of a stage's digest is in the name of its folder.
            used.add(digest_in_run(facts)[:12])
        pruned = PrunedRecords()
        for folder in stage_folders(root):
            if _stage_digest(folder) not in used:
                pruned += _prune(root, folder)
        for store, unused in judging.items():
            for folder in stage_folders(store):
                if _stage_digest(folder) in unused:
                    pruned += _prune(store, folder)
        return pruned


def _manifest_without(
    root: AnyPath, manifest: Manifest, forgotten: ForgottenParts, about: RunAbout
) -> Manifest:
    """Return the manifest of the run without systems and scorers, but for the counts.

    `about` is what its results say without them.
    """
    labels = forgotten.labels(manifest)
    new = dict(manifest)
    new["systems"] = _without(manifest.get("systems", ()), forgotten.systems)
    new["scorers"] = _without(manifest.get("scorers", ()), forgotten.scorers)
    new["config"] = _config_without(root, manifest["config"], forgotten, labels)
    new["data"] = dict(manifest.get("data", {}))
    places = _without_keys(new["data"].pop("answers", {}), labels)
    if places:
        new["data"]["answers"] = places
    new["stages"] = manifest.get("stages", {})
    # Results may be older than the run, whose further systems and scorers need stages too.
    if _are_all(new["systems"], about.systems) and _are_all(new["scorers"], about.scorers):
        _forget_stages(new, about)
    if "rubrics" in manifest:
        new["rubrics"] = _without_keys(manifest["rubrics"], forgotten.scorers)
    if IMAGES in manifest:
        new[IMAGES] = _without_keys(manifest[IMAGES], forgotten.systems)
    new[RUN_DIGEST] = digest_of_run(
        former_config(root, new),
        new["data"],
        manifest.get("ids"),
        [digest_in_run(facts) for facts in new["stages"].values()],
        manifest.get("identities", {}),
    )
    return new


def _config_without(
    root: AnyPath,
    config: Mapping[str, Any],
    forgotten: ForgottenParts,
    labels: Collection[str],
) -> dict[str, Any]:
    """Return the config of the run without systems and scorers.

    `labels` are the places whose answers are forgotten.
    """
    new = dict(config)
    new["systems"] = _without(config.get("systems", ()), forgotten.systems)
    new["scorers"] = _without(config.get("scorers", ()), forgotten.scorers)
    new["answers"] = _without_keys(config.get("answers", {}), labels)
    if "variants" in config:
        new["variants"] = _without_keys(config["variants"], forgotten.systems)
    # Settings of models that nothing else names go too: a later system of that name would
    # take them for its own.
    gone = models_named((*forgotten.systems, *forgotten.scorers))
    gone -= models_named((*new["systems"], *new["scorers"], *_judges(root)))
    new["models"] = _without_keys(config.get("models", {}), gone)
    return new


def _forget_stages(manifest: Manifest, about: RunAbout) -> None:
    """Leave in a manifest the stages, and what they used, that results `about` name."""
    left = about.stages.values()
    digests = {facts["digest"] for facts in left}
    names = {facts["name"] for facts in left}
    stages = {}
    for folder, facts in manifest["stages"].items():
        if digest_in_run(facts) in digests:
            stages[folder] = facts
    manifest["stages"] = stages
    if "usage" in manifest:
        usage = manifest["usage"]
        manifest["usage"] = {name: usage[name] for name in usage if name in names}


def _are_all(names: Iterable[str], results: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether results are of these systems or scorers, and of no other."""
    return {*names} == {facts["name"] for facts in results}


def _without(names: Iterable[str], gone: Collection[str]) -> list[str]:
    return [name for name in names if name not in gone]


def _without_keys(values: Mapping[str, Any], gone: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in gone}


def _judges(root: AnyPath) -> list[str]:
    """Return the judges of comparisons, whose settings may be the config's."""
    manifests = matching(root / COMPARE, f"*/{MANIFEST}")
    return [str(read_entries(path).get("judge", "")) for path in manifests]


def _counts(results: RunResults) -> dict[str, int]:
    """Return the manifest's counts of the run, a system at a time."""
    counts = Counter[str]()
    for system in results.systems:
        counts.update(totals_of(results.evaluations(systems=[system.name])))
    return dict(counts)


# ---------------------------------------------------------------------- comparisons


def _forget_comparisons(root: AnyPath, systems: Collection[str]) -> dict[AnyPath, set[str]]:
    """Remove what judges said of pairs with one of the systems.

    Return, by store of a comparison, the stages of whose replies nothing else is left.
    """
    unused: dict[AnyPath, set[str]] = {}
    for path in matching(root / COMPARE, f"*/{RULINGS}"):
        lines = _lines_of(path)
        stages = set()
        left = []
        for line in lines:
            ruling = json.loads(line)
            stages.add(ruling["stage"])
            first = ruling["first"]["system"]
            second = ruling["second"]["system"]
            if first not in systems and second not in systems:
                left.append(line)
        if len(left) < len(lines):
            unused.setdefault(path.parent, set()).update(stages)
            write_whole(path, b"".join(line + b"\n" for line in left))
    # What is left of other comparisons in the same store may need the same replies.
    for store, stages in unused.items():
        for path in matching(store, RULINGS):
            stages -= {json.loads(line)["stage"] for line in _lines_of(path)}
    return unused


def _lines_of(path: AnyPath) -> list[bytes]:
    return [line for line in path.read_bytes().split(b"\n") if line]


# -------------------------------------------------------------------------- records


def _stage_digest(folder: AnyPath) -> str:
    """Return the part of a stage's digest that its folder is named by."""
    return folder.name.rpartition("-")[2]


def _prune(store: AnyPath, folder: AnyPath) -> PrunedRecords:
    """Remove the folder of a stage with its records for good."""
    parts = parts_in(folder)
    records = sum(_records_in(part) for part in parts)
    size = sum(part.stat().st_size for part in parts)
    # `plait verify` would miss what is noted.
    noted = read_entries(store / MANIFEST)
    if folder.name in noted.get(RECORDS, {}):
        noted[RECORDS] = _without_keys(noted[RECORDS], {folder.name})
        write_json(store / MANIFEST, noted)
    PartLedger(store).remove_stage(folder.name)
    if isinstance(folder, Path):
        shutil.rmtree(folder)
    else:
        unlink_all([*folder.iterdir()])
    return PrunedRecords(records, size, (folder.name,))


def _records_in(part: AnyPath) -> int:
    """Return how many records a part has; none where it is damaged."""
    try:
        with open_part(part) as file:
            return int(file.metadata.num_rows)
    except (OSError, ValueError):
        return 0
