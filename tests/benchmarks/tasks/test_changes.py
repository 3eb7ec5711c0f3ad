"""What tells that a query has changed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from plait.benchmarks.tasks.changes import query_digest
from plait.generators.document import Document, Image, Malformed, Query, Text, Turn


def picture(data: bytes, place: str | None = None) -> Image:
    return Image(Image.of(data).digest, place=place)


def query(place: str | None = None) -> Query:
    drawn = picture(b"a", place)
    return Query(
        id="SA-1",
        category="SA",
        field="Art",
        turns=(Turn("user", (Text("Why?"), drawn)),),
        reference=Document((Text("So."), drawn), ends=(1, 2)),
        criteria="Is it so?",
        metadata={"a": "b"},
    )


OTHERS: dict[str, tuple[Any, ...]] = {
    "id": (),
    "category": ("PBL",),
    "field": ("Food",),
    "turns": (
        (Turn("user", (Text("How?"), picture(b"a"))),),
        (Turn("user", (Text("Why?"), picture(b"b"))),),
        (Turn("system", (Text("Why?"), picture(b"a"))),),
    ),
    "reference": (
        None,
        Document((Text("So."), picture(b"b")), ends=(1, 2)),
        Document((Text("So."), picture(b"a"))),
    ),
    "criteria": (None, "Is it?"),
    "wants_images": (False,),
    "metadata": ({}, {"a": "c"}, {"b": "b"}),
}


@pytest.mark.parametrize("name", [f.name for f in fields(Query)])
def test_every_field_that_is_asked_or_read_counts(name: str) -> None:
    others = [replace(query(), **{name: value}) for value in OTHERS[name]]
    digests = {query_digest(other) for other in (query(), *others)}
    assert len(digests) == 1 + len(others)


def test_neither_id_nor_places_of_files_count() -> None:
    moved = replace(query("/elsewhere/a.png"), id="SA-2")
    assert query_digest(moved) == query_digest(query())
    # Records of runs are compared with it: it stays what it was.
    assert query_digest(query()) == "b3b3908e4e8e1471556aa84eee3a0cf2"


def test_a_malformed_row_is_known_by_what_is_made_of_it() -> None:
    row = Malformed(id="SA-1", row=3, reason="row 3 (SA-1): missing key: 'field'")
    same = replace(row, row=4, reason="row 4 (SA-1): missing picture: b.png")
    others = [
        replace(row, category="SA"),
        replace(row, field="Art"),
        replace(row, released=query()),
        replace(row, released=replace(query(), criteria=None)),
    ]
    assert query_digest(same) == query_digest(row)
    digests = {query_digest(value) for value in (row, *others, query())}
    assert len(digests) == 2 + len(others)
