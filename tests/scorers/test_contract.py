"""What every scorer does: its scale, outcomes in order, no value, names of records."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
from scorer_helpers import JUDGE, SAMPLES, STAGES, first, made, scored, truth_of

from plait.benchmarks.speed.report import same
from plait.generators.base import (
    Failure,
    Fault,
    NotApplicable,
    Result,
    SetMember,
    StageSpec,
    Unread,
    Unscored,
)
from plait.generators.catalogue import Named, by_name
from plait.generators.document import Document, Image, Score, Text
from plait.generators.errors import UsageError
from plait.scorers import resolve_scorer
from plait.scorers.base import DIRECTIONS, UNBOUNDED, admit, bounds

COMPARED = ("isg-structure", "known-answer")
"""Read no content: `test_answers.py` is about them."""
OF_EDITS = ("editreward", "kept-dino", "kept-lpips", "kept-ssim")
"""Need an original, most a mask too: `test_editreward.py`, `test_kept.py`."""
_ELSEWHERE = (*COMPARED, *OF_EDITS)
NAMES = [*(name for name in by_name(Named.SCORER) if name not in _ELSEWHERE), JUDGE]
OF_TEXT = ("bertscore", "bleu", "chrf", "rouge1", "rouge2", "rougeL")
"""Of those that compare with the ground truth, the ones that read text alone."""
OF_TRUTH = (*OF_TEXT, "dists", "lpips", "ssim")
OF_TRUTH += ("truth:answer", "truth:image", "truth:text")
"""Scorers that compare with the ground truth."""
OF_IMAGES = (
    *("clipscore", "clipscore-prompt", "consistency", "consistency-dino"),
    *("dists", "lpips", "ssim", "aesthetic"),
    *("hpsv2", "hpsv2.1", "hpsv3", "imagereward", "pickscore", "siglip2"),
    *("fid", "kid", "clip-fid", "clip-kid", "diversity"),
    *("truth:image", "truth:match"),
)
"""Scorers that do not apply where a query asks for no images."""
QUERY, OTHER = first("PBL"), first("PBL", 1)

pytestmark = [pytest.mark.contract, pytest.mark.models]


@pytest.mark.parametrize("name", NAMES)
def test_a_value_is_on_the_scale_that_a_scorer_declares(name: str) -> None:
    scorer = made(name)
    assert scorer.name == name
    assert scorer.scale == UNBOUNDED or bounds(scorer.scale) is not None
    assert scorer.direction in DIRECTIONS
    outcome = scored(name, QUERY, truth_of(QUERY))
    if name == JUDGE:
        assert isinstance(outcome, Unscored)  # random weights write no verdict
    elif scorer.of_sets:
        assert isinstance(outcome, SetMember)
    else:
        assert isinstance(outcome, Result)
        assert admit(outcome, scorer.scale) is outcome


@pytest.mark.parametrize("name", OF_TRUTH)
def test_the_ground_truth_has_the_highest_value(name: str) -> None:
    of = made(name)
    top = bounds(of.scale)[1] if of.direction == "higher" else 0.0
    # SSIM loses up to 0.2 % on plain areas in float32, DISTS 2e-5; most others nothing.
    rounding = {"ssim": 2e-3, "bertscore": 1e-6}.get(name, 1e-12)
    lost = 1e-4 if name == "dists" else 1e-12
    for sample in {sample.category: sample for sample in SAMPLES}.values():
        outcome = scored(name, sample, truth_of(sample))
        if name in OF_IMAGES and not sample.wants_images:
            assert isinstance(outcome, NotApplicable)
        else:
            assert outcome.value.value == pytest.approx(top, rel=rounding, abs=lost)


@pytest.mark.parametrize("name", {made(n).stages[-1].digest: n for n in NAMES}.values())
def test_a_stage_gives_each_input_its_own_outcome_whatever_stands_beside_it(
    name: str,
) -> None:
    answers = [
        truth_of(QUERY),
        truth_of(OTHER),
        Document((*truth_of(QUERY).segments[:2], Text("A star."), Image.of(b"no image"))),
        Document(truth_of(QUERY).segments[::-1]),
    ]
    walks = [made(name).judge(QUERY, answer) for answer in answers]
    inputs = [next(walk)[-1].input for walk in walks]
    stage = STAGES.stage(made(name).stages[-1])
    together, alone = stage(inputs), [stage([one])[0] for one in inputs]
    assert [type(o) for o in together] == [type(o) for o in alone]
    for one, other in zip(together, alone, strict=True):
        if isinstance(one, Result) and isinstance(one.value, Score):
            assert one.value.value == pytest.approx(other.value.value, abs=1e-5)
        elif isinstance(one, Result):
            assert same(one.value, other.value)
    if name not in OF_TEXT:
        assert isinstance(together[2], Failure), "an image that cannot be decoded"
    assert stage([]) == []


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_scored_has_no_value(name: str) -> None:
    text = Document((Text("There is a star."),))
    if name != JUDGE:
        assert isinstance(scored(name, QUERY, Document()), Unscored | NotApplicable)
    if name in OF_IMAGES:
        assert isinstance(scored(name, QUERY, text), Unscored)
        bare = replace(QUERY, wants_images=False)
        assert isinstance(scored(name, bare, truth_of(QUERY)), NotApplicable)
    if name in OF_TRUTH:
        # Whatever the scorer compares, the second of these lacks it.
        other = text if name in OF_IMAGES else Document(truth_of(QUERY).images)
        for reference in (None, *([] if name == "truth:answer" else [other])):
            without = replace(QUERY, reference=reference)
            assert isinstance(scored(name, without, truth_of(QUERY)), NotApplicable)


@pytest.mark.parametrize("name", NAMES)
def test_settings_name_a_record_where_they_change_it(name: str) -> None:
    usual = made(name).stages[-1]
    again = made(name, batch_size=3).stages[-1]
    assert (again.digest, again.placement.batch_size) == (usual.digest, 3)
    with pytest.raises(UsageError, match="did you mean 'batch_size'"):
        made(name, batch_sze=3)
    jobs = [next(made(name).judge(QUERY, truth_of(s)))[-1] for s in (QUERY, OTHER)]
    assert len({job.key for job in jobs}) == 2
    batched = next(made(name, batch_size=3).judge(QUERY, truth_of(QUERY)))[-1]
    assert batched.key == jobs[0].key


@pytest.mark.processes
def test_naming_scorers_loads_no_model_code() -> None:
    code = (
        "import sys; from plait.scorers import resolve_scorer; "
        f"[resolve_scorer(name, 'tiny', {{}}) for name in {NAMES!r}]; "
        "heavy = {'torch', 'numpy', 'PIL', 'open_clip', 'transformers', 'skimage'}; "
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name", ["clipscor", "judge:mmie-scor", "truth:mach", "module:Cls"]
)
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        resolve_scorer(name, "tiny", {})


def test_a_users_scorer_declares_its_scale_or_is_unbounded_and_better_higher() -> None:
    lower = resolve_scorer("users_own:Errors", "pretrained", {})
    assert (lower.scale, lower.direction) == ("0-10", "lower")
    plain = resolve_scorer("users_own:Plain", "pretrained", {})
    assert (plain.scale, plain.direction) == ("unbounded", "higher")
    with pytest.raises(UsageError, match=r"sideways.*higher.*lower"):
        resolve_scorer("users_own:Sideways", "pretrained", {})
    with pytest.raises(UsageError, match="'10-0'"):
        resolve_scorer("users_own:Upside", "pretrained", {})


@pytest.mark.parametrize(
    ("value", "scale", "kind"),
    [
        *((v, s, Unread) for v in (math.nan, math.inf) for s in ("0-6", "unbounded")),
        *((v, s, Failure) for v, s in ((6.1, "0-6"), (-0.1, "0-6"), (-1.01, "-1-1"))),
        *((v, s, Result) for v, s in ((6, "0-6"), (1 + 1e-7, "-1-1"), (1e300, "levels"))),
    ],
)
def test_values_beyond_a_scale_are_no_scores(value: float, scale: str, kind: type) -> None:
    outcome = admit(Result(Score(float(value))), scale)
    assert type(outcome) is kind
    if isinstance(outcome, Failure):
        assert outcome.fault is Fault.ERROR
    assert admit(Unscored("unreadable"), scale) == Unscored("unreadable")


@pytest.mark.parametrize(
    ("value", "counted"), [(3.0, "scored"), (math.nan, "unscored"), (7.0, "failed_scores")]
)
def test_counts_of_a_run_agree_with_its_tables(value, counted, monkeypatch) -> None:
    from plait.cluster.counts import totals_of
    from plait.cluster.plan import Plan

    class Fixed:
        name, scale, direction, manner, rounds = "fixed", "0-6", "higher", "", 1
        opponent = ""
        stages: tuple[StageSpec, ...] = ()

        def judge(self, sample, document):
            return Result(Score(value))
            yield

    def answered(*_):
        return Result(truth_of(QUERY))
        yield

    plan = Plan(systems=[], queries=[], scorers=[Fixed()], prompt=lambda s, v: ())
    monkeypatch.setattr(Plan, "answer", answered)
    walk = plan.evaluation(type("System", (), {"name": "a"}), QUERY, 0)
    with pytest.raises(StopIteration) as stopped:
        next(walk)
    totals = totals_of([stopped.value.value.value])
    expected = {"scored": 0, "unscored": 0, "failed_scores": 0} | {counted: 1}
    assert {name: totals[name] for name in expected} == expected
