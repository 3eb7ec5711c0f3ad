"""The index finds each key's one record, however many there are, in 32 bytes a record."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from store_helpers import SPEC, draft_table, drafted

from plait.cluster import record_index
from plait.cluster.parts import ValueCache, read_blocks, write_joined, write_part
from plait.cluster.record_index import KeyDigests, RecordIndex, Rows, Worth
from plait.cluster.records import SCHEMAS
from plait.cluster.store import Store
from plait.generators.base import Failure, Fault, Kind, Outcome, Result

DONE, OPEN = ("done", None), ("failed", "timeout")


def appended(index: RecordIndex, part: str, keys: list[str], ends: list[Any]) -> None:
    outcomes, faults = zip(*ends, strict=True)
    codes = index.codes.codes_of(pa.array(outcomes), pa.array(faults, pa.string()))
    index.append(part, 0, KeyDigests.of(pa.array(keys)), codes)


def by_row(rows: Rows) -> Worth:
    """As if records had been made in the order of their rows, and all were final."""
    return Worth(np.ones(rows.size, bool), rows.row.astype(np.int64))


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many buckets and frequent merges, with few records."""
    monkeypatch.setattr(record_index, "_ONE_BUCKET_ROWS", 40)
    monkeypatch.setattr(record_index, "_STAGED_ROWS", 30)
    monkeypatch.setattr(record_index, "_LEAST_RECENT", 10)


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("seed", range(5))
def test_an_index_holds_what_a_dict_would(seed: int) -> None:
    """Keys of 32 digits and others; some that differ only in their last bytes."""
    rng = random.Random(seed)
    pool = [f"{rng.getrandbits(128):032x}" for _ in range(200)]
    pool += [f"{i:032x}" for i in range(20)] + [
        pool[0].upper(),
        "a",
        "",
        "\udcff",
        "é" * 32,
    ]
    index, expected = RecordIndex(), dict[str, tuple[str, int, str]]()
    for step in range(60):
        part, act = f"part-{step}", rng.choice(["append", "put", "move", "forget", "hide"])
        if act == "append":
            keys = rng.sample(sorted(set(pool[:-3]) - expected.keys()), 3)
            ends = [rng.choice([DONE, OPEN]) for _ in keys]
            appended(index, part, keys, ends)
            index.settle(by_row)
            rows = zip(keys, ends, strict=True)
            expected |= {key: (part, i, end[0]) for i, (key, end) in enumerate(rows)}
        elif act == "put":
            for row, key in enumerate(rng.sample(pool, 7)):
                index.put(key, part, row, *DONE)
                expected[key] = (part, row, "done")
        elif act == "hide" and expected:
            index.hide(hidden := rng.choice(sorted(expected)))
            assert index.find(hidden) is None
            assert len(index) == len(expected) - 1
            assert index.show(hidden)
        elif expected:
            former = rng.choice([place[0] for place in expected.values()])
            mine = {k: p for k, p in expected.items() if p[0] == former}
            if act == "forget":
                index.forget([former])
                expected = {k: p for k, p in expected.items() if k not in mine}
                continue
            rows_moved = np.array([place[1] for place in mine.values()])
            digests = KeyDigests.of(pa.array([k for k in mine if k != "\udcff"]))
            if "\udcff" in mine:
                continue
            assert index.are_current(former, 0, digests).tolist() == [
                place[1] == i for i, place in enumerate(mine.values())
            ]
            index.move(former, rows_moved, digests, part, 5)
            for i, (key, place) in enumerate(mine.items()):
                expected[key] = (part, 5 + i, place[2])
    found = {key: index.find(key) for key in pool}
    assert {k: (p.part, p.row, p.outcome) for k, p in found.items() if p} == expected
    assert sorted(index.keys()) == sorted(expected)
    ends_of = [place[2] for place in expected.values()]
    counts = {status.outcome: n for status, n in index.statuses().items()}
    assert counts == {name: ends_of.count(name) for name in set(ends_of)}
    assert all(s.final == (s.outcome == "done") for s in index.statuses())


@pytest.mark.usefixtures("crowded")
def test_of_many_records_of_a_key_the_first_settled_or_the_last_open_one_stays() -> None:
    """One that is final and was known before stays, whatever turns up."""
    index = RecordIndex()
    keys = [f"{i:02x}".ljust(32, "0") for i in range(100)]
    known = {"a": DONE, "b": OPEN}
    appended(index, "known", list(known), list(known.values()))
    index.settle(by_row)

    def weigh(rows: Rows) -> Worth:
        """Later parts hold earlier records."""
        return Worth(index.codes.are_final(rows.code), -rows.part.astype(np.int64))

    for part in ("one", "two"):
        ends = [DONE if i % 2 else OPEN for i in range(100)]
        appended(index, part, ["a", "b", *keys], [DONE, DONE, *ends])
    index.settle(weigh)
    parts = [getattr(index.find(key), "part", None) for key in ("a", "b", *keys)]
    assert parts == ["known", "two", *(["one", "two"] * 50)]
    assert len(index) == 102


