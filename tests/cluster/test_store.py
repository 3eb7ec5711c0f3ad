"""Parts are whole or absent; readers see every key once, the better record."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import SPEC, draft_table, drafted, item, rows_of_parts
from trial import painter

from plait.cluster import parts
from plait.cluster.local import LocalEngine
from plait.cluster.parts import Committer, DamagedPart, read_part
from plait.cluster.records import SCHEMAS, Item, RecordRow, decode, encode, kind_of
from plait.cluster.store import Store, StoreError, notes_of, read_blob, write_part
from plait.cluster.verify import check_part
from plait.generators.base import (
    Failure,
    Fault,
    Job,
    Kind,
    Outcome,
    Result,
    Skip,
    StageSpec,
    Unscored,
)
from plait.generators.document import (
    Draft,
    Embedding,
    Image,
    ImageRequest,
    Payload,
    Request,
    Score,
    Text,
    Turn,
)
from plait.generators.images import Drawing


def test_a_draft_comes_back_as_it_went_in(tmp_path: Path) -> None:
    payloads = [Payload.of(b"codes 0"), Payload.of(b"codes 1")]
    draft = Draft(
        (
            Text("Zo\u00eb said \U0001f600\n"),
            ImageRequest(payload=payloads[0]),
            Text("then"),
            ImageRequest(prompt="a dog"),
            ImageRequest(payload=payloads[1]),
        )
    )
    store = Store(tmp_path)
    store.commit(SPEC, draft_table(("k0", drafted("first")), ("k", Result(draft))))
    back = decode(Kind.DRAFT, Store(tmp_path).rows(SPEC)["k"])
    assert isinstance(back, Result)
    assert back.value == draft
    read = [read_blob(r.payload) for r in back.value.requests if r.payload]
    assert read == [b"codes 0", b"codes 1"]
    (part,) = tmp_path.glob("stages/*/part-*")
    assert "Zo\u00eb said \U0001f600" in pq.read_table(part).column("segments")[1].as_py()


@pytest.mark.parametrize(
    "outcome",
    [
        Skip("two pictures"),
        Failure("no", Fault.REFUSED),
        Failure("later", Fault.ENDPOINT),
        Unscored("unreadable"),
    ],
)
def test_outcomes_keep_their_kind_and_reason(tmp_path: Path, outcome: Outcome[Any]) -> None:
    store = Store(tmp_path)
    store.commit(SPEC, draft_table(("k", outcome)))
    assert decode(Kind.DRAFT, Store(tmp_path).rows(SPEC)["k"]) == outcome


def test_small_records_share_a_group_of_plain_pages(tmp_path: Path) -> None:
    """Dictionaries and statistics of columns are work for each part that nobody uses."""
    items = [item(str(i)) for i in range(1000)]
    table = encode(Kind.SCORE, items, [Result(Score(float(i))) for i in range(1000)], 0.1)
    part = pq.ParquetFile(write_part(tmp_path, table))
    assert part.read().equals(table)
    assert part.metadata.num_row_groups == 1
    group = part.metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    assert {column.has_dictionary_page for column in columns} == {False}
    assert {column.is_stats_set for column in columns} == {False}


@pytest.mark.parametrize("name", ["run", "run#1 [a]"])
def test_scores_and_pictures_come_back(tmp_path: Path, name: str) -> None:
    store, spec = Store(tmp_path / name), painter()
    picture = Image.of(b"\x89PNG not really")
    items = [Item("p", "l", ImageRequest(prompt="a dog"))]
    store.commit(spec, encode(Kind.RENDER, items, [Result(picture)], 0.1))
    back = decode(Kind.RENDER, Store(store.root).rows(spec)["p"])
    assert isinstance(back, Result)
    assert back.value == picture
    assert read_blob(back.value) == picture.data

    score = Score(0.25, {"pairs": [1, 2]})
    table = encode(Kind.SCORE, [item("s")], [Result(score)], 0.1)
    assert table.schema == SCHEMAS[Kind.SCORE]


def test_only_the_row_group_of_a_cell_is_read(tmp_path: Path) -> None:
    """Rows are grouped to about 1 MiB, so one image does not cost its whole part."""
    spec = painter()
    pictures = [Image.of(bytes([i]) * 600_000) for i in range(6)]
    items = [Item(str(i), "l", ImageRequest(prompt="x")) for i in range(6)]
    outcomes = [Result(p) for p in pictures]
    part = write_part(tmp_path, encode(Kind.RENDER, items, outcomes, 0.1))
    assert pq.ParquetFile(part).metadata.num_row_groups == 6
    store = Store(tmp_path)
    store.commit(spec, encode(Kind.RENDER, items, outcomes, 0.1))
    for i, row in store.rows(spec).items():
        back = decode(Kind.RENDER, row)
        assert isinstance(back, Result)
        assert read_blob(back.value) == pictures[int(i)].data


@pytest.mark.models
def test_datasets_shows_decoded_pictures(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    import numpy as np

    from plait.generators.images import Drawing

    store, spec = Store(tmp_path), painter()
    for shade in (0, 200):
        drawing = Drawing(np.full((8, 8, 3), shade, np.uint8))
        outcomes = [Result(drawing), Failure("no", Fault.UNSAFE)]
        items = [Item(f"{shade}-{i}", "l", ImageRequest(prompt="x")) for i in range(2)]
        store.commit(spec, encode(Kind.RENDER, items, outcomes, 0.1))  # type: ignore[arg-type]
    for compacted in (False, True):
        if compacted:
            store.compact(spec)
        files = [str(p) for p in tmp_path.glob("stages/*/part-*.parquet")]
        data = datasets.load_dataset(
            "parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
        )
        shown = {r["key"]: r["image"] for r in data}
        assert shown["200-0"].size == (8, 8)
        assert shown["200-0"].getpixel((0, 0)) == (200, 200, 200)
        assert shown["0-1"] is None


DRAFTED = drafted()
THINKING = drafted("<think>hello?</think>hello")
REPLACED = [THINKING, Failure("y", Fault.TIMEOUT)]
kinds = st.sampled_from([drafted(), Skip("no"), Failure("x", Fault.REFUSED), *REPLACED])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), kinds), max_size=12))
def test_a_settled_record_stands_whatever_comes_before_or_after(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, Outcome[Any]]]
) -> None:
    root = tmp_path_factory.mktemp("store")
    store = Store(root)
    settled: dict[str, Outcome[Any]] = {}
    for key, outcome in history:
        store.commit(SPEC, draft_table((key, outcome)))
        if outcome not in REPLACED:
            settled.setdefault(key, outcome)
    for reader in (store, Store(root)):
        for key, expected in (dict(history) | settled).items():
            decoded = decode(Kind.DRAFT, reader.rows(SPEC)[key])
            assert type(decoded) is type(expected)
            assert getattr(decoded, "value", None) == getattr(expected, "value", None)
        assert set(reader.rows(SPEC)) == {k for k, _ in history}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.processes
def test_a_full_disk_is_said_and_costs_nothing_already_written(small_disk: Path) -> None:
    store = Store(small_disk)
    store.commit(SPEC, draft_table(("a", drafted())))
    import random

    rng = random.Random(0)
    noise = "".join(chr(rng.randint(32, 0x2FFF)) for _ in range(300_000))
    with pytest.raises(StoreError, match=r"No space left on device.*same command again"):
        store.commit(SPEC, draft_table(("b", drafted(noise))))
    again = Store(small_disk)
    assert set(again.rows(SPEC)) == {"a"}
    assert not list(small_disk.glob("stages/*/.part*"))


def test_commits_that_arrive_together_share_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that come while one part is written are written as the next."""
    writing, go_on = threading.Event(), threading.Event()
    write_part = parts.write_part

    def slowly(*args: Any) -> Path:
        writing.set()
        assert go_on.wait(60)
        return write_part(*args)

    monkeypatch.setattr(parts, "write_part", slowly)
    committer, places = Committer(tmp_path), dict[str, tuple[str, int]]()
    threads = {
        key: threading.Thread(
            target=lambda k=key: places.update(
                {k: committer.commit(draft_table((k, DRAFTED)))}
            )
        )
        for key in "abcdef"
    }
    threads["a"].start()
    assert writing.wait(60)
    for thread in list(threads.values())[1:]:
        thread.start()
    while committer._queue.qsize() < 5:
        time.sleep(0.001)
    go_on.set()
    for thread in threads.values():
        thread.join()
    assert len(list(tmp_path.glob("part-*"))) == 2
    for key, (part, row) in places.items():
        assert pq.read_table(part).column("key")[row].as_py() == key


