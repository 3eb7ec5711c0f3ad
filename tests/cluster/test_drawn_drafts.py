"""Drafts that come with images: their records, beside those of earlier versions."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest
from store_helpers import SPEC, draft_table, drafted, rows_of_parts

from cluster.parts import DamagedPart, read_part
from cluster.records import decode
from cluster.store import Store, read_blob, write_part
from cluster.verify import check_part
from generators.base import Kind, Result
from generators.document import Draft, Image, ImageRequest, Payload, Text
from generators.images import Drawing


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