def test_a_record_is_no_rival_of_itself() -> None:
    """A part of which single records are known already is read as a whole."""
    index = RecordIndex()
    keys = [f"{i:032x}" for i in range(4)]
    for row, key in enumerate(keys[:3]):
        index.put(key, "new", row, *DONE)
    index.put(keys[3], "other", 0, *OPEN)
    compared: list[Rows] = []

    def weigh(rows: Rows) -> Worth:
        compared.append(rows)
        return by_row(rows)

    appended(index, "new", keys, [DONE] * 4)
    index.settle(weigh)
    (rivals,) = compared
    assert sorted(index.parts[number] for number in rivals.part) == ["new", "other"]
    assert len(index) == 4
    places = [index.find(key) for key in keys]
    assert [place and (place.part, place.row) for place in places[:3]] == [
        ("new", row) for row in range(3)
    ]


def test_a_record_takes_no_more_than_32_bytes() -> None:
    """Wherever it came from; what is added one by one is moved into arrays in time."""
    index, count = RecordIndex(), 300_000
    digests = np.random.default_rng(0).integers(0, 2**63, (2, count), np.uint64)
    codes = np.full(count, index.codes.code_of(*DONE), np.uint8)
    for first in range(0, count, 50_000):
        rows = slice(first, first + 50_000)
        own = KeyDigests(digests[0][rows], digests[1][rows], {})
        index.append("part", first, own, codes[rows])
    index.settle(by_row)
    held = sum(column.nbytes for rows in index._buckets for column in rows)
    assert held == 25 * count
    for i in range(100_001):
        index.put(f"{i:032x}", "other", i, *DONE)
    assert (len(index._recent), len(index)) == (0, count + 100_001)


# ------------------------------------------------------------------------------ values


def texts(store: Store) -> dict[str, str]:
    return {key: row.light[0] for key, row in store.rows(SPEC).items()}


def committed(root: Path, count: int = 6) -> Store:
    store = Store(root)
    for i in range(count):
        store.commit(SPEC, draft_table((f"{i:032x}", drafted(f"text {i}"))))
    return store


def test_values_are_read_again_where_another_process_has_joined_the_parts(
    tmp_path: Path,
) -> None:
    writing, reading = committed(tmp_path), Store(tmp_path)
    rows = reading.rows(SPEC)
    assert len(rows) == 6
    writing.compact(SPEC)
    assert texts(reading) == texts(Store(tmp_path))
    assert len(rows) == 6


def test_a_record_whose_part_is_gone_is_missing(tmp_path: Path) -> None:
    store = committed(tmp_path)
    reading = Store(tmp_path)
    assert len(reading.rows(SPEC)) == 6
    part = Path(store.rows(SPEC)[f"{0:032x}"].part)
    part.unlink()
    assert reading.record(SPEC, f"{0:032x}") is None
    assert sorted(reading.rows(SPEC)) == [f"{i:032x}" for i in range(1, 6)]


def test_values_that_are_held_are_bounded_by_bytes(tmp_path: Path) -> None:
    """And those of a large part are read a few row groups at a time."""
    wide = "x" * 1_000_000
    for n in range(3):
        keys = [f"{n}{i}" for i in range(8)]
        write_part(tmp_path, draft_table(*((k, drafted(k + wide)) for k in keys)))
    names, most = ("at", "segments"), 8 << 20
    cache = ValueCache(most)
    for part in sorted(tmp_path.iterdir()):
        assert len([*read_blocks(part, names)]) == 2
        for row in range(8):
            _, segments = cache.read(str(part), row, names)
            assert segments.partition('"text": "')[2][1] == str(row)
            assert 0 < cache.held_bytes <= most


def test_a_joined_part_has_few_row_groups(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    tables = [draft_table((f"{i:032x}", drafted("x" * (i % 3 * 1000)))) for i in range(900)]
    part = write_joined(tmp_path, SCHEMAS[Kind.DRAFT], tables, 10**18)
    assert pq.read_metadata(part).num_row_groups == 2
    assert part.stat().st_mtime_ns == 10**18  # type: ignore[union-attr]
    read = pa.concat_tables(table for _, table in read_blocks(part))
    assert read == pa.concat_tables(tables)
    assert [path.name for path in tmp_path.iterdir()] == [part.name]


def test_parts_are_joined_in_the_order_they_were_written(tmp_path: Path) -> None:
    """Reading a run in the order of its plan then goes through a part from row to row."""
    store = committed(tmp_path, 20)
    store.compact(SPEC)
    (part,) = store.parts(SPEC)
    table = pa.concat_tables(table for _, table in read_blocks(part))
    assert table.column("key").to_pylist() == [f"{i:032x}" for i in range(20)]


def test_duplicates_are_told_apart_by_reading_them_alone(tmp_path: Path) -> None:
    """A crash in the middle of joining leaves many."""
    store = Store(tmp_path)
    late: dict[str, Outcome[Any]] = {f"{i:032x}": drafted(f"late {i}") for i in range(9)}
    early: dict[str, Outcome[Any]] = {}
    for i, key in enumerate(late):
        early[key] = Failure("no", Fault.TIMEOUT) if i % 3 else drafted(f"early {i}")
    for outcomes in (early, late):
        write_part(store.folder(SPEC), draft_table(*outcomes.items()))
    rows = store.rows(SPEC)
    for i, key in enumerate(late):
        kept = rows[key]
        assert kept.outcome == "done"
        made = late if i % 3 else early
        assert isinstance(expected := made[key], Result)
        assert expected.value.text in kept.light[0]