def asking(*jobs: Job) -> Any:
    return (yield list(jobs))


LONE = "half a smiley \ud83d and no more"


@pytest.mark.parametrize(
    ("outcome", "count"),
    [
        (Result(Draft((Text(LONE), ImageRequest(prompt=LONE)))), 2),
        (Result(Draft((Text("x"),)), notes={"prompt": [LONE, 1]}), 1),
        (Failure(LONE, Fault.REFUSED, notes={LONE: LONE}), 3),
        (Skip(LONE), 1),
    ],
)
def test_half_characters_are_replaced_and_counted(
    tmp_path: Path, outcome: Outcome[Any], count: int
) -> None:
    """Models and servers do emit lone surrogates."""
    store = Store(tmp_path)
    store.commit(SPEC, draft_table(("k", outcome)))
    row = Store(tmp_path).rows(SPEC)["k"]
    back = replace(decode(Kind.DRAFT, row), notes=notes_of(row))  # type: ignore[call-arg]
    engine = LocalEngine(lambda spec: lambda inputs: [outcome])
    ended: list[Any] = []
    engine.add(asking(Job(SPEC, Request(()), "x")), ended.append)
    while not ended:
        engine.turn()
    assert ended == [[back]]
    assert back.notes.pop("replaced_characters") == count
    assert repr(back) == repr(outcome).replace("\\ud83d", "\ufffd")
    stored = pq.read_table(next(tmp_path.glob("stages/*/part-*")))
    assert "\ufffd" in str(stored.to_pylist())
    assert "ud83d" not in str(stored.to_pylist())


