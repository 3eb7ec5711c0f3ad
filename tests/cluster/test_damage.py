"""Damage is proved before a part is set aside; a run makes its records again."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_helpers import SPEC, damage, draft_table, drafted, flip, without_checksums
from trial import (
    CONDITIONER,
    LIGHT,
    Measuring,
    Witness,
    board,
    drive,
    painter,
    plan_of,
    run,
    sample,
    writer,
)

from plait.cluster import run as runs
from plait.cluster.ledger import LEDGER, PartLedger, expected_parts, missing_parts
from plait.cluster.parts import MissingPart, read_cell
from plait.cluster.plan import EngineOptions, Plan
from plait.cluster.records import Item, RecordRow, decode, encode
from plait.cluster.run import execute
from plait.cluster.shard import Shard
from plait.cluster.store import (
    DamagedPart,
    Store,
    StoreError,
    notes_of,
    read_blob,
    usage_of,
    write_part,
)
from plait.cluster.verify import check_part, verify
from plait.cluster.watcher import RunProgress
from plait.generators.base import Kind, Result, Skip, StageSpec
from plait.generators.buckets import AnyPath
from plait.generators.document import Draft, Image, ImageRequest, Payload, Text
from plait.generators.images import encode as as_png

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("worker_threads")]


def names(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*"))


def pictures(root: Path, count: int = 4) -> tuple[StageSpec, Path, dict[str, Image]]:
    """A stage's part of `count` images that hardly compress."""
    from PIL import Image as Pillow

    spec, rng = painter(), random.Random(0)
    written = {
        f"p{i}": as_png(Pillow.frombytes("RGB", (32, 32), rng.randbytes(32 * 32 * 3)))
        for i in range(count)
    }
    items = [Item(key, "l", ImageRequest(prompt="a dog")) for key in written]
    table = encode(Kind.RENDER, items, [Result(p) for p in written.values()], 0.1)
    return spec, write_part(Store(root).folder(spec), table), written


def image_of(store: Store, spec: StageSpec, key: str) -> Image:
    outcome = decode(spec.kind, store.rows(spec)[key])
    assert isinstance(outcome, Result)
    return outcome.value  # type: ignore[no-any-return]


# ------------------------------------------------------- trouble that is no damage


@pytest.mark.parametrize(
    ("number", "repairs"),
    [(errno.EACCES, False), (errno.EIO, True), (errno.ESTALE, True), (errno.EMFILE, True)],
)
def test_trouble_with_the_disk_stops_with_one_line_and_renames_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, repairs: bool
) -> None:
    Store(tmp_path).commit(SPEC, draft_table(("a", drafted())))
    before = names(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pq, "ParquetFile", refuse)
    with pytest.raises(StoreError) as stopped:
        Store(tmp_path, repairs=repairs).rows(SPEC)
    assert not isinstance(stopped.value, DamagedPart)
    assert os.strerror(number) in str(stopped.value)
    assert "\n" not in str(stopped.value)
    assert names(tmp_path) == before


def test_what_the_system_itself_refuses_is_no_damage(tmp_path: Path) -> None:
    """Not a simulated error: a link that leads to itself cannot be opened."""
    Store(tmp_path).commit(SPEC, draft_table(("a", drafted())))
    part = next(tmp_path.glob("stages/*/part-*"))
    broken = part.with_name("part-0.parquet")
    for make in (lambda: broken.symlink_to(broken), broken.mkdir):
        make()
        with pytest.raises(StoreError, match="cannot be read"):
            Store(tmp_path, repairs=True).rows(SPEC)
        assert not list(tmp_path.rglob("*.unreadable"))
        broken.unlink() if broken.is_symlink() else broken.rmdir()


