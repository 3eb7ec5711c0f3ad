"""`plait verify`: whether a run directory holds what was written into it.

`plait.cluster.verify` checks the parts of one store; here are all stores of a run, its
results, what is said of both, and the repair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from plait.benchmarks.results.files.reading import NoResults, ResultsError, RunResults
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.run_directory import refuse_pack
from plait.benchmarks.terminal import command_text
from plait.benchmarks.wording import quantity
from plait.cluster.lock import RunLock
from plait.cluster.manifest import RECORDS, read_entries
from plait.cluster.run import MANIFEST
from plait.cluster.store import Store
from plait.cluster.verify import StageCheck, verify
from plait.generators.buckets import AnyPath, matching
from plait.generators.errors import UsageError
from plait.generators.packs import PackPath

INTACT = 0
DAMAGED = 1
_MOST_KEYS = 5


def verify_run(root: AnyPath, console: Console, *, repair: bool = False) -> int:
    """Check every part and image of a run, its comparisons included, and their numbers.

    Changes nothing without `repair`. With it, damaged parts are set aside, so that running
    again makes their records again. Exit status 0 when no damage is left and nothing that
    was there at the end of a run is missing, else 1. Of a pack, every file is compared with
    the checksum that it was written with.
    """
    if not (root / MANIFEST).exists():
        raise UsageError(f"{root} is not a run directory: it has no {MANIFEST}")
    if repair:
        refuse_pack(root)
    checked: dict[AnyPath, list[StageCheck]] = {}
    stages: list[StageCheck] = []
    for store in _stores_of(root):
        checked[store] = list(verify(store, _count_notes(store)))
        stages += checked[store]
    packed = isinstance(root, PackPath)
    if stages or not packed:
        console.print(_table(stages).rich)
        for line in _remarks(root, stages, repair):
            console.print(line)
    if repair:
        for store, checks in checked.items():
            _set_aside(store, checks, console)
    if isinstance(root, PackPath):
        lost = _find_damaged_members(root)
    else:
        lost = _find_damaged_results(root)
    for text in lost:
        console.print(Text.assemble(("damaged", "red"), f" {text}"))
    if packed and not lost:
        console.print("All files of the pack are as they were written.")
    missing = any(stage.missing or stage.gone for stage in stages)
    return DAMAGED if missing or lost or _is_damage_left(stages) else INTACT


def _stores_of(root: AnyPath) -> list[AnyPath]:
    """Return the run directory, and the folders of its comparisons with their records."""
    stores = {root: None}
    # A comparison is found by its stages or its manifest: it may have lost either.
    for pattern in ("compare/*/stages", f"compare/*/{MANIFEST}"):
        for path in matching(root, pattern):
            stores[path.parent] = None
    return list(stores)


def _is_damage_left(stages: Sequence[StageCheck]) -> bool:
    """Return whether a damaged part is still there, and was not set aside."""
    for stage in stages:
        for check in stage.checks:
            if (check.damage or check.undecodable) and check.part.exists():
                return True
    return False


def _find_damaged_results(root: AnyPath) -> list[str]:
    """Return what is wrong with the files of the results, a line for each."""
    again = f"`{command_text('plait', 'report', root)}` rebuilds it from the records"
    try:
        files = RunResults.at(root).damage(images=True)
    except NoResults:
        return []
    except ResultsError as error:
        return [str(error)]
    return [f"{file}: it is missing or has changed; {again}" for file in files]


def _find_damaged_members(pack: PackPath) -> list[str]:
    """Return which files of a pack are not as they were written, a line for each."""
    damaged = []
    for file in pack.walk():
        try:
            file.read_bytes()
        except OSError as error:
            damaged.append(f"{file}: {error.strerror}; make or copy the pack again")
    return damaged


def _count_notes(store: AnyPath) -> dict[str, int]:
    """Return how many records each stage had at the end of a command, by its folder."""
    noted = read_entries(store / MANIFEST).get(RECORDS)
    return noted if isinstance(noted, dict) else {}


def _table(stages: Sequence[StageCheck]) -> ResultTable:
    """Return one row for each stage: what was checked, and what is damaged or missing."""
    rows = []
    for stage in stages:
        row = [stage.name]
        for number in (
            len(stage.checks),
            stage.records,
            stage.images,
            len(stage.damaged),
            stage.missing,
        ):
            row.append(f"{number:,}")
        rows.append(row)
    head = ("stage", "parts", "records", "images", "damaged", "missing")
    return ResultTable.of("Parts by stage", head, rows)


def _remarks(
    root: AnyPath, stages: Sequence[StageCheck], repair: bool
) -> Iterator[str | Text]:
    """Yield what was found, and what can be done about it."""
    for stage in stages:
        yield from _remarks_on(stage)
    unsigned = sum(stage.unsigned for stage in stages)
    if unsigned:
        yield (
            f"{unsigned:,} parts of an earlier version carry no checksums: images and "
            "payloads were compared with their digests, text was only read."
        )
    if RECORDS not in read_entries(root / MANIFEST):
        yield (
            "The run has not noted how many records there should be; its command "
            "shows what is missing."
        )
    if not any(stage.damaged for stage in stages):
        there = " that is there" if any(stage.gone for stage in stages) else ""
        yield f"No part{there} is damaged."
        return
    lost = sum(stage.lost for stage in stages)
    uncounted = sum(stage.uncounted for stage in stages)
    more = ""
    if uncounted:
        more = (
            f", and an unknown number in {quantity(uncounted, 'part')} that cannot be read"
        )
    yield f"A repair would make {quantity(lost, 'record')} again{more}."
    if not repair:
        repairing = command_text("plait", "verify", root, "--repair")
        yield (
            f"Nothing was changed. `{repairing}` sets the damaged parts aside; then "
            "run the command of the run again."
        )


def _remarks_on(stage: StageCheck) -> Iterator[Text]:
    """Yield what was found of one stage."""
    for check in stage.damaged:
        yield Text.assemble(("damaged", "red"), f" {check.part}: {check.damage}")
    for part in stage.gone:
        text = (
            f" {part}: somebody has removed it; running the command of the run again "
            "makes its records"
        )
        yield Text.assemble(("gone", "red"), text)
    if stage.missing:
        text = (
            f" {stage.missing:,} of {stage.noted:,} records of {stage.name}, in "
            "parts that are missing or set aside; running the command of the run "
            "again makes them"
        )
        yield Text.assemble(("missing", "red"), text)
    keys = stage.undecodable
    if keys:
        shown = ", ".join(keys[:_MOST_KEYS])
        more = ", ..." if len(keys) > _MOST_KEYS else ""
        text = f" {len(keys):,} of {stage.name}, as the stage made them: {shown}{more}"
        yield Text.assemble(("not an image", "red"), text)


def _set_aside(root: AnyPath, stages: Sequence[StageCheck], console: Console) -> None:
    """Set damaged parts of a store aside, and say how many."""
    damaged: list[str] = []
    for stage in stages:
        damaged += [str(check.part) for check in stage.damaged]
    if not damaged:
        return
    with RunLock(root):
        store = Store(root, repairs=True, on_notice=lambda _: None)
        count = store.set_aside(damaged)
    console.print(
        f"{quantity(count, 'part')} set aside as *.unreadable. Run the command of the run "
        "again to make their records again."
    )