def test_vectors_come_back_as_they_were(tmp_path: Path) -> None:
    spec = replace(SPEC, kind=Kind.EMBED)
    made = Result(Embedding(bytes(range(16))))
    table = encode(Kind.EMBED, [item("k")], [made], 0.1)
    Store(tmp_path).commit(spec, table)
    assert decode(Kind.EMBED, Store(tmp_path).rows(spec)["k"]) == made
    assert kind_of(table.column_names) is Kind.EMBED


# ------------------------------------------------------------------ drafts with images


def picture(shade: int) -> Image:
    import numpy as np

    return Drawing(np.full((4, 4, 3), shade, np.uint8)).encoded()


def interleaved() -> Draft:
    payload = Payload.of(b"states")
    request = ImageRequest(payload=payload)
    return Draft((Text("one"), picture(1), request, Text("two"), picture(2), picture(1)))


def as_before(table: pa.Table) -> pa.Table:
    """The same records as versions wrote them whose drafts held no images."""
    return table.drop_columns(["images"])


def test_pictures_and_payloads_of_a_draft_come_back_in_their_places(tmp_path: Path) -> None:
    Store(tmp_path).commit(SPEC, draft_table(("k", Result(interleaved()))))
    back = decode(Kind.DRAFT, Store(tmp_path).rows(SPEC)["k"])
    assert isinstance(back, Result)
    assert back.value == interleaved()
    for image, drawn in zip(back.value.images, interleaved().images, strict=True):
        assert read_blob(image) == drawn.data
    assert read_blob(back.value.requests[0].payload) == b"states"