def test_a_folder_that_may_not_be_read_is_not_taken_for_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records would all be made and paid for again."""
    Store(tmp_path).commit(SPEC, draft_table(("a", drafted())))

    def refuse(path: Path) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(StoreError, match="cannot be read: Permission denied"):
        Store(tmp_path).rows(SPEC)


# ----------------------------------------------------------------- proof of damage


def test_only_a_store_that_repairs_sets_a_damaged_part_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    for key in "ab":
        store.commit(SPEC, draft_table((key, drafted(key))))
    broken = Path(store.rows(SPEC)["a"].part)
    broken.write_bytes(broken.read_bytes()[:-20])
    before = names(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert set(Store(tmp_path).rows(SPEC)) == {"b"}
    assert names(tmp_path) == before
    assert broken.name in caplog.text
    assert "count as missing" in caplog.text

    messages: list[str] = []
    repairing = Store(tmp_path, repairs=True, on_notice=messages.append)
    assert set(repairing.rows(SPEC)) == {"b"}
    assert names(tmp_path) != before
    assert broken.with_suffix(".unreadable").exists()
    assert "set aside" in messages[0]


def test_damage_in_a_text_column_is_one_line(tmp_path: Path) -> None:
    Store(tmp_path).commit(SPEC, draft_table(("a", drafted())))
    damage(next(tmp_path.glob("stages/*/part-*")), "notes")
    store = Store(tmp_path)
    with pytest.raises(DamagedPart) as stopped:
        list(store.columns(SPEC, ["notes", "text", "usage"]))
    assert "\n" not in str(stopped.value)
    with pytest.raises(DamagedPart):
        notes_of(store.rows(SPEC)["a"])


def test_parts_without_checksums_stay_readable_and_digests_speak_for_them(
    tmp_path: Path,
) -> None:
    spec, part, written = pictures(tmp_path)
    old = without_checksums(part)
    assert check_part(old, images=True).damage is None
    store = Store(tmp_path)
    for key, picture in written.items():
        assert read_blob(image_of(store, spec, key)) == picture.data
    place = old.read_bytes().index(written["p2"].read()[-40:])
    flip(old, *range(place, place + 8))
    again = Store(tmp_path)
    with pytest.raises(DamagedPart, match="another digest"):
        read_blob(image_of(again, spec, "p2"))
    assert "another digest" in str(check_part(old).damage)


def test_text_of_an_old_part_that_is_no_json_is_damage(tmp_path: Path) -> None:
    Store(tmp_path).commit(SPEC, draft_table(("a", drafted())))
    old = without_checksums(next(tmp_path.glob("stages/*/part-*")))
    place = old.read_bytes().index(b'[{"type"')
    flip(old, place, by=1)
    row = Store(tmp_path).rows(SPEC)["a"]
    with pytest.raises(DamagedPart):
        decode(Kind.DRAFT, row)
    assert check_part(old).damage is not None


def test_a_payload_is_compared_with_its_digest(tmp_path: Path) -> None:
    payload = Payload.of(b"matrix " * 40)
    draft = Result(Draft((Text("x"), ImageRequest(payload=payload))))
    Store(tmp_path).commit(SPEC, draft_table(("a", draft)))
    items = [Item("c", "l", ImageRequest(prompt="x"))]
    written = encode(Kind.CONDITION, items, [Result(payload)], 0.1)
    Store(tmp_path).commit(CONDITIONER, written)
    for part in tmp_path.glob("stages/*/part-*"):
        assert check_part(part).damage is None
        old = without_checksums(part)
        flip(old, old.read_bytes().index(b"matrix"))
        assert "another digest" in str(check_part(old).damage)


def test_every_flipped_byte_of_a_part_is_seen(tmp_path: Path) -> None:
    """Page checksums leave out headers and the footer; the part's name does not."""
    _, part, _ = pictures(tmp_path, count=2)
    whole = part.read_bytes()
    for offset in range(0, len(whole), 191):
        flip(part, offset)
        assert check_part(part).damage is not None, offset
        part.write_bytes(whole)
    assert check_part(part, images=True).damage is None


def test_a_part_that_only_another_machine_finds_damaged_stays(tmp_path: Path) -> None:
    store = Store(tmp_path, repairs=True)
    store.commit(SPEC, draft_table(("a", drafted())))
    (part,) = store.parts(SPEC)
    assert store.set_aside([str(part)]) == 0
    assert part.exists()
    assert "is intact on this machine" in store.notices[0]


def test_joined_records_that_equal_one_of_the_parts_are_not_removed_with_it(
    tmp_path: Path,
) -> None:
    """A part is named by its content: joining two may make one of them again."""
    store = Store(tmp_path, repairs=True)
    table = draft_table(("a", drafted("a")))
    store.commit(SPEC, table)
    later = table.set_column(
        table.column_names.index("at"), "at", pa.array([2**60], pa.int64())
    )
    store.commit(SPEC, later)
    store.compact(SPEC)
    assert set(Store(tmp_path).rows(SPEC)) == {"a"}
    assert len(store.parts(SPEC)) == 1


def test_a_skip_has_nothing_to_compare(tmp_path: Path) -> None:
    items = [Item("p", "l", ImageRequest(prompt="x"))]
    part = write_part(tmp_path, encode(Kind.RENDER, items, [Skip("no")], 0.1))
    check = check_part(part, images=True)
    assert (check.damage, check.records, check.images) == (None, 1, 0)


# -------------------------------------------------------------- disks that refuse


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that was remounted read-only with a record on it."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    Store(tmp_path).commit(SPEC, draft_table(("a", drafted())))
    subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.processes
def test_a_disk_that_went_read_only_is_named_with_the_cause(read_only_disk: Path) -> None:
    store = Store(read_only_disk)
    assert set(store.rows(SPEC)) == {"a"}
    with pytest.raises(StoreError, match="Read-only file system") as stopped:
        store.commit(SPEC, draft_table(("b", drafted())))
    assert str(store.folder(SPEC)) in str(stopped.value)
    assert "make room" not in str(stopped.value)


