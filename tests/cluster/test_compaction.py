"""Small parts are joined without losing, doubling or hiding a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from store_helpers import SPEC, draft_table, drafted, rows_of_parts
from trial import painter

from cluster.records import Item, RecordRow, decode, encode
from cluster.store import Store, read_blob, write_part
from generators.base import Failure, Fault, Kind, Result, Skip, StageSpec
from generators.document import Image, ImageRequest


def test_compaction_keeps_the_better_record_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.commit(
        SPEC, draft_table(("a", Failure("dead", Fault.ENDPOINT)), ("b", drafted("b")))
    )
    store.commit(SPEC, draft_table(("a", drafted("a")), ("b", drafted("b again"))))
    store.commit(SPEC, draft_table(("a", Failure("dead again", Fault.ENDPOINT))))
    store.compact(SPEC)
    assert rows_of_parts(tmp_path) == ["a", "b"]
    fresh = Store(tmp_path)
    texts = {k: decode(Kind.DRAFT, r).value.text for k, r in fresh.rows(SPEC).items()}  # type: ignore[union-attr]
    assert texts == {"a": "a", "b": "b"}


def test_a_crash_in_the_middle_of_compaction_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    for name in "abc":
        store.commit(SPEC, draft_table((name, drafted(name))))

    def crash(self: Path, missing_ok: bool = False) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", crash)
    with pytest.raises(KeyboardInterrupt):
        store.compact(SPEC)
    monkeypatch.undo()
    again = Store(tmp_path)
    assert set(again.rows(SPEC)) == {"a", "b", "c"}
    again.compact(SPEC)
    assert rows_of_parts(tmp_path) == ["a", "b", "c"]


def test_what_a_stopped_worker_committed_unsaid_survives_compaction(tmp_path: Path) -> None:
    """Ctrl-C ends workers between their commit and the receipt of it."""
    store = Store(tmp_path)
    store.commit(SPEC, draft_table(("a", drafted("a"))))
    write_part(store.folder(SPEC), draft_table(("a", drafted("a again")), ("b", drafted())))
    store.compact(SPEC)
    assert rows_of_parts(tmp_path) == ["a", "b"]
    assert len(list(tmp_path.glob("stages/*/part-*"))) == 1
    assert set(store.rows(SPEC)) == {"a", "b"}


def test_a_record_that_others_were_made_from_outlives_an_earlier_one(
    tmp_path: Path,
) -> None:
    """A worker that was cut off had committed it, and its answer came from elsewhere."""
    store = Store(tmp_path)
    write_part(store.folder(SPEC), draft_table(("b", drafted())))
    store.rows(SPEC)
    write_part(store.folder(SPEC), draft_table(("a", drafted("cut off"))))
    store.commit(SPEC, draft_table(("a", drafted("used"))))
    store.compact(SPEC)
    row = Store(tmp_path).rows(SPEC)["a"]
    assert decode(Kind.DRAFT, row).value.text == "used"  # type: ignore[union-attr]


def test_a_store_reads_on_where_it_has_joined_its_own_parts(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), painter()
    pictures = {str(i): Image.of(f"\x89PNG {i}".encode()) for i in range(3)}
    for key, picture in pictures.items():
        items = [Item(key, "l", ImageRequest(prompt="x"))]
        store.commit(spec, encode(Kind.RENDER, items, [Result(picture)], 0.1))
    store.compact(spec)
    for key, row in store.rows(spec).items():
        back = decode(Kind.RENDER, row)
        assert isinstance(back, Result)
        assert read_blob(back.value) == pictures[key].data


def test_a_record_made_twice_is_paid_for_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in range(2):
        store.commit(SPEC, draft_table(("a", drafted()), ("b", Skip("no"))))
    read = list(store.columns(SPEC, ["usage"]))
    assert sorted(r["key"] for r in read) == ["a", "b"]
    assert sum(json.loads(r["usage"]).get("output_tokens", 0) for r in read) == 3


def test_compaction_leaves_aside_what_cannot_be_read(tmp_path: Path) -> None:
    store = Store(tmp_path, repairs=True)
    for name in "abc":
        store.commit(SPEC, draft_table((name, drafted(name))))
    Path(store.rows(SPEC)["b"].part).write_bytes(b"not Parquet")
    store.compact(SPEC)
    assert rows_of_parts(tmp_path) == ["a", "c"]
    assert len(store.notices) == 1


def test_a_reader_looks_again_when_parts_are_joined_under_its_eyes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, reading = Store(tmp_path), Store(tmp_path)
    for name in "abc":
        writing.commit(SPEC, draft_table((name, drafted(name))))
    heads = Store._heads

    def joined_meanwhile(
        self: Store, spec: StageSpec, part: Path, read: Any
    ) -> dict[str, RecordRow]:
        monkeypatch.undo()
        writing.compact(SPEC)
        return heads(self, spec, part, read)

    monkeypatch.setattr(Store, "_heads", joined_meanwhile)
    assert set(reading.rows(SPEC)) == {"a", "b", "c"}
    assert reading.notices == []
    assert not list(tmp_path.glob("stages/*/*.unreadable"))