def test_drafts_of_earlier_versions_are_read_and_joined_with_new_ones(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    write_part(store.folder(SPEC), as_before(draft_table(("old", drafted("before")))))
    store.commit(SPEC, draft_table(("new", Result(interleaved()))))
    assert decode(Kind.DRAFT, Store(tmp_path).rows(SPEC)["old"]) == Result(
        drafted("before").value
    )
    store.compact(SPEC)
    assert rows_of_parts(tmp_path) == ["new", "old"]
    (part,) = Store(tmp_path).parts(SPEC)
    assert check_part(part, images=True).damage is None
    back = decode(Kind.DRAFT, Store(tmp_path).rows(SPEC)["new"])
    assert isinstance(back, Result)
    assert [read_blob(i) for i in back.value.images] == [
        i.data for i in interleaved().images
    ]


def test_a_part_that_lacks_any_other_column_is_damaged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_part(store.folder(SPEC), draft_table(("a", drafted())).drop_columns(["payload"]))
    store.commit(SPEC, draft_table(("b", drafted())))
    with pytest.raises(DamagedPart, match="payload"):
        store.compact(SPEC)


@pytest.mark.parametrize("column", ["images", "payload"])
def test_bytes_of_a_draft_with_another_digest_are_damage(
    tmp_path: Path, column: str
) -> None:
    table = draft_table(("k", Result(interleaved())))
    cells = table.column(column).to_pylist()
    first = cells[0][0]
    cells[0][0] = {**first, "bytes": b"no"} if column == "images" else b"no"
    place = table.column_names.index(column)
    field = table.schema.field(column)
    table = table.set_column(place, field, pa.array(cells, field.type))
    part = write_part(Store(tmp_path).folder(SPEC), table)
    assert "another digest" in (check_part(part).damage or "")
    draft = decode(Kind.DRAFT, Store(tmp_path).rows(SPEC)["k"]).value  # type: ignore[union-attr]
    blob = draft.images[0] if column == "images" else draft.requests[0].payload
    with pytest.raises(DamagedPart, match="another digest"):
        read_blob(blob)


def test_what_is_no_picture_is_named_by_its_key(tmp_path: Path) -> None:
    broken = Draft((Image.of(b"not a picture"),))
    part = write_part(tmp_path, draft_table(("k", Result(broken))))
    assert check_part(part, images=True).undecodable == ["k"]


@pytest.mark.models
def test_datasets_shows_the_pictures_of_drafts(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    table = draft_table(("k", Result(interleaved())), ("t", drafted()))
    part = write_part(tmp_path, table)
    data = datasets.load_dataset(
        "parquet", data_files=str(part), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert [image.size for image in data[0]["images"]] == [(4, 4)] * 3
    assert data[1]["images"] == []
    stored = read_part(part, ["images"]).column(0).to_pylist()
    digest = hashlib.sha256(stored[0][0]["bytes"]).hexdigest()
    assert digest == picture(1).digest


# -------------------------------------------------------------------------- compaction


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


def test_records_left_out_come_back_unless_they_are_made_again(tmp_path: Path) -> None:
    store, jobs = Store(tmp_path), {}
    for name in "abcd":
        request = Request((Turn("user", (Text(name),)),))
        jobs[name] = Job(SPEC, request, name)
    for name in "abc":
        store.commit(SPEC, draft_table((jobs[name].key, THINKING)))
    with store.without(jobs.values()):
        assert not store.rows(SPEC)
        store.commit(SPEC, draft_table((jobs["b"].key, drafted("again"))))
        store.commit(SPEC, draft_table((jobs["c"].key, Failure("y", Fault.TIMEOUT))))
    store.compact(SPEC)
    for reader in (store, Store(tmp_path)):
        rows = {name: reader.row(job) for name, job in jobs.items()}
        read = {n: r and decode(Kind.DRAFT, r) for n, r in rows.items()}
        assert read["a"] == Result(THINKING.value)
        assert read["b"] == Result(drafted("again").value)
        assert isinstance(read["c"], Failure)
        assert read["d"] is None


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
