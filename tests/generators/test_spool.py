"""Sequences that are kept in a temporary file."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plait.generators import spool
from plait.generators.document import Query, Text, Turn
from plait.generators.errors import WriteError
from plait.generators.spool import Selection, Spool, keep, select


def query(number: int) -> Query:
    turns = (Turn("user", (Text(f"Why {number}?"),)),)
    return Query(id=str(number), category="c", field="", turns=turns)


QUERIES = [query(i) for i in range(1_000)]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Sequence[Query]:
    monkeypatch.setattr(spool, "MOST_IN_MEMORY", 100)
    kept = keep(iter(QUERIES), "queries")
    assert isinstance(kept, Spool)
    return kept


def test_few_values_are_a_tuple() -> None:
    few = keep(iter(QUERIES), "queries")
    assert few == tuple(QUERIES)
    assert few[3] is QUERIES[3]


def test_many_values_are_read_as_they_were_given(kept: Sequence[Query]) -> None:
    assert [*kept] == [*kept] == QUERIES
    assert len(kept) == len(QUERIES)
    for place in (0, 1, 63, 64, 700, 999, -1, -1_000):
        assert kept[place] == QUERIES[place]
    with pytest.raises(IndexError):
        kept[1_000]
    for part in (slice(None), slice(5, 700, 3), slice(990, 1_200), slice(None, None, -1)):
        assert [*kept[part]] == QUERIES[part]


def test_few_of_many_are_objects_in_memory(kept: Sequence[Any]) -> None:
    assert len(kept._rest) < 64  # type: ignore[attr-defined]
    for place in range(0, 1_000, 50):
        assert kept[place] is kept[place]
    assert len(kept._held) <= 8  # type: ignore[attr-defined]


def test_values_can_be_read_while_others_are_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool, "MOST_IN_MEMORY", 100)
    growing = Spool[int]("numbers")
    for number in range(500):
        growing.append(number)
        assert growing[number // 2] == number // 2
        assert growing[-1] == number


def test_many_selected_are_read_where_they_are(kept: Sequence[Query]) -> None:
    assert select(kept, [5, 3, 3]) == (QUERIES[5], QUERIES[3], QUERIES[3])
    even = select(kept, range(0, 1_000, 2))
    assert isinstance(even, Selection)
    assert [*even] == QUERIES[::2]
    assert even[-1] == QUERIES[998]
    assert [*even[10:]] == QUERIES[20::2]
    # Of objects that are there already, too, there is no second list.
    assert isinstance(select(QUERIES, range(200)), Selection)


def test_the_file_is_in_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MOST_IN_MEMORY", 100)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = keep(iter(QUERIES), "queries")
    assert not [*tmp_path.iterdir()]
    assert kept[500] == QUERIES[500]


def test_a_disk_that_is_full_is_told_with_what_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool, "MOST_IN_MEMORY", 100)
    file = spool._open_unlisted_file()

    def refuse(_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    full = SimpleNamespace(write=refuse, fileno=file.fileno)
    monkeypatch.setattr(spool, "_open_unlisted_file", lambda: full)
    with pytest.raises(WriteError, match=r"queries .* No space left .* MB") as told:
        keep(iter(QUERIES), "queries")
    assert told.value.errno == errno.ENOSPC


def test_room_is_asked_for_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool, "MOST_IN_MEMORY", 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=50_000))
    small = Spool[Query]("queries", expected=200)
    large = Spool[Query]("queries", expected=2_000_000)
    for number in range(100):
        small.append(QUERIES[number])
        large.append(QUERIES[number])
    small.append(QUERIES[0])
    with pytest.raises(WriteError, match="2,000,000 of them"):
        large.append(QUERIES[0])
    # Nothing is lost where it cannot be written.
    assert [*large] == [*QUERIES[:100], QUERIES[0]]
