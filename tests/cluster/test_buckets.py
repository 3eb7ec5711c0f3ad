"""The lock and the records of a run in a bucket, against a real server."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from store_helpers import SPEC, draft_table, drafted
from trial import painter

from plait.cluster import lock, parts
from plait.cluster.control import FOLDER, Control, Request, ask, read_state
from plait.cluster.lock import RunInUse, RunLock
from plait.cluster.parts import read_part
from plait.cluster.records import Item, decode, encode
from plait.cluster.store import DamagedPart, Store, notes_of, read_blob
from plait.cluster.verify import verify
from plait.cluster.watcher import RunProgress
from plait.generators.base import Kind, Result
from plait.generators.buckets import BucketPath, Version, any_path
from plait.generators.document import Image, ImageRequest

DEADLINE_S = 60.0


def test_of_many_drivers_one_takes_over_the_lock_of_a_dead_one(bucket: BucketPath) -> None:
    dead = lock.self_description() | {"started_s": -60.0}
    (bucket / "run.lock").write_bytes(json.dumps(dead).encode())
    barrier, tried, won = threading.Barrier(6), threading.Barrier(6), list[str]()

    def attempt() -> None:
        barrier.wait()
        try:
            with RunLock(bucket):
                won.append(threading.current_thread().name)
                tried.wait()
        except RunInUse:
            tried.wait()

    tries = [threading.Thread(target=attempt) for _ in range(6)]
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    assert len(won) == 1
    assert list(bucket.iterdir()) == []


def test_a_holder_that_gives_a_sign_of_life_keeps_its_lock(bucket: BucketPath) -> None:
    file = lock._LockObject(bucket / "run.lock")
    assert file.create({"token": "a"})
    seen = lock._holder(file.path)
    file.renew({"token": "a"})
    file.remove(seen, {"token": "b"})
    assert lock._holder(file.path)["token"] == "a"
    file.remove(lock._holder(file.path), {"token": "b"})
    assert file.create({"token": "b"})
    file.renew({"token": "a"})
    assert lock._holder(file.path)["token"] == "b"


def test_a_holder_beats(bucket: BucketPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_BEAT_S", 0.01)
    beaten, replace = threading.Event(), BucketPath.replace

    def noted(self: BucketPath, data: bytes, version: Version) -> Version | None:
        written = replace(self, data, version)
        if written and self.name == "run.lock":
            beaten.set()
        return written

    monkeypatch.setattr(BucketPath, "replace", noted)
    with RunLock(bucket):
        assert beaten.wait(DEADLINE_S)


def test_a_lock_whose_reply_was_lost_is_held(
    bucket: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for again, and then there is one."""
    real = BucketPath.create

    def lost(path: BucketPath, data: bytes) -> None:
        real(path, data)

    monkeypatch.setattr(BucketPath, "create", lost)
    with RunLock(bucket):
        assert [path.name for path in bucket.iterdir()] == ["run.lock"]
    assert list(bucket.iterdir()) == []


def test_a_driver_is_asked_through_a_bucket(bucket: BucketPath) -> None:
    control, answers = Control(bucket), list[str]()
    control.turn(RunProgress("running", 0.0, ()), lambda request: "")
    state = read_state(bucket)
    assert state is not None

    def asking() -> None:
        request = Request(action="pause")
        answers.append(ask(bucket, state.driver, request, DEADLINE_S))

    other = threading.Thread(target=asking, daemon=True)
    other.start()
    while not list(bucket.glob(f"{FOLDER}/*.request")):
        assert other.is_alive()
    control.turn(RunProgress("running", 2.0, ()), lambda request: f"{request.action}d")
    other.join(DEADLINE_S)
    assert answers == ["paused"]
    control.close()
    assert read_state(bucket) is None
    assert list(bucket.iterdir()) == []


def test_records_in_a_bucket_are_those_in_a_folder(
    bucket: BucketPath, tmp_path: Path
) -> None:
    stores = Store(tmp_path), Store(bucket)
    tables = [draft_table((name, drafted(name))) for name in "abc"]
    for store in stores:
        for table in tables:
            store.commit(SPEC, table)
        fresh = Store(store.root, strict=True)
        assert set(fresh.rows(SPEC)) == set("abc")
        assert notes_of(fresh.rows(SPEC)["b"]) == {"finish": "stop"}
        assert {r["key"] for r in fresh.columns(SPEC, ["usage"])} == set("abc")
        fresh.compact(SPEC)
        assert set(Store(store.root).rows(SPEC)) == set("abc")
        (checked,) = verify(store.root)
        assert (checked.records, len(checked.checks), checked.damaged) == (3, 1, [])
    tables = [read_part(part) for s in stores for part in Store(s.root).parts(SPEC)]
    assert tables[0].sort_by("key") == tables[1].sort_by("key")


def test_images_are_read_from_a_bucket(bucket: BucketPath) -> None:
    store, spec = Store(bucket), painter()
    images = {str(i): Image.of(b"\x89PNG" + bytes([i]) * 100_000) for i in range(3)}
    items = [Item(key, "l", ImageRequest(prompt="x")) for key in images]
    outcomes = [Result(image) for image in images.values()]
    store.commit(spec, encode(Kind.RENDER, items, outcomes, 0.1))
    for key, row in Store(bucket).rows(spec).items():
        back = decode(Kind.RENDER, row)
        assert isinstance(back, Result)
        assert read_blob(back.value) == images[key].data


def test_a_damaged_part_in_a_bucket_is_set_aside(bucket: BucketPath) -> None:
    for name in "ab":
        Store(bucket).commit(SPEC, draft_table((name, drafted(name))))
    part = Store(bucket).parts(SPEC)[0]
    data = bytearray(part.read_bytes())
    data[20] ^= 0xFF
    part.write_bytes(bytes(data))
    with pytest.raises(DamagedPart):
        list(Store(bucket, strict=True).columns(SPEC, ["text", "usage", "notes"]))
    store = Store(bucket, repairs=True, on_notice=lambda text: None)
    assert store.check_all([SPEC]) == 1
    assert len(store.rows(SPEC)) == 1
    assert not part.exists()
    assert part.with_suffix(".unreadable").exists()
    (intact,) = store.parts(SPEC)
    other = intact.parent / f"part-{'0' * 64}.parquet"
    other.write_bytes(intact.read_bytes())
    (checked,) = verify(bucket)
    assert [check.part for check in checked.damaged] == [other]


def test_few_parts_are_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that nobody has asked for yet do not fill the memory."""
    asked: list[BucketPath] = []
    monkeypatch.setattr(
        parts,
        "read_blocks",
        lambda part, columns: iter([asked.append(part)]),  # type: ignore[func-returns-value]
    )
    many = [any_path(f"s3://bucket/part-{i}.parquet") for i in range(100)]
    reading = parts.read_parts(many)
    for n, part in enumerate(many):
        found, read = next(reading)
        read()
        assert found == part
        assert len(asked) <= n + parts._READ_AT_ONCE
    assert next(reading, None) is None
    assert sorted(map(str, asked)) == sorted(map(str, many))
