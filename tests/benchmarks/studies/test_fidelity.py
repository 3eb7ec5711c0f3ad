"""Margins of two runs: verdicts by numbers, what is refused, and the level of the tests."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_helpers import fill
from boards import stored_results
from scipy import stats
from trial import Measuring, measure_spec, sample
from typer.testing import CliRunner

from plait.benchmarks.studies import fidelity
from plait.benchmarks.studies.diff import AnswerPair, ComparedAnswers, FinishedRun
from plait.benchmarks.studies.fidelity import (
    CLOSEST,
    Gate,
    exact_result,
    gate_of_runs,
    image_result,
    parse_margins,
    refuse_margins,
    scorer_result,
)
from plait.cli import app
from plait.cluster.plan import Evaluation
from plait.generators.base import Failure, Result
from plait.generators.document import Document, Score, Text
from plait.generators.errors import UsageError
from plait.generators.given import GivenAnswers
from plait.scorers.base import Direction, Scorer
from plait.scorers.statistics.margins import Verdict, parse_margin
from plait.scorers.statistics.means import mean

BOTH = ("gill", "gill")


def measuring(scale: str = "0-1", direction: Direction = "higher") -> Scorer:
    return Measuring(name="measure", scale=scale, direction=direction)


def judged(
    margin: str,
    reference: np.ndarray,
    fast: np.ndarray,
    scorer: Scorer | None = None,
    **about: Any,
) -> Any:
    return scorer_result(
        BOTH,
        parse_margin(margin),
        scorer or measuring(),
        reference=reference,
        fast=fast,
        **about,
    )


# ------------------------------------------------------------------------------ scorers

RNG = np.random.default_rng(5)
BASE = RNG.normal(0.5, 0.1, 60)
NOISE = RNG.normal(0.0, 0.01, 60)
NOISE -= NOISE.mean()


@pytest.mark.parametrize(
    ("worse_by", "verdict"), [(0.0, "shown"), (0.019, "not shown"), (0.03, "worse")]
)
@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_a_score_is_worse_in_the_direction_of_its_scorer(
    worse_by: float, verdict: Verdict, direction: Direction
) -> None:
    sign = 1 if direction == "higher" else -1
    found = judged(
        "measure=0.02",
        BASE,
        BASE + NOISE - sign * worse_by,
        measuring(direction=direction),
    )
    assert found.verdict == verdict
    assert found.bound == pytest.approx(-sign * 0.02)
    assert found.estimate.value == pytest.approx(-sign * worse_by, abs=1e-9)
    expected = mean(NOISE - sign * worse_by, (-1.0, 1.0)).ci95
    assert found.estimate.ci95 == pytest.approx(expected)


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_a_percentage_counts_the_uncertainty_of_the_references_mean(
    direction: Direction,
) -> None:
    sign = 1 if direction == "higher" else -1
    fast = BASE + NOISE - sign * 0.03
    found = judged("measure=10%", BASE, fast, measuring("0-2000", direction))
    contrast = sign * (fast - (1 - sign * 0.1) * BASE)
    low, high = stats.t.interval(0.95, 59, contrast.mean(), stats.sem(contrast))
    allowed = 0.1 * BASE.mean()
    assert found.bound == pytest.approx(-sign * allowed)
    ends = sorted(sign * (end - allowed) for end in (low, high))
    # On so wide a scale the interval is all but Student's t.
    assert found.estimate.ci95 == pytest.approx(ends, abs=2e-4)
    assert found.verdict == ("shown" if low > 0 else "not shown")


def test_more_queries_are_told_where_they_would_decide() -> None:
    gap = NOISE[:10] - NOISE[:10].mean() - 0.015
    few = judged("measure=0.02", BASE[:10], BASE[:10] + 1.8 * gap + 0.012)
    assert few.verdict == "not shown"
    assert few.more is not None
    n = 10 + few.more
    effect = (0.02 - 1.8 * 0.015 + 0.012) / float(np.std(1.8 * gap, ddof=1))

    def power_of(n: int) -> float:
        critical = stats.t.ppf(0.975, n - 1)
        return float(1 - stats.nct.cdf(critical, n - 1, math.sqrt(n) * effect))

    assert power_of(n) >= 0.8 > power_of(n - 1)


@pytest.mark.parametrize("margin", ["measure=0.02", "measure=5%"])
def test_equal_scores_are_shown_where_the_answers_are_equal(margin: str) -> None:
    same = judged(margin, BASE, BASE, same_answers=True)
    assert (same.verdict, same.same, same.estimate.ci95) == ("shown", True, None)
    high = stats.binomtest(0, 60).proportion_ci(0.95, method="wilson").high
    assert f"{100 * high:.1f}%" in same.reason
    # By chance, scores of other answers may be equal in a few queries.
    assert judged(margin, BASE, BASE).verdict == "not shown"
    assert judged(margin, BASE[:4], BASE[:4], same_answers=True).verdict == "not shown"
    mostly = BASE.copy()
    mostly[:2] -= 0.001
    assert judged(margin, BASE, mostly).verdict == "not shown"


def test_nothing_is_shown_of_a_run_that_lacks_scores() -> None:
    found = judged("measure=0.02", BASE, BASE + NOISE, lost=["3 scores"])
    assert (found.verdict, found.more) == ("not shown", None)
    assert "3 scores" in found.reason
    worse = judged("measure=0.02", BASE, BASE + NOISE - 0.1, lost=["3 scores"])
    assert worse.verdict == "worse"


def test_without_a_score_there_is_no_verdict() -> None:
    none = np.array([])
    for margin in ("measure=0.02", "measure=5%"):
        found = judged(margin, none, none)
        assert (found.verdict, found.estimate.value, found.more) == (
            "not shown",
            None,
            None,
        )


# ------------------------------------------------------------------- images and texts


def image(**values: float | None) -> dict[str, Any]:
    return {"same_size": None not in values.values(), "psnr": 20.0, **values}


def pair(number: int, *images: Any, **about: Any) -> AnswerPair:
    outcomes = about.pop("outcomes", ("done", "done"))
    return AnswerPair(f"q{number}", 1, outcomes, images=images, **about)


def compared(*pairs: AnswerPair) -> ComparedAnswers:
    return ComparedAnswers(BOTH, "words", pairs)


@pytest.mark.parametrize(
    ("measure", "shown", "unshown", "of_loss"),
    [
        ("lpips", 0.06, 0.045, lambda loss: loss),
        ("dists", 0.06, 0.045, lambda loss: loss),
        ("ssim", 0.94, 0.955, lambda loss: 1 - loss),
        ("psnr", CLOSEST - 0.06, CLOSEST - 0.045, lambda loss: CLOSEST - loss),
    ],
)
def test_images_are_close_enough_in_the_mean_over_queries(
    measure: str, shown: float, unshown: float, of_loss: Callable[[float], float]
) -> None:
    losses = np.random.default_rng(1).uniform(0.02, 0.06, (30, 2))
    pairs = []
    for number, own in enumerate(losses):
        images = [image(**{measure: of_loss(float(loss))}) for loss in own]
        pairs.append(pair(number, *images))
    good = image_result(compared(*pairs), parse_margin(f"{measure}={shown}"))
    assert good.verdict == "shown"
    means = losses.mean(axis=1)
    assert good.estimate.n == 30, "a query counts once"
    assert good.estimate.value == pytest.approx(of_loss(float(means.mean())))
    ends = sorted(map(of_loss, mean(means, (0.0, math.inf)).ci95 or ()))
    assert good.estimate.ci95 == pytest.approx(ends)
    strict = image_result(compared(*pairs), parse_margin(f"{measure}={of_loss(0.0405)}"))
    assert (strict.verdict, strict.more is None) == ("not shown", False)
    bad = image_result(compared(*pairs), parse_margin(f"{measure}={of_loss(0.02)}"))
    assert bad.verdict == "worse"


def test_equal_images_are_at_no_distance_and_not_at_an_infinite_psnr() -> None:
    pairs = [pair(n, None, image(psnr=30.0 + n)) for n in range(8)]
    found = image_result(compared(*pairs), parse_margin("psnr=40"))
    expected = np.mean([(CLOSEST + 30 + n) / 2 for n in range(8)])
    assert found.estimate.value == pytest.approx(expected)
    error = 1 / 12
    assert pytest.approx(10 * math.log10(255**2 / error)) == CLOSEST
    # One that is rounded otherwise only may have a larger one, which counts no more.
    beyond = image_result(compared(pair(0, image(psnr=80.0))), parse_margin("psnr=40"))
    assert beyond.estimate.value == pytest.approx(CLOSEST)


def test_images_that_are_all_equal_are_shown_to_be() -> None:
    pairs = [pair(n, None, None) for n in range(6)]
    for margin in ("lpips=0.01", "ssim=0.99", "psnr=50"):
        found = image_result(compared(*pairs), parse_margin(margin))
        assert (found.verdict, found.same) == ("shown", True)
    assert image_result(compared(*pairs[:4]), parse_margin("ssim=0.9")).verdict != "shown"
    # A grey level in one pixel is less than rounding; a grey level in all of them is not.
    rounded = image(ssim=0.9999, psnr=80.0)
    found = image_result(compared(*pairs, pair(9, rounded)), parse_margin("ssim=0.99"))
    assert (found.verdict, found.same) == ("shown", True)
    found = image_result(compared(*pairs, pair(9, rounded)), parse_margin("ssim=0.99995"))
    assert (found.verdict, found.same) == ("not shown", False)
    shifted = image(ssim=0.9999, psnr=48.1)
    found = image_result(compared(*pairs, pair(9, shifted)), parse_margin("ssim=0.99"))
    assert (found.verdict, found.more) == ("not shown", None)
    nothing = image_result(compared(pair(0)), parse_margin("ssim=0.9"))
    assert (nothing.verdict, nothing.estimate.n) == ("not shown", 0)


@pytest.mark.parametrize(
    "lost",
    [
        pair(9, outcomes=("done", "failed")),
        pair(9, outcomes=("done", "missing")),
        pair(9, None, unpaired_images=1),
        pair(9, image(ssim=None)),
    ],
)
def test_nothing_is_shown_of_images_that_lack_their_like(lost: AnswerPair) -> None:
    pairs = [pair(n, image(ssim=0.98 + n / 1000)) for n in range(9)]
    margin = parse_margin("ssim=0.9")
    assert image_result(compared(*pairs), margin).verdict == "shown"
    found = image_result(compared(*pairs, lost), margin)
    assert (found.verdict, bool(found.lost)) == ("not shown", True)
    more = pair(9, outcomes=("failed", "done"))
    assert image_result(compared(*pairs, more), margin).verdict == "shown"


def text(number: int, at: int | None, repeat: int = 1, **about: Any) -> AnswerPair:
    return pair(number, has_text=True, first_difference=at, **about)._replace(repeat=repeat)


def test_texts_are_equal_in_all_repeats_of_a_query() -> None:
    pairs = [text(n, None, repeat) for repeat in (1, 2) for n in range(200)]
    margin = parse_margin("exact=0.98")
    found = exact_result(compared(*pairs), margin)
    assert (found.verdict, found.estimate.value, found.estimate.n) == ("shown", 1.0, 200)
    pairs[7] = text(7, 3)
    pairs[207] = text(7, 3, 2)
    found = exact_result(compared(*pairs), margin)
    assert found.estimate.value == pytest.approx(199 / 200)
    assert found.verdict == "not shown"
    assert found.more is not None
    wilson = stats.binomtest(199, 200).proportion_ci(0.95, method="wilson")
    assert found.estimate.ci95 == pytest.approx((wilson.low, wilson.high))
    few = [text(n, None if n < 10 else 0) for n in range(40)]
    assert exact_result(compared(*few), margin).verdict == "worse"
    assert exact_result(compared(*few[:10]), parse_margin("exact=50%")).verdict == "shown"
    lost = text(900, None, outcomes=("done", "failed"))
    pairs[7] = text(7, None)
    pairs[207] = text(7, None, 2)
    assert exact_result(compared(*pairs, lost), margin).verdict == "not shown"
    silent = exact_result(compared(pair(0, None)), margin)
    assert (silent.verdict, silent.estimate.n) == ("not shown", 0)


# ---------------------------------------------------------------------------- the level


def slack(trials: int) -> float:
    """Three standard errors of a rate of 2.5%."""
    return 3 * math.sqrt(0.025 * 0.975 / trials)


@pytest.mark.parametrize("percent", [False, True])
@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_a_run_at_the_margin_passes_in_a_fortieth_of_cases(
    percent: bool, direction: Direction
) -> None:
    trials, n, part = 800, 40, 0.05
    sign = 1 if direction == "higher" else -1
    rng = np.random.default_rng(11)
    scorer = measuring("0-1", direction)
    passed = 0
    for _ in range(trials):
        reference = rng.beta(6, 4, n)
        # The true means are 0.6 and 0.6 worse by just the margin.
        worse = sign * part * (0.6 if percent else 1)
        fast = np.clip(reference - worse + rng.normal(0, 0.04, n), None, None)
        margin = f"measure={100 * part}%" if percent else f"measure={part}"
        passed += judged(margin, reference, fast, scorer).verdict == "shown"
    assert abs(passed / trials - 0.025) <= slack(trials)


def test_images_at_the_margin_pass_in_at_most_a_fortieth_of_cases() -> None:
    trials, n = 600, 40
    rng = np.random.default_rng(12)
    margin = parse_margin("lpips=0.02")
    passed = 0
    for _ in range(trials):
        losses = rng.gamma(4.0, 0.02 / 4, n)
        pairs = [pair(k, image(lpips=float(loss))) for k, loss in enumerate(losses)]
        passed += image_result(compared(*pairs), margin).verdict == "shown"
    assert passed / trials <= 0.025 + slack(trials)


def test_several_margins_that_must_all_hold_need_no_correction() -> None:
    """One is violated by just its margin, the others hold: all pass no more often."""
    trials, n = 800, 30
    rng = np.random.default_rng(13)
    passed = 0
    for _ in range(trials):
        base = rng.uniform(0.3, 0.7, n)
        shifts = (0.05, 0.0, 0.0)
        results = []
        for shift in shifts:
            fast = base - shift + rng.normal(0, 0.04, n)
            results.append(judged("measure=0.05", base, fast))
        passed += Gate(results).passed
    assert passed / trials <= 0.025 + slack(trials)


# ----------------------------------------------------------------------------- refusals

SCORERS = (
    measuring("0-1"),
    Measuring(name="lpips", scale="", direction="lower"),
    Measuring(name="logit", scale="-5-5"),
)


@pytest.mark.parametrize(
    ("margin", "told"),
    [
        ("clip=0.1", "unknown measure of a margin 'clip'"),
        ("mesure=0.1", "did you mean 'measure'"),
        ("unknown=0.1", "exact, logit, lpips, measure, psnr, scorer:lpips, ssim"),
        ("exact=98", "from 0.5 to below 1"),
        ("exact=0.02", "from 0.5 to below 1"),
        ("exact=100%", "from 0.5 to below 1"),
        ("psnr=5%", "PSNR in dB"),
        ("psnr=70", "below 58.9"),
        ("ssim=1", "similarity below 1"),
        ("ssim=98%", "similarity below 1"),
        ("lpips=5%", "mean distance"),
        ("logit=5%", "do not count from 0"),
        ("scorer:lpips=5%", "do not count from 0"),
        ("measure=1", "no score is worse by more than 1"),
        ("measure=100%", "no score is worse by more than 100%"),
        ("dists=0.1", "VGG16"),
        ("lpips=0.1", "AlexNet"),
    ],
)
def test_a_margin_without_sense_is_refused(
    margin: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=told):
        refuse_margins([parse_margin(margin)], SCORERS, SCORERS)


def test_margins_with_sense_are_taken() -> None:
    texts = ["exact=0.98", "exact=98%", "psnr=38", "ssim=0.98", "measure=0.1"]
    texts += ["measure=5%", "scorer:lpips=0.3", "logit=0.5"]
    refuse_margins([*map(parse_margin, texts)], SCORERS, SCORERS)
    with pytest.raises(UsageError, match=r"given twice, as 0\.1 and as 5%"):
        parse_margins(["measure=0.1", "measure=5%"])


def test_a_scorer_of_other_settings_is_no_common_measure() -> None:
    other = Measuring(name="measure", stage=replace(measure_spec(), version=2))
    with pytest.raises(UsageError, match=r"measure judges differently.*version"):
        refuse_margins([parse_margin("measure=0.1")], [measuring()], [other])


# ------------------------------------------------------------------------- whole runs


def finished(root: str, scores: dict[int, list[float | None]], **asked: str) -> FinishedRun:
    """A run of `gill`, of which each query has a score for each repeat."""
    samples = {n: sample(n, asked.get(f"q{n}", "")) for n in scores}
    document = Document((Text("x"),))
    given = {s.id: document for s in samples.values()}
    made = []
    for n, values in scores.items():
        for repeat, value in enumerate(values):
            score: Any = Failure("died") if value is None else Result(Score(value, {}))
            outcome = {"measure": score}
            made.append(Evaluation("gill", samples[n], repeat, Result(document), outcome))
    results = stored_results(
        made,
        systems=(GivenAnswers(name="gill", answers=given),),
        scorers=(Measuring(),),
        categories={},
        fields=(),
        weights="tiny",
    )
    return FinishedRun(Path(root), results)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, FinishedRun]:
    known: dict[str, FinishedRun] = {}
    monkeypatch.setattr(FinishedRun, "at", lambda root: known[root.name])
    return known


def once(values: np.ndarray) -> dict[int, list[float | None]]:
    return {n: [float(value)] for n, value in enumerate(values)}


def diffed(tmp_path: Path, *margins: str) -> tuple[int, dict[str, Any], str]:
    out = tmp_path / "diff.json"
    words = ["diff", "a", "b", "--out", str(out)]
    for margin in margins:
        words += ["--margin", margin]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    return done.exit_code, json.loads(out.read_text()), done.output


def test_the_command_ends_with_1_where_a_margin_is_not_shown(
    runs: dict[str, FinishedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    runs["a"] = finished("a", once(BASE))
    runs["b"] = finished("b", once(BASE + NOISE - 0.01))
    status, written, output = diffed(tmp_path, "measure=0.02", "exact=0.9")
    assert status == 0, output
    assert written["margins"]["passed"] is True
    measure, exact = written["margins"]["margins"]
    assert (measure["measure"], measure["bound"], measure["better"]) == (
        "measure",
        -0.02,
        "higher",
    )
    assert measure["estimate"]["ci95"] == pytest.approx(
        mean(NOISE - 0.01, (-1.0, 1.0)).ci95, abs=1e-5
    )
    assert (exact["verdict"], exact["estimate"]["n"]) == ("shown", 60)
    assert "Berger 1982" in output
    status, written, output = diffed(tmp_path, "measure=1%", "exact=0.9")
    assert status == 1
    assert written["margins"]["passed"] is False
    verdicts = [row["verdict"] for row in written["margins"]["margins"]]
    assert verdicts == ["worse", "shown"]
    assert "worse than the margin" in output


def test_without_a_margin_nothing_of_it_is_said(
    runs: dict[str, FinishedRun], tmp_path: Path
) -> None:
    runs["a"] = runs["b"] = finished("a", once(BASE[:6]))
    status, written, output = diffed(tmp_path)
    assert (status, "margins" in written, "Berger" in output) == (0, False, False)


def gated(margin: str = "measure=0.02") -> Gate:
    return gate_of_runs(Path("a"), Path("b"), [parse_margin(margin)])[2]


def test_scores_of_the_reference_alone_are_not_left_out(
    runs: dict[str, FinishedRun],
) -> None:
    runs["a"] = finished("a", once(BASE))
    runs["b"] = finished("b", once(BASE + NOISE) | {3: [None]})
    (found,) = gated().results
    assert (found.verdict, found.estimate.n) == ("not shown", 59)
    assert found.lost == ["1 score in the first run only"]
    runs["a"] = finished("a", once(BASE) | {3: [None]})
    runs["b"] = finished("b", once(BASE + NOISE))
    assert gated().passed


def test_a_repeat_without_a_score_is_lost_too(runs: dict[str, FinishedRun]) -> None:
    twice = {n: [float(v), float(v)] for n, v in enumerate(BASE)}
    runs["a"] = finished("a", twice)
    moved = {n: [float(v), float(v)] for n, v in enumerate(BASE + NOISE)}
    runs["b"] = finished("b", moved)
    assert gated().passed
    runs["b"] = finished("b", moved | {5: [0.5, None]})
    (found,) = gated().results
    assert found.lost == ["1 score in the first run only"]


def test_equal_runs_pass(runs: dict[str, FinishedRun]) -> None:
    runs["a"] = runs["b"] = finished("a", once(BASE[:12]))
    for margin in ("measure=0.001", "measure=0.1%"):
        (found,) = gated(margin).results
        assert (found.verdict, found.same) == ("shown", True)
    # Scores are not taken for equal where the answers were not looked at.
    margins = [parse_margin("measure=0.001")]
    _, _, gate = gate_of_runs(Path("a"), Path("b"), margins, answers=5)
    assert not gate.passed


def test_runs_that_cannot_be_paired_are_refused(runs: dict[str, FinishedRun]) -> None:
    runs["a"] = finished("a", once(BASE[:6]))
    runs["b"] = finished("b", {n: [float(BASE[n])] for n in range(6, 12)})
    with pytest.raises(UsageError, match="no query in common"):
        gated()
    others: dict[str, str] = {f"q{n}": "in other words" for n in range(6)}
    runs["b"] = finished("b", once(BASE[:6]), **others)
    with pytest.raises(UsageError, match="another question"):
        gated()
    runs["b"] = finished("b", {n: [0.5, 0.6] for n in range(6)})
    with pytest.raises(UsageError, match="--repeats 2"):
        gated()


def test_recorded_scorers_are_known_by_their_settings(tmp_path: Path) -> None:
    """Stored runs, read from their directories: of a judge that was set otherwise."""
    asked = {"data": "sample", "weights": "tiny", "limit": 6, "systems": ["gt"]}
    asked["scorers"] = ["chrf"]
    for name, own in (("a", {}), ("b", {}), ("c", {"chrf": {"word_order": 2}})):
        fill(tmp_path / name, **asked, models=own)
    margins = [parse_margin("chrf=1%")]
    _, tables, gate = gate_of_runs(tmp_path / "a", tmp_path / "b", margins)
    (row,) = gate.results
    assert tables[-1].rows[0][1].text == "chrf"
    assert row.estimate.value in (0.0, None)
    with pytest.raises(UsageError, match=r"chrf judges differently.*word_order"):
        gate_of_runs(tmp_path / "a", tmp_path / "c", margins)


def test_dists_is_measured_where_its_weights_are(
    monkeypatch: pytest.MonkeyPatch, runs: dict[str, FinishedRun]
) -> None:
    monkeypatch.setattr(fidelity, "dists", lambda: (lambda one, other: 0.25, "DISTS"))
    margin = parse_margin("dists=0.3")
    refuse_margins([margin], (), ())
    distances = fidelity.further_distances([margin])
    assert distances["dists"](np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8, 3))) == 0.25
    assert not fidelity.further_distances([parse_margin("ssim=0.9")])
