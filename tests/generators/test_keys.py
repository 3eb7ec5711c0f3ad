"""What enters a key and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.base import Job, Kind, Placement, StageSpec
from generators.document import (
    Candidate,
    Document,
    Image,
    ImageRequest,
    Payload,
    Request,
    Text,
    Turn,
    with_blobs,
)
from generators.keys import canonical, derived_seed, digest

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
REQUEST = Request((Turn("user", (Text("why"), Image.of(b"picture"))),), seed=3)


def key(spec: StageSpec = SPEC, request: Request = REQUEST, label: str = "s") -> str:
    return Job(spec, request, label).key


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"identity": "hub:x@2"},
        {"weights": "dummy"},
        {"settings": {"temperature": 0.1}},
        {"target": "m:D"},
        {"kind": Kind.RENDER},
    ],
)
def test_whatever_changes_results_changes_the_key(change: dict) -> None:
    assert key(replace(SPEC, **change)) != key()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"options": {"device": "cuda"}},
        {"placement": Placement(batch_size=64, num_gpus=8, workers=3)},
        {"secrets": ("KEY",)},
    ],
)
def test_how_a_stage_is_run_does_not(change: dict) -> None:
    assert key(replace(SPEC, **change)) == key()


def test_the_label_and_the_place_of_bytes_do_not() -> None:
    turns = (
        Turn("user", (Text("why"), replace(Image.of(b"picture"), data=None, place="x"))),
    )
    assert key(request=Request(turns, seed=3), label="other") == key()


def test_every_part_of_the_input_does() -> None:
    keys = {
        key(request=Request((Turn("user", content),), seed=seed))
        for content in ((Text("why"),), (Text("why?"),), (Text("w"), Text("hy")), ())
        for seed in (None, 0, 1)
    }
    assert len(keys) == 12


def test_an_empty_field_added_later_changes_no_key() -> None:
    assert canonical(ImageRequest(prompt="a cat")) == {"ImageRequest": {"prompt": "a cat"}}


def test_keys_are_those_of_records_already_made() -> None:
    """A change here makes every run directory start anew."""
    assert SPEC.digest == "1549df222248bd7b603f0c93153414c1"
    assert key() == "894158b8f6752402b305e0d29cd2140a"
    picture = ImageRequest("a cat", Payload.of(b"codes"), (Text("so far"),), seed=7)
    assert digest(picture) == "f64874a68ac0aa899b7459b7774a5c22"
    document = Document((Text("a"), Image.of(b"picture")), (1, 2))
    candidate = Candidate(document, (Text("q"),), document, "criteria")
    assert digest(candidate) == "bd837aaf35c7b9871f32ccc58414c624"


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
    with pytest.raises(TypeError, match="object has no canonical form"):
        digest(object())


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_the_order_of_settings_does_not_matter(settings: dict) -> None:
    assert digest(settings) == digest(dict(reversed(list(settings.items()))))


@given(st.integers(0, 2**31), st.text(), st.integers(0, 9), st.integers(-3, 9))
def test_seeds_are_63_bit_and_repeatable(
    seed: int, name: str, repeat: int, at: int
) -> None:
    value = derived_seed(seed, name, repeat, at)
    assert 0 <= value < 2**63
    assert value == derived_seed(seed, name, repeat, at)


def test_seeds_differ_by_sample_repeat_and_position() -> None:
    seeds = {
        derived_seed(0, s, r, p) for s in ("a", "b") for r in range(3) for p in range(-1, 4)
    }
    assert len(seeds) == 30


def test_with_blobs_reaches_every_blob() -> None:
    seen = []
    with_blobs(REQUEST, lambda blob: seen.append(blob.digest) or blob)
    assert seen == [Image.of(b"picture").digest]
