"""Damage is proved before a part is set aside; every other error changes nothing."""

from __future__ import annotations

import errno
import logging
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_helpers import SPEC, damage, draft_table, drafted, flip, without_checksums
from trial import CONDITIONER, painter

from cluster.records import Item, decode, encode
from cluster.store import DamagedPart, Store, StoreError, notes_of, read_blob, write_part
from cluster.verify import check_part
from generators.base import Kind, Result, Skip, StageSpec
from generators.document import Draft, Image, ImageRequest, Payload, Text
from generators.images import encode as as_png


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

TROUBLE = [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE]


@pytest.mark.parametrize("repairs", [False, True])
@pytest.mark.parametrize("number", TROUBLE)
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
    loop = part.with_name("part-0.parquet")
    loop.symlink_to(loop)
    folder = part.with_name("part-1.parquet")
    for broken in (loop, folder):
        if broken is folder:
            loop.unlink()
            folder.mkdir()
        with pytest.raises(StoreError, match="cannot be read"):
            Store(tmp_path, repairs=True).rows(SPEC)
        assert not list(tmp_path.rglob("*.unreadable"))


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


@pytest.mark.parametrize("column", ["notes", "text", "usage"])
def test_damage_in_a_text_column_is_one_line(tmp_path: Path, column: str) -> None:
    Store(tmp_path).commit(SPEC, draft_table(("a", drafted())))
    part = next(tmp_path.glob("stages/*/part-*"))
    damage(part, column)
    store = Store(tmp_path)
    with pytest.raises(DamagedPart) as stopped:
        list(store.columns(SPEC, ["notes", "text", "usage"]))
    assert "\n" not in str(stopped.value)
    if column == "notes":
        with pytest.raises(DamagedPart):
            notes_of(store.rows(SPEC)["a"])


def test_a_damaged_picture_is_never_handed_on(tmp_path: Path) -> None:
    spec, part, written = pictures(tmp_path, count=1)
    damage(part, "image.bytes")
    store = Store(tmp_path)
    assert set(store.rows(spec)) == set(written)
    with pytest.raises(DamagedPart, match=part.name):
        read_blob(image_of(store, spec, "p0"))


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


def test_a_disk_that_went_read_only_is_named_with_the_cause(read_only_disk: Path) -> None:
    store = Store(read_only_disk)
    assert set(store.rows(SPEC)) == {"a"}
    with pytest.raises(StoreError, match="Read-only file system") as stopped:
        store.commit(SPEC, draft_table(("b", drafted())))
    assert str(store.folder(SPEC)) in str(stopped.value)
    assert "make room" not in str(stopped.value)


def test_damage_that_cannot_be_set_aside_is_said(read_only_disk: Path) -> None:
    part = next(read_only_disk.glob("stages/*/part-*"))
    subprocess.run(["mount", "-o", "remount,rw", str(read_only_disk)], check=True)
    part.write_bytes(b"")
    subprocess.run(["mount", "-o", "remount,ro", str(read_only_disk)], check=True)
    with pytest.raises(StoreError, match=r"cannot be set aside: Read-only file system"):
        Store(read_only_disk, repairs=True).rows(SPEC)
