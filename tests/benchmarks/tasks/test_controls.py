"""Controls by hand and by property; the order of ground truth and controls on a board."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise_helpers import document as truth
from pairwise_helpers import sample as asked

from plait.benchmarks.runs.config import RunConfig
from plait.benchmarks.runs.experiment import open_experiment
from plait.benchmarks.tasks.controls import CONTROLS, control, is_control
from plait.generators.base import Skip
from plait.generators.document import Document, Image, Malformed, Text
from plait.generators.errors import UsageError

SHUFFLED, NO_IMAGES, OTHER, REPEATED = CONTROLS


def blob(name):
    return Image.of(name.encode())


def sample(number, document):
    about = {"category": "PBL", "field": "Art", "reference": document}
    return asked(f"How to do {number}?", id=f"PBL-{number}", **about)


def steps(number, pictures=2):
    parts = [(f"Step {i} of {number}.", blob(f"{number}/{i}")) for i in range(pictures)]
    return truth(*(p for pair in parts for p in pair))


def answers(name, samples, seed=0):
    return dict(control(name, samples, seed).answers)


def made(name, document, *others, seed=0):
    """The control of one sample among `others` of its field."""
    samples = [sample(i, d) for i, d in enumerate([document, *others])]
    return answers(name, samples, seed)["PBL-0"]


A, B, C = blob("a"), blob("b"), blob("c")


def test_controls_by_hand():
    document = truth("one", A, "two", B)
    assert made(SHUFFLED, document) == truth("one", B, "two", A)
    assert made(NO_IMAGES, document) == truth("one", "two")
    assert made(REPEATED, document) == truth("one", A, "one", B)
    assert made(OTHER, document, truth("three", C)) == truth("three", C)


def test_one_picture_comes_from_another_sample():
    document = truth("one", A, "two")
    assert made(SHUFFLED, document, truth("three", C)) == truth("one", C, "two")
    # what this answer holds itself would stay in place
    found = made(SHUFFLED, document, truth("x", A), truth("y", B, A), truth("text"))
    assert found == truth("one", B, "two")


@pytest.mark.parametrize(
    ("name", "document", "others", "reason"),
    [
        (SHUFFLED, truth("No"), [steps(1)], "holds no image"),
        (SHUFFLED, truth("a", A), [truth("b", A)], "holds another image"),
        (NO_IMAGES, truth("No"), [], "holds no image"),
        (NO_IMAGES, truth(A, B), [], "holds no text"),
        (OTHER, truth("No"), [truth("no."), truth("NO")], "has another answer"),
        (OTHER, truth("No"), [], "has another answer"),
        (REPEATED, truth("one", A), [], "no two different texts"),
        (REPEATED, truth("one", A, "one"), [], "no two different texts"),
    ],
)
def test_a_control_that_cannot_be_made_is_skipped_and_says_why(
    name, document, others, reason
):
    found = made(name, document, *others)
    assert isinstance(found, Skip)
    assert reason in found.reason


def test_samples_without_ground_truth_and_malformed_rows_have_no_control():
    broken = Malformed(id="PBL-9", row=9, reason="row 9", category="PBL", field="Art")
    samples = [sample(0, None), sample(1, steps(1)), sample(2, steps(2)), broken]
    for name in CONTROLS:
        found = answers(name, samples)
        assert found["PBL-0"] == Skip("the query has no ground truth")
        assert "PBL-9" not in found
    assert answers(OTHER, samples)["PBL-1"] == steps(2)


documents = st.lists(
    st.one_of(st.sampled_from(["x", "y", "z"]), st.sampled_from([A, B, C, blob("d")])),
    min_size=1,
    max_size=8,
).map(lambda parts: truth(*parts))
pools = st.lists(st.one_of(documents, st.none()), min_size=1, max_size=8)


@settings(max_examples=50)
@given(pools, st.integers(0, 3))
def test_every_control_is_what_it_says(pool, seed):
    samples = [sample(i, d) for i, d in enumerate(pool)]
    for name in CONTROLS:
        for id, found in answers(name, samples, seed).items():
            own = next(s.reference for s in samples if s.id == id)
            if isinstance(found, Document):
                assert found != own
                claims(name, found, own, [s.reference for s in samples])


def claims(name, found, own, pool):
    shape = [type(s) for s in own.segments]
    if name == SHUFFLED:
        assert [type(s) for s in found.segments] == shape
        assert found.text == own.text
        pairs = zip(found.images, own.images, strict=True)
        assert all(new.digest != old.digest for new, old in pairs)
        counts = [own.images.count(i) for i in own.images]
        if 2 * max(counts) <= len(counts):
            assert sorted(i.digest for i in found.images) == sorted(
                i.digest for i in own.images
            )
    elif name == NO_IMAGES:
        assert not found.images
        assert found.text == own.text
    elif name == OTHER:
        assert found in pool
    else:
        first = next(s.text for s in own.segments if isinstance(s, Text))
        assert [type(s) for s in found.segments] == shape
        assert found.images == own.images
        assert {s.text for s in found.segments if isinstance(s, Text)} == {first}


def test_controls_depend_on_neither_order_nor_process():
    samples = [sample(i, steps(i, 1 + i % 4)) for i in range(30)]
    shuffled = random.Random(1).sample(samples, len(samples))
    for name in CONTROLS:
        assert answers(name, samples) == answers(name, shuffled)
    found = answers(OTHER, samples)
    # Hashes of strings differ between processes: these were found by another one.
    assert [found[f"PBL-{i}"] for i in (0, 1, 2)] == [
        steps(n, 1 + n % 4) for n in (27, 10, 13)
    ]


def test_each_answer_is_used_once_and_another_seed_deals_anew():
    samples = [sample(i, steps(i)) for i in range(50)]
    dealt = [answers(OTHER, samples, seed) for seed in (0, 1)]
    for found in dealt:
        texts = [found[s.id].text for s in samples]
        assert len(set(texts)) == len(samples)
    moved = sum(dealt[0][s.id] != dealt[1][s.id] for s in samples)
    assert moved > 40
    many = [sample(i, steps(i, 6)) for i in range(20)]
    first, second = (answers(SHUFFLED, many, seed) for seed in (0, 1))
    assert sum(first[s.id] != second[s.id] for s in many) > 15


def test_unknown_controls_are_named_with_the_valid_ones():
    assert is_control("gt:no-image")
    assert not is_control("gt")
    with pytest.raises(UsageError, match="did you mean 'gt:no-images'"):
        control("gt:no-image", [], 0)


def run_of(**changes):
    systems = ("gt", *CONTROLS)
    given_ = {"systems": systems, "scorers": ("bleu",), "weights": "tiny"} | changes
    return open_experiment(RunConfig(**given_))


def test_a_run_resolves_controls_from_the_whole_task_set(tmp_path):
    whole, part = run_of(), run_of(limit=6)
    assert [s.name for s in part.systems] == ["gt", *CONTROLS]
    assert len({s.id for s in part.queries}) == 6
    for one, other in zip(whole.systems[1:], part.systems[1:], strict=True):
        assert one.answers == other.answers
    assert {len(s.answers) for s in part.systems[1:]} == {len(part.task.samples)}
    assert run_of(seed=5).systems[3].answers != whole.systems[3].answers
    with pytest.raises(UsageError, match="unknown control"):
        run_of(systems=("gt:upside-down",))