@pytest.mark.processes
def test_damage_that_cannot_be_set_aside_is_said(read_only_disk: Path) -> None:
    part = next(read_only_disk.glob("stages/*/part-*"))
    subprocess.run(["mount", "-o", "remount,rw", str(read_only_disk)], check=True)
    part.write_bytes(b"")
    subprocess.run(["mount", "-o", "remount,ro", str(read_only_disk)], check=True)
    with pytest.raises(StoreError, match=r"cannot be set aside: Read-only file system"):
        Store(read_only_disk, repairs=True).rows(SPEC)


# ------------------------------------------------------------------------------ repair


def finished(root: Path) -> tuple[Plan, str]:
    plan = plan_of([sample(i) for i in range(6)], paint=[painter(0)])
    assert run(plan, root).counts["scored"] == 6
    return plan, board(plan, root)


def part_of(root: Path, spec: StageSpec) -> Path:
    (part,) = Store(root).parts(spec)
    return part


def forget(root: Path, specs: Sequence[StageSpec]) -> None:
    for spec in specs:
        part_of(root, spec).unlink()


def test_a_scorer_that_meets_a_damaged_picture_has_it_made_again(tmp_path: Path) -> None:
    """Not a final failure of the scorer, and not a score of a broken image."""
    plan, before = finished(tmp_path)
    paint, measure = plan.systems[0].stages[-1], plan.scorers[0].stages[0]
    damaged = part_of(tmp_path, paint)
    forget(tmp_path, [measure])
    damage(damaged, "image.bytes")
    witness = Witness()
    result = run(plan, tmp_path, witness)
    assert (result.failed, result.counts["scored"]) == (0, 6)
    assert board(plan, tmp_path) == before
    assert damaged.with_suffix(".unreadable").exists()
    assert any("set aside" in n and damaged.name in n for n in witness.notices)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["status"], manifest["counts"]["missing"]) == ("finished", 0)


@pytest.mark.parametrize("column", ["segments", "notes"])
def test_damaged_text_is_written_again(tmp_path: Path, column: str) -> None:
    plan, before = finished(tmp_path)
    damaged = part_of(tmp_path, plan.systems[0].stages[0])
    damage(damaged, column)
    witness = Witness()
    result = execute(plan, tmp_path, EngineOptions(), {"config": {}}, witness, notes=True)
    assert (result.made, result.counts["scored"], result.counts["missing"]) == (6, 6, 0)
    assert board(plan, tmp_path) == before
    assert any(damaged.name in n for n in witness.notices)


@pytest.mark.slow
def test_all_damaged_parts_of_a_run_are_found_at_once(tmp_path: Path) -> None:
    plan, before = finished(tmp_path)
    stages = [*plan.systems[0].stages, *Measuring().stages]
    damaged = [part_of(tmp_path, spec) for spec in stages]
    for part, column in zip(damaged, ("usage", "notes", "notes"), strict=True):
        damage(part, column)
    witness = Witness()
    assert run(plan, tmp_path, witness).made == 18
    assert not any("intact" in notice for notice in witness.notices)
    assert board(plan, tmp_path) == before
    assert all(part.with_suffix(".unreadable").exists() for part in damaged)


@pytest.mark.slow
def test_a_disk_that_damages_what_is_made_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = finished(tmp_path)
    draft = plan.systems[0].stages[0]
    make = runs._Work._make_missing

    def made_and_damaged(self: runs._Work, *, announce: bool) -> None:
        make(self, announce=announce)
        damage(part_of(tmp_path, draft), "usage")

    monkeypatch.setattr(runs._Work, "_make_missing", made_and_damaged)
    with pytest.raises(StoreError, match="check the disk"):
        run(plan, tmp_path)


# ------------------------------------------------------------------ parts that are gone


class Removing(Witness):
    """Removes the first part of a stage as soon as a run has committed one."""

    def __init__(self, root: Path, stage: str) -> None:
        super().__init__()
        self.root, self.stage = root, stage
        self.removed: list[Path] = []

    def turn(self, progress: RunProgress) -> None:
        super().turn(progress)
        for part in sorted(self.root.glob(f"stages/{self.stage}-*/part-*.parquet")):
            if not self.removed:
                part.unlink()
                self.removed.append(part)


