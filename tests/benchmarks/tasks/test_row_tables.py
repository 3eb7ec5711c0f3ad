"""Ids and digests of many rows."""

from __future__ import annotations

import random

import pytest

from plait.benchmarks.tasks.changes import queries_digest
from plait.benchmarks.tasks.row_tables import IdTable, RowDigests
from plait.generators.keys import digest


def test_ids_have_the_places_in_which_they_came() -> None:
    rng = random.Random(0)
    ids = [f"q{rng.randrange(3_000)}é\ud800"[: rng.randrange(1, 8)] for _ in range(5_000)]
    table, known = IdTable(), dict[str, int]()
    for id in ids:
        assert table.add(id) == known.setdefault(id, len(known))
    assert [*table] == [*known]
    assert len(table) == len(known)
    for id in {*ids, "none", "", "q"}:
        assert (id in table) == (id in known)
        assert table.place(id) == known.get(id)


def test_ids_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.benchmarks.tasks.row_tables._HASH", 0)
    table = IdTable(map(str, range(200)))
    assert [table.place(str(i)) for i in range(201)] == [*range(200), None]


def test_digests_are_as_in_a_dict() -> None:
    rows = [(f"q{i % 70}", digest(i)) for i in range(100)]
    table = RowDigests(rows)
    assert table == dict(rows)
    assert [*table.items()] == [*dict(rows).items()]
    assert "q71" not in table
    with pytest.raises(KeyError):
        table["q71"]
    table.update([("q71", digest("new")), ("q0", digest("other"))])
    assert table["q0"] == digest("other")
    assert len(table) == 71


def test_a_copy_is_equal_and_changes_alone() -> None:
    rows = [(f"q{i}", digest(i)) for i in range(200)]
    table = RowDigests(rows)
    copy = table.copy()
    assert copy == table
    copy.update([("q5", digest("other"))])
    assert copy != table
    copy.update([("q5", digest(5)), ("new", digest("new"))])
    assert copy != table
    assert dict(table) == dict(rows)
    assert copy["new"] == digest("new")


def test_the_order_of_rows_does_not_count() -> None:
    rows = [(f"q{i}", digest(i)) for i in range(50)]
    assert RowDigests(rows) == RowDigests(reversed(rows))
    assert RowDigests(rows) != RowDigests(rows[1:])


def test_the_digest_of_queries_is_that_of_a_mapping() -> None:
    rows = {f"ä{i}\n": digest(i) for i in range(50)}
    ids = [*rows][10:30]
    expected = digest({id: rows[id] for id in ids})
    assert queries_digest(reversed(ids), RowDigests(rows.items())) == expected
    assert queries_digest([], rows) == digest({})
