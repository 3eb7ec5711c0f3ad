"""What enters a key and what does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.generators.base import Job, Kind, Placement, StageSpec
from plait.generators.document import (
    Blob,
    Candidate,
    Document,
    Image,
    ImageRequest,
    LogprobsRequest,
    Payload,
    Request,
    Text,
    TransformRequest,
    Turn,
    WindowedText,
    parts_of,
    replace_parts,
    with_blobs,
)
from plait.generators.keys import canonical_text, derived_seed, digest

SPEC = StageSpec(
    name="a",
    kind=Kind.DRAFT,
    target="m:C",
    version=1,
    identity="hub:x@1",
    weights="tiny",
    settings={"temperature": 0.0},
    options={"device": "cpu"},
)
IMAGE = Image.of(b"picture")
REQUEST = Request((Turn("user", (Text("why"), IMAGE)),), seed=3)


def key(spec: StageSpec = SPEC, request: Request = REQUEST, label: str = "s") -> str:
    return Job(spec, request, label).key


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({"version": 2}, True),
        ({"identity": "hub:x@2"}, True),
        ({"weights": "dummy"}, True),
        ({"settings": {"temperature": 0.1}}, True),
        ({"target": "m:D"}, True),
        ({"kind": Kind.RENDER}, True),
        ({"name": "b"}, False),
        ({"options": {"device": "cuda"}}, False),
        ({"placement": Placement(batch_size=64, num_gpus=8, workers=3)}, False),
        ({"secrets": ("KEY",)}, False),
    ],
)
def test_what_changes_results_changes_the_key(change: dict[str, Any], counts: bool) -> None:
    assert (key(replace(SPEC, **change)) != key()) is counts


def test_every_part_of_the_input_does_but_neither_its_label_nor_its_place() -> None:
    keys = {
        key(request=Request((Turn("user", content),), seed=seed))
        for content in ((Text("why"),), (Text("why?"),), (Text("w"), Text("hy")), ())
        for seed in (None, 0, 1)
    }
    assert len(keys) == 12
    elsewhere = with_blobs(REQUEST, lambda b: replace(b, data=None, place=b.digest))
    assert elsewhere.images[0].place == IMAGE.digest
    assert key(request=elsewhere, label="other") == key()
    assert with_blobs(REQUEST, lambda b: b) is REQUEST


def test_keys_are_those_of_records_already_made() -> None:
    """A change here makes every run directory start anew."""
    assert SPEC.digest == "1549df222248bd7b603f0c93153414c1"
    assert key() == "894158b8f6752402b305e0d29cd2140a"
    image = ImageRequest("a cat", Payload.of(b"codes"), (Text("so far"),), seed=7)
    assert digest(image) == "f64874a68ac0aa899b7459b7774a5c22"
    document = Document((Text("a"), IMAGE), (1, 2))
    candidate = Candidate(document, (Text("q"),), document, "criteria")
    assert digest(candidate) == "bd837aaf35c7b9871f32ccc58414c624"
    # An empty field that is added later changes none, nor does the order of settings.
    prompted = '{"ImageRequest":{"prompt":"a cat"}}'
    assert canonical_text(ImageRequest(prompt="a cat")) == prompted
    assert digest({"a": 1, "b": None}) == digest({"b": None, "a": 1})


def plain_form(value: Any) -> Any:
    """The canonical form as plain objects, which records of all versions are named by."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, tuple | list):
        return [plain_form(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain_form(v) for k, v in value.items()}
    if isinstance(value, Blob):
        origin = value.origin if isinstance(value, Payload) else None
        return {type(value).__name__: origin or value.digest}
    match value:
        case TransformRequest():
            return plain_form(ImageRequest(context=value.images))
        case WindowedText():
            return plain_form(
                Candidate(Document((Text(value.text),)), (Text(value.prefix),))
            )
        case LogprobsRequest():
            form = plain_form(Candidate(Document(value.shown), value.question))
            answers = {"answers": [*value.answers]} if value.answers else {}
            return {"Candidate": answers | form["Candidate"]}
    content = {f.name: plain_form(getattr(value, f.name)) for f in fields(value)}
    filled = {k: v for k, v in content.items() if v not in (None, [], {})}
    return {type(value).__name__: filled}


TEXTS = st.text(st.characters(), max_size=9) | st.sampled_from(["\ud800", '"\\\n', "é😀"])
SEEDS = st.none() | st.integers(0, 2**63 - 1)
IMAGES = st.builds(Image, TEXTS, st.none() | st.binary(), st.none() | TEXTS)
PAYLOADS = st.builds(Payload, TEXTS, origin=st.none() | TEXTS)
CONTENTS = st.lists(st.builds(Text, TEXTS) | IMAGES, max_size=4).map(tuple)
ENDS = st.lists(st.integers(0, 9), max_size=2).map(tuple)
DOCUMENTS = st.builds(Document, CONTENTS, ENDS)
TURNS = st.builds(Turn, st.sampled_from(["system", "user", "assistant"]), CONTENTS)
SETTINGS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from(Kind),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TEXTS | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
INPUTS = st.one_of(
    st.builds(
        Request,
        st.lists(TURNS, max_size=3).map(tuple),
        SEEDS,
        st.sampled_from([None, "text"]),
        st.none() | st.integers(1, 9),
    ),
    st.builds(ImageRequest, st.none() | TEXTS, st.none() | PAYLOADS, CONTENTS, SEEDS),
    st.builds(
        Candidate,
        DOCUMENTS,
        CONTENTS,
        st.none() | DOCUMENTS,
        st.none() | TEXTS,
    ),
    st.builds(LogprobsRequest, CONTENTS, CONTENTS, st.lists(TEXTS, max_size=2).map(tuple)),
    st.builds(WindowedText, TEXTS, TEXTS),
    st.builds(TransformRequest, IMAGES, st.lists(IMAGES, max_size=2).map(tuple)),
    st.builds(Blob, TEXTS),
    SETTINGS,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(INPUTS)
def test_the_text_of_a_value_is_that_of_its_plain_form(value: Any) -> None:
    plain = json.dumps(plain_form(value), sort_keys=True, separators=(",", ":"))
    assert canonical_text(value) == plain
    assert canonical_text(value) == plain  # where it is kept, too


@settings(max_examples=100, deadline=None, derandomize=True)
@given(INPUTS)
def test_parts_are_found_where_they_are_changed(value: Any) -> None:
    seen: list[str] = []
    replace_parts(value, str, lambda text: seen.append(text) or text)
    assert sorted(parts_of(value, str)) == sorted(seen)


def test_a_payload_is_named_by_where_it_comes_from() -> None:
    def job(data: bytes, origin: str | None) -> Job:
        payload = replace(Payload.of(data), origin=origin)
        return Job(SPEC, ImageRequest(payload=payload, seed=7), "s")

    today, former = job(b"codes", "here").keys
    assert today == job(b"noise", "here").key == "5760db33f76116a93d8370904167d8dc"
    assert former == job(b"codes", None).key == "54f977f886f67429818c5f50ebd7295f"
    assert job(b"codes", "there").key not in (today, former)
    assert Job(SPEC, REQUEST, "s").keys == (key(),)


def test_values_without_a_canonical_form_are_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        digest(object())


def test_seeds_differ_by_query_repeat_and_position_and_never_change() -> None:
    parts = [(s, r, p) for s in ("a", "b") for r in range(3) for p in range(-1, 4)]
    seeds = [derived_seed(0, *part) for part in parts]
    assert len(set(seeds)) == 30
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seeds[0] == 1131944279683320350