@pytest.mark.parametrize("stage", ["writer", "painter0", "measure"])
def test_a_part_that_is_removed_while_a_run_works_is_named_and_made_again(
    tmp_path: Path, stage: str
) -> None:
    """Also one that nothing reads any more, such as one of scores."""
    one, root = replace(LIGHT, batch_size=1), tmp_path / "run"
    plan = plan_of(
        [sample(i) for i in range(6)],
        write=writer(one),
        paint=[painter(0, one)],
        measure=one,
    )
    run(plan, tmp_path / "calm")
    witness = Removing(root, stage)
    result = run(plan, root, witness)
    (part,) = witness.removed
    assert (result.counts["scored"], result.failed) == (6, 0)
    assert board(plan, root) == board(plan, tmp_path / "calm")
    assert any(part.name in notice for notice in witness.notices)
    counts = json.loads((root / "manifest.json").read_text())["records"]
    checks = list(verify(root, counts))
    assert [(c.missing, c.gone, c.records) for c in checks] == [(0, [], 6)] * 3


@pytest.mark.processes
def test_a_part_that_was_removed_is_missed_until_its_records_are_made_again(
    root: AnyPath,
) -> None:
    """Also where no run has ended, so that no number of records was noted."""
    plan = plan_of([sample(i) for i in range(3)], paint=[painter(0)])
    drive(plan, root)
    spec = plan.systems[0].stages[-1]
    (part,) = Store(root).parts(spec)
    part.unlink()
    assert {c.name: [*c.gone] for c in verify(root) if c.gone} == {spec.folder: [part]}
    said: list[str] = []
    reading = Store(root, on_notice=said.append)
    assert not reading.rows(spec)
    assert reading.rows(plan.scorers[0].stages[0])
    assert [str(part) in text for text in said] == [True]

    assert drive(plan, root).made == 3
    assert not any(check.gone for check in verify(root))


def test_what_plait_takes_away_is_not_missed(tmp_path: Path) -> None:
    root = tmp_path / "run"
    store = Store(root, repairs=True)
    with store.noting_parts(None):
        for key in "abc":
            store.commit(SPEC, draft_table((key, drafted(key))))
        store.compact(SPEC)
        store.commit(SPEC, draft_table(("d", drafted("d"))))
    broken = store.rows(SPEC)["d"].part
    damage(Path(broken), "text")
    assert store.set_aside([broken]) == 1
    assert missing_parts(root) == []
    assert store.forget_missing() is False
    moved = root.rename(tmp_path / "moved")
    assert missing_parts(moved) == []
    (joined,) = Store(moved).parts(SPEC)
    joined.unlink()
    assert missing_parts(moved) == [f"{SPEC.folder}/{joined.name}"]


def test_parts_of_shards_are_noted_and_taken_over(tmp_path: Path) -> None:
    plan = plan_of([sample(i) for i in range(8)], paint=[painter(0)])
    for number in (1, 2):
        drive(plan, tmp_path, Shard(number, 2))
    parts = {str(p) for spec in plan.stages for p in Store(tmp_path).parts(spec)}
    held = {str(tmp_path / "stages" / name) for name in expected_parts(tmp_path)}
    assert held == parts
    victim = Path(sorted(parts)[0])
    victim.unlink()
    (gone,) = missing_parts(tmp_path)
    assert gone == f"{victim.parent.name}/{victim.name}"
    drive(plan, tmp_path)
    assert missing_parts(tmp_path) == []
    assert not list(tmp_path.glob(f"shards/*/{LEDGER}"))
    assert len(expected_parts(tmp_path)) == 3


def test_a_line_that_a_crash_cut_short_is_no_part(tmp_path: Path) -> None:
    names = [f"writer-0/part-{digit * 64}.parquet" for digit in "ab"]
    (tmp_path / LEDGER).write_text(f"+ {names[0]}\n+ {names[1][:40]}")
    assert expected_parts(tmp_path) == {names[0]}
    shard = tmp_path / "shards" / "1-of-2"
    shard.mkdir(parents=True)
    (shard / LEDGER).write_text("+ writer-0/part-aa")
    PartLedger(tmp_path, shard).add([names[1]])
    ledger = PartLedger(tmp_path, shard)
    ledger.add([f"/any/stages/{names[1]}"])
    ledger.save()
    assert expected_parts(tmp_path) == set(names)


@pytest.mark.parametrize(
    "read", [notes_of, usage_of, lambda row: read_cell(row.part, 0, "text")]
)
def test_what_is_read_of_a_part_that_is_gone_names_it(
    tmp_path: Path, read: Callable[[RecordRow], object]
) -> None:
    store = Store(tmp_path)
    store.commit(SPEC, draft_table(("a", drafted())))
    row = store.rows(SPEC)["a"]
    Path(row.part).unlink()
    with pytest.raises(MissingPart, match="is gone") as stopped:
        read(row)
    assert (stopped.value.part, "\n" in str(stopped.value)) == (row.part, False)
    for strict in (False, True):
        assert Store(tmp_path, strict=strict).notes_and_usage(row) == ({}, {})
