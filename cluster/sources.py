"""Whether the source of a user's own stages is still what made their records.

Digests of it are kept beside the records, in `source.json`, and enter no key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plait.cluster.lock import RunInUse, drivers_of
from plait.cluster.manifest import read_entries, write_json
from plait.cluster.own_source import own_source
from plait.cluster.store import Store
from plait.generators.base import StageSpec
from plait.generators.buckets import AnyPath

SOURCE_FILE = "source.json"
"""Of the folder of a user's own stage: by module, the digest of its source."""
Digests = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StageSource:
    """The source of one of a user's stages."""

    spec: StageSpec
    today: Digests
    kept: Digests
    """What its records were made by; empty where no command has noted it."""
    changed: bool
    """Whether records that stay, or that another driver makes, were made by other source
    than today's."""

    def __str__(self) -> str:
        modules: list[str] = []
        for name in sorted({*self.kept, *self.today}):
            if self.kept.get(name) != self.today.get(name):
                modules.append(name)
        version = f"version {self.spec.version}"
        return f"{self.spec.target} ({version}): {', '.join(modules)}"


def sources_of(stages: Iterable[StageSpec], store: Store) -> list[StageSource]:
    """Return the source of those of `stages` that are a user's own and have some here."""
    found: list[StageSource] = []
    others_work = bool(drivers_of(store.root))
    for spec in stages:
        # One under a recorded digest is a former version, and makes no records.
        today = {} if spec.stage or spec.recorded else own_source(spec.target)
        if today:
            kept = read_entries(store.folder(spec) / SOURCE_FILE)
            # Records are read for it only where the source is another.
            changed = bool(kept) and kept != today
            changed = changed and (others_work or _any_stay(spec, store))
            found.append(StageSource(spec, today, kept, changed))
    return found


def _any_stay(spec: StageSpec, store: Store) -> bool:
    """Return whether a stage has records that running the command again leaves."""
    return any(status.final for status in store.statuses(spec))


def keep_sources(root: AnyPath, sources: Sequence[StageSource]) -> None:
    """Note today's source; RunInUse where another driver has meanwhile noted its own."""
    for source in sources:
        file = root / "stages" / source.spec.folder / SOURCE_FILE
        noted = read_entries(file)
        if noted not in (source.kept, source.today):
            raise RunInUse(
                f"another command runs {source.spec.target} in {root} with other source; "
                "give both the same"
            )
        if noted != source.today:
            write_json(file, source.today)
