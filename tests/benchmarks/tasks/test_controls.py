"""Controls by hand and by property; the order of ground truth and controls on a board."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_helpers import Judge, board, evaluation
from trial import as_asked

from benchmarks.results.validity import checks
from benchmarks.runs.config import RunConfig
from benchmarks.runs.experiment import open_experiment
from benchmarks.tasks.controls import CONTROLS, Pool, control, is_control
from cluster.plan import Evaluation, Plan, evaluations
from cluster.store import Store
from generators.base import NotApplicable, Result, Skip, Unscored
from generators.document import Document, Image, Malformed, Sample, Text, Turn
from generators.errors import UsageError

SHUFFLED, NO_IMAGES, OTHER, REPEATED = CONTROLS


def blob(name: str) -> Image:
    return Image.of(name.encode())


def truth(*parts: str | Image) -> Document:
    return Document(tuple(Text(p) if isinstance(p, str) else p for p in parts))


def sample(
    number: int, document: Document | None, field: str = "Art", category: str = "PBL"
) -> Sample:
    turns = (Turn("user", (Text(f"How to do {number}?"),)),)
    about = {"category": category, "field": field, "turns": turns}
    return Sample(id=f"{category}-{number}", reference=document, **about)


def steps(number: int, pictures: int = 2) -> Document:
    parts = [(f"Step {i} of {number}.", blob(f"{number}/{i}")) for i in range(pictures)]
    return truth(*(p for pair in parts for p in pair))


def answers(name: str, samples, seed: int = 0) -> dict[str, Document | Skip]:
    return dict(control(name, samples, seed).answers)


def made(name: str, document: Document | None, *others: Document, seed: int = 0):
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


def test_no_order_of_one_frequent_picture_moves_it_so_others_come():
    document = truth(A, A, A, B, "t")
    found = made(SHUFFLED, document, truth("u", A, C, blob("d")))
    assert isinstance(found, Document)
    assert [i.digest for i in found.images] == [
        i.digest for i in (C, blob("d"), C, blob("d"))
    ]
    assert made(SHUFFLED, truth(A, B, A, B)) == truth(B, A, B, A)


@pytest.mark.parametrize(
    ("name", "document", "others", "reason"),
    [
        (SHUFFLED, truth("No"), [steps(1)], "holds no picture"),
        (SHUFFLED, truth("a", A), [truth("b", A)], "holds another picture"),
        (NO_IMAGES, truth("No"), [], "holds no picture"),
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
        assert found["PBL-0"] == Skip("the sample has no ground truth")
        assert "PBL-9" not in found
    assert answers(OTHER, samples)["PBL-1"] == steps(2)


def test_other_answers_stay_in_the_field_and_then_in_the_category():
    lone = sample(0, truth("lone"), field="Health")
    art = [sample(i, steps(i), field="Art") for i in range(1, 6)]
    else_where = sample(7, truth("elsewhere"), field="Art", category="SA")
    found = answers(OTHER, [lone, *art, else_where])
    own = [s.reference for s in art]
    assert found["PBL-0"] in own
    assert all(found[s.id] in own and found[s.id] != s.reference for s in art)
    assert isinstance(found["SA-7"], Skip)


def test_no_sample_is_another_of_itself():
    samples = [sample(i, steps(i)) for i in range(9)]
    others = list(Pool(samples, 3).others(samples[4]))
    assert samples[4].reference not in others
    assert len(others) == 2 * 8  # once of the field, once of the category


documents = st.lists(
    st.one_of(st.sampled_from(["x", "y", "z"]), st.sampled_from([A, B, C, blob("d")])),
    min_size=1,
    max_size=8,
).map(lambda parts: truth(*parts))
pools = st.lists(st.one_of(documents, st.none()), min_size=1, max_size=8)


@given(pools, st.integers(0, 3))
def test_every_control_is_what_it_says(pool, seed):
    samples = [sample(i, d) for i, d in enumerate(pool)]
    for name in CONTROLS:
        for id, found in answers(name, samples, seed).items():
            own = next(s.reference for s in samples if s.id == id)
            if isinstance(found, Document):
                assert found != own
                claims(name, found, own, [s.reference for s in samples])


def claims(name: str, found: Document, own: Document, pool) -> None:
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


def test_one_sample_more_changes_the_answer_of_its_neighbour_alone():
    samples = [sample(i, steps(i)) for i in range(40)]
    for name in (OTHER, SHUFFLED):
        pool = [replace(s, reference=steps(i, 1)) for i, s in enumerate(samples)]
        before, after = answers(name, pool[1:]), answers(name, pool)
        assert sum(before[id] != after[id] for id in before) == 1


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


def test_large_task_sets_are_dealt_at_once():
    samples = [sample(i, truth("yes" if i % 2 else "no")) for i in range(5000)]
    found = answers(OTHER, samples)
    assert all(found[s.id] != s.reference for s in samples)


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
    asked = {s.id for s in part.samples}
    assert len(asked) == 6
    for one, other in zip(whole.systems, part.systems, strict=True):
        assert one.answers == other.answers
    assert {len(s.answers) for s in part.systems[1:]} == {len(part.task.samples)}
    assert run_of(seed=5).systems[3].answers != whole.systems[3].answers
    with pytest.raises(UsageError, match="unknown control"):
        run_of(systems=("gt:upside-down",))


def test_skips_of_controls_are_counted_with_their_reason(tmp_path):
    samples = [sample(0, truth("4"), "Physics", "MSR"), sample(1, steps(1))]
    systems = [control(name, samples, 0) for name in CONTROLS]
    plan = Plan(systems=systems, samples=samples, scorers=[], prompt=as_asked)
    found = list(evaluations(plan, Store(tmp_path)))
    assert all(isinstance(e, Evaluation) for e in found)
    outcomes = {(e.system, e.sample.id): e.document for e in found}
    assert outcomes[NO_IMAGES, "MSR-0"] == Skip("the ground truth holds no picture")
    assert outcomes[NO_IMAGES, "PBL-1"] == Result(truth("Step 0 of 1.", "Step 1 of 1."))


# ------------------------------------------------------------------ order on a board


def judged(table, **options):
    """A board of scores by system and query; None for a skipped answer."""
    found = []
    for name, scores in table.items():
        for i, score in enumerate(scores):
            about = sample(i, steps(i))
            skipped = Skip("cannot be made") if score is None else None
            found.append(evaluation(name, about, score, document=skipped))
    return board(found, **options)


def test_order_by_hand():
    made = judged(
        {
            "gt": [5, 6, 4, 5, 6, 3, 5],
            SHUFFLED: [4, 5, 3, 4, 5, 2, 4],
            NO_IMAGES: [5, 6, 4, 5, 6, 3, 5],
            OTHER: [6, 8, 5, 6, 7, 4, None],
            REPEATED: [5, 6, None, Unscored("?"), 5, None, NotApplicable("no")],
            "anole": [1, 1, 1, 1, 1, 1, 1],
        }
    )
    found = {c.control: c for c in checks(made)}
    assert list(found) == list(CONTROLS)
    assert {n: c.order for n, c in found.items()} == {
        SHUFFLED: "right",
        NO_IMAGES: "blind",
        OTHER: "wrong",
        REPEATED: "undecided",
    }
    shuffled = found[SHUFFLED]
    assert (shuffled.above, shuffled.below, shuffled.difference.n) == (7, 0, 7)
    assert shuffled.difference.value == pytest.approx(1.0)
    assert shuffled.truth.value == pytest.approx(34 / 7)
    assert shuffled.made.value == pytest.approx(27 / 7)
    other = found[OTHER]
    assert (other.above, other.below, other.difference.n) == (0, 6, 6)
    # both means are of the queries that have both
    assert other.truth.value == pytest.approx(29 / 6)
    few = found[REPEATED]
    assert (few.difference.n, few.difference.value) == (3, pytest.approx(1 / 3))
    assert few.difference.ci95 is None
    assert few.as_json()["equal"] == 2
    assert json.dumps([c.as_json() for c in checks(made)], allow_nan=False)


def test_nothing_scored_and_nothing_to_compare_with():
    assert checks(judged({SHUFFLED: [1, 2]})) == []
    (check,) = checks(judged({"gt": [1, None], SHUFFLED: [None, 2]}))
    assert (check.order, check.difference.n) == ("not scored", 0)


def test_every_scorer_is_checked_and_wide_spread_is_undecided():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 7, 40).astype(float)
    noise = rng.normal(0.1, 3, 40)
    table = {"gt": (values + noise).tolist(), SHUFFLED: values.tolist()}
    scorers = (Judge(), Judge("clipscore", "0-2.5"))
    found = checks(judged(table, scorers=scorers))
    assert [(c.scorer, c.scale) for c in found] == [
        ("judge", "0-6"),
        ("clipscore", "0-2.5"),
    ]
    assert [c.order for c in found] == ["undecided", "not scored"]


@pytest.mark.parametrize("scale", ["0-6", "-1-1", "no bounds"])
@pytest.mark.parametrize("noise", [2e-16, 1e-14, -1e-12])
def test_the_last_bits_of_a_score_decide_nothing(scale, noise):
    values = np.linspace(0.1, 0.9, 20)
    scorers = (Judge("judge", scale),)
    for moved in (values + noise, np.where(np.arange(20) % 7, values, values + noise)):
        table = {"gt": moved.tolist(), SHUFFLED: values.tolist()}
        (check,) = checks(judged(table, scorers=scorers))
        assert (check.order, check.above, check.below) == ("blind", 0, 0)
        assert check.difference.value == 0
    table = {"gt": (values + 1e-6).tolist(), SHUFFLED: values.tolist()}
    (check,) = checks(judged(table, scorers=scorers))
    assert (check.order, check.above) == ("right", 20)


def test_one_query_that_differs_decides_nothing():
    (check,) = checks(judged({"gt": [1, 0, 0, 0, 0, 0, 0], SHUFFLED: [0.0] * 7}))
    assert check.difference.ci95 is None
    assert check.order == "undecided"


@pytest.mark.parametrize(("n", "order"), [(5, "undecided"), (6, "right"), (30, "right")])
def test_where_all_differences_are_equal_their_signs_decide(n, order):
    (check,) = checks(judged({"gt": [3.0] * n, SHUFFLED: [2.0] * n}))
    assert check.difference.ci95 is None
    assert check.order == order


def test_the_difference_is_paired():
    """A shift far below the spread of queries shows, since both scores are of one query."""
    base = np.linspace(0, 5, 60)
    table = {"gt": (base + 0.2).tolist(), SHUFFLED: (base + 0.02 * np.sin(base)).tolist()}
    (check,) = checks(judged(table))
    assert check.order == "right"
    low, high = check.difference.ci95
    assert 0.15 < low < high < 0.25
    own = check.truth.ci95
    assert own[1] - own[0] > 10 * (high - low)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_swapping_the_two_turns_the_order(pairs):
    names = {"right": "wrong", "wrong": "right"}
    first, second = ([float(p[i]) for p in pairs] for i in (0, 1))
    (one,) = checks(judged({"gt": first, SHUFFLED: second}))
    (two,) = checks(judged({"gt": second, SHUFFLED: first}))
    assert two.order == names.get(one.order, one.order)
    assert (one.above, one.below) == (two.below, two.above)
    assert two.difference.value == pytest.approx(-one.difference.value)
