"""`plait diff RUN FAST --margin ...`: is a faster engine still giving the model's answers?

For each margin a paired test of non-inferiority of the second run (`fast`) to the first
(`reference`). A margin is of a scorer that both runs have, or of how their answers compare:

    clipscore=0.02      the mean score is not worse by more than 0.02
    clipscore=0.5%      not worse by more than 0.5% of the reference's mean
    lpips=0.02          the images differ by less than that in the mean; dists too
    psnr=38             they are closer than so many dB in the mean; ssim too
    exact=0.98          more than that share of the queries has equal texts

Every margin has to be shown, for every pair of systems. What one run alone has answered or
scored is in no mean, and nothing is shown while the reference has something that the other
run lacks: queries that it fails on may be just those on which it is worse.

Where too few queries differ for an interval, a margin is shown only if all answers are the
same: equal texts, and images that differ by less than the error of rounding to 8 bits. How
many of the queries that were not asked may differ is said then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from plait.benchmarks.results.table import ResultTable, TableColumn
from plait.benchmarks.studies.diff import (
    NO_DISTANCES,
    AnswerPair,
    ComparedAnswers,
    ImageDifference,
    ImageDistance,
    PairedRuns,
    compare_answers,
    describe_difference,
    dists,
    lpips,
    pair_runs,
)
from plait.benchmarks.studies.scorer_changes import scorer_changes
from plait.benchmarks.wording import quantity
from plait.generators.buckets import AnyPath
from plait.generators.errors import PlaitError, UsageError
from plait.generators.names import unknown
from plait.scorers.base import Direction, Scorer, bounds, ends_of
from plait.scorers.statistics.estimate import LEAST, Estimate, Floats
from plait.scorers.statistics.margins import (
    SCORER,
    Margin,
    Verdict,
    more_for_share,
    more_queries,
    parse_margin,
    share_verdict,
    verdict_of,
    wilson_share,
)
from plait.scorers.statistics.means import (
    AMOUNT,
    Ends,
    mean,
    of_differences,
    paired_differences,
)

EXACT = "exact"
_SHARES = (0.5, 1.0)
"""Of equal texts: from the first, since a smaller number is meant as a share of others, to
below the second, which no number of queries shows."""
CLOSEST = 10 * math.log10(12 * 255**2)
"""The PSNR in dB beyond which none is counted, 58.9: that of the error of rounding to 8
bits, whose variance is 1/12 of a grey level squared. Two equal images would have an
infinite one, and with it their mean."""
ABOUT = (
    "Shown: the whole 95% interval lies on the good side of the bound, a one-sided test at "
    "2.5%. All have to be shown, so that none is corrected for the others (Berger 1982)."
)
_VERDICTS: Mapping[Verdict, str] = {
    "shown": "shown",
    "not shown": "not shown",
    "worse": "worse than the margin",
}


class FidelityError(PlaitError):
    """A run whose answers are not shown to be as good as the reference's."""


class ImageMeasure(NamedTuple):
    """How two images are compared."""

    better: Direction
    identical: float
    """Its value for two equal images."""
    most: float
    """A margin is below."""
    rule: str
    """What a margin is, for people."""

    def loss(self, image: ImageDifference | None, name: str) -> float | None:
        """Return how far two images are from equal ones; None where that is not known."""
        if image is None:
            return 0.0
        value = image[name]
        if value is None:
            return None
        distance = value if self.better == "lower" else self.identical - value
        return max(0.0, float(distance))

    def value(self, loss: float) -> float:
        """Return the measure of images that are so far from equal ones."""
        return loss if self.better == "lower" else self.identical - loss


_DISTANCE = "the greatest mean distance of images, such as {} = 0.02"
IMAGE_MEASURES: Mapping[str, ImageMeasure] = {
    "lpips": ImageMeasure("lower", 0.0, math.inf, _DISTANCE.format("lpips")),
    "dists": ImageMeasure("lower", 0.0, 1.0, _DISTANCE.format("dists")),
    "psnr": ImageMeasure(
        "higher", CLOSEST, CLOSEST, f"a least PSNR in dB below {CLOSEST:.1f}, such as 38"
    ),
    "ssim": ImageMeasure("higher", 1.0, 1.0, "a least similarity below 1, such as 0.98"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginResult:
    """Whether one margin is shown of a pair of systems."""

    systems: tuple[str, str]
    margin: Margin
    better: Direction
    bound: float | None
    """What the estimate must be better than; None where nothing can be compared."""
    estimate: Estimate
    """Of a scorer, the mean of the second run minus the first; of images, the mean of the
    measure over queries; of texts, the share of queries whose texts are equal."""
    verdict: Verdict
    more: int | None = None
    """Further queries that would decide, where it is not shown and that is known."""
    lost: Sequence[str] = ()
    """What of the reference has nothing beside it, in words."""
    same: bool = False
    """Whether it is shown by answers that are all the same, without an interval."""

    @property
    def reason(self) -> str:
        """Why the verdict does not follow from an interval; empty where it does."""
        if self.same:
            share = wilson_share(0, self.estimate.n).ci95
            assert share is not None
            return (
                f"the answers to all {self.estimate.n:,} queries are the same, images to "
                f"the rounding of 8 bits; at most {100 * share[1]:.1f}% of other queries "
                "have others (Wilson's interval)"
            )
        reasons = [*self.lost]
        if self.estimate.ci95 is None:
            reasons.append(self.estimate.reason)
        return "; ".join(reasons)

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        values = {
            "systems": [*self.systems],
            "measure": self.margin.measure,
            "margin": self.margin.text,
            "better": self.better,
            "bound": self.bound,
            "estimate": self.estimate.as_json(),
            "verdict": self.verdict,
            "more_queries": self.more,
        }
        if self.reason:
            values["reason"] = self.reason
        return values


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether all margins are shown."""

    results: Sequence[MarginResult]

    @property
    def passed(self) -> bool:
        """Whether all are."""
        return all(result.verdict == "shown" for result in self.results)

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        results = [result.as_json for result in self.results]
        return {"passed": self.passed, "margins": results}

    @property
    def table(self) -> ResultTable:
        """One row for each margin and pair of systems."""
        head: list[str | TableColumn] = ["system", "measure"]
        for name in ("bound", "estimate", "95% interval", "n"):
            head.append(TableColumn(name, numeric=True))
        head += ["verdict", TableColumn("more queries", numeric=True)]
        notes = [ABOUT]
        for result in self.results:
            if result.reason:
                named = f"{_name(result.systems)}, {result.margin.measure}"
                notes.append(f"{named}: {result.reason}.")
        rows = [_row(result) for result in self.results]
        return ResultTable.of("Is it as good?", head, rows, notes)

    @property
    def refusal(self) -> str:
        """Which margins are not shown, in a line; empty where all are."""
        texts = []
        for result in self.results:
            if result.verdict != "shown":
                margin = f"{result.margin.measure}={result.margin.text}"
                verdict = _VERDICTS[result.verdict]
                texts.append(f"{_name(result.systems)} {margin}: {verdict}")
        return "; ".join(texts)


def gate_of_runs(
    reference: AnyPath,
    fast: AnyPath,
    margins: Sequence[Margin],
    system: str | None = None,
    against: str | None = None,
    *,
    answers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[dict[str, Any], list[ResultTable], Gate]:
    """Return what `run_difference` does of two runs, and whether `margins` are shown.

    UsageError as there, for a margin of what the runs do not have or that has no sense in
    its unit, for runs without a common query, and for other numbers of repeats.
    """
    paired = pair_runs(reference, fast, system, against)
    compared, gate = apply_gate(paired, margins, answers=answers, on_progress=on_progress)
    content, tables = describe_difference(paired, compared)
    content["margins"] = gate.as_json
    return content, [*tables, gate.table], gate


def apply_gate(
    paired: PairedRuns,
    margins: Sequence[Margin],
    *,
    answers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[ComparedAnswers], Gate]:
    """Return the answers of two runs side by side, and whether `margins` are shown."""
    refuse_other_runs(paired)
    reference, fast = paired.runs
    refuse_margins(margins, reference.board.scorers, fast.board.scorers)
    further = further_distances(margins)
    compared = compare_answers(
        paired, answers=answers, further=further, on_progress=on_progress
    )
    return compared, gate_of(paired, compared, margins)


# ---------------------------------------------------------------------------- refusals


def parse_margins(texts: Iterable[str]) -> list[Margin]:
    """Return the margins that texts say; UsageError, also for two of one measure."""
    margins: dict[str, Margin] = {}
    for text in texts:
        margin = parse_margin(text)
        if margin.measure in margins:
            former = margins[margin.measure].text
            raise UsageError(
                f"margin {margin.measure} is given twice, as {former} and as {margin.text}"
            )
        margins[margin.measure] = margin
    return [*margins.values()]


def refuse_other_runs(paired: PairedRuns) -> None:
    """UsageError where the runs have no query in common, or other numbers of repeats."""
    one, other = paired.runs
    if not paired.keys:
        changed = len(paired.changed)
        why = "of another id" if not changed else "with another question under its id"
        raise UsageError(
            f"{one.root} and {other.root} have no query in common: each is {why}. Run both "
            "on the same data, with the same --limit and --seed"
        )
    repeats = [run.results.about.repeats for run in paired.runs]
    if repeats[0] != repeats[1]:
        raise UsageError(
            f"{one.root} has {quantity(repeats[0], 'answer')} to each query, and "
            f"{other.root} has {repeats[1]:,}: means over other numbers of seeds are not "
            f"paired. Add the missing ones with --repeats {max(repeats)}"
        )


def refuse_margins(
    margins: Sequence[Margin], scorers: Sequence[Scorer], others: Sequence[Scorer]
) -> None:
    """UsageError where a margin is of no measure, or has no sense in its unit.

    `scorers` are those of the reference and `others` those of the other run.
    """
    theirs = {scorer.name: scorer for scorer in others}
    ours = {scorer.name: scorer for scorer in scorers}
    for margin in margins:
        name = margin.measure
        if name == EXACT:
            _refuse_share(margin)
        elif name in IMAGE_MEASURES:
            _refuse_image_margin(margin)
        elif margin.scorer in ours and margin.scorer in theirs:
            _refuse_scorer_margin(margin, ours[margin.scorer], theirs[margin.scorer])
        else:
            valid = [EXACT, *IMAGE_MEASURES]
            for scorer in scorers:
                if scorer.name in theirs and not scorer.of_sets:
                    valid.append(_measure_of(scorer.name))
            raise unknown("measure of a margin", name, valid)


def _measure_of(scorer: str) -> str:
    """Return what a margin calls a scorer; one named as a measure is has a prefix."""
    return f"{SCORER}{scorer}" if scorer in (EXACT, *IMAGE_MEASURES) else scorer


def _refuse_share(margin: Margin) -> None:
    low, high = _SHARES
    if not low <= _share_of(margin) < high:
        raise UsageError(
            f"margin {EXACT}={margin.text} is not valid: give the least share of queries "
            f"with equal texts, from {low:g} to below {high:g}, such as 0.98"
        )


def _share_of(margin: Margin) -> float:
    """Return the share of queries that a margin of equal texts means."""
    return margin.value / 100 if margin.percent else margin.value


def _refuse_image_margin(margin: Margin) -> None:
    """UsageError for a margin of images that has no sense, or cannot be measured here."""
    name = margin.measure
    measure = IMAGE_MEASURES[name]
    if margin.percent or not margin.value < measure.most:
        raise UsageError(f"margin {name}={margin.text} is not valid: give {measure.rule}")
    # Networks measure these two, whose weights may not be here.
    if name in ("lpips", "dists"):
        distance, why_not = lpips() if name == "lpips" else dists()
        if distance is None:
            raise UsageError(f"margin {name}={margin.text}: {why_not}")


def _refuse_scorer_margin(margin: Margin, scorer: Scorer, other: Scorer) -> None:
    """UsageError for a margin that has no sense of a scorer, as both runs have it."""
    if scorer.of_sets:
        raise UsageError(
            f"margin {margin.measure}={margin.text} is not valid: {scorer.name} has no "
            "score of a single query, but one figure of all images"
        )
    if changes := scorer_changes(scorer, other):
        raise UsageError(
            f"margin {margin.measure}={margin.text} cannot be tested: {scorer.name} judges "
            "differently in the two runs, so that its scores are not comparable: "
            f"{'; '.join(changes)}"
        )
    low, high = ends_of(scorer.scale)
    if margin.percent and (low < 0 or bounds(scorer.scale) is None):
        raise UsageError(
            f"margin {margin.measure}={margin.text} is not valid: scores of {scorer.name} "
            f"({scorer.scale}) do not count from 0, so that a percentage of their mean has "
            "no meaning; give a margin in their own unit"
        )
    most = 100.0 if margin.percent else high - low
    if not margin.value < most:
        unit = "100%" if margin.percent else f"{most:g}, the width of {scorer.scale}"
        raise UsageError(
            f"margin {margin.measure}={margin.text} is not valid: no score is worse by "
            f"more than {unit}"
        )


def further_distances(margins: Iterable[Margin]) -> Mapping[str, ImageDistance]:
    """Return the distances of images that margins need and `diff` does not measure."""
    if not any(margin.measure == "dists" for margin in margins):
        return NO_DISTANCES
    distance, _ = dists()
    return NO_DISTANCES if distance is None else {"dists": distance}


# ------------------------------------------------------------------------------- tests


def gate_of(
    paired: PairedRuns, compared: Sequence[ComparedAnswers], margins: Sequence[Margin]
) -> Gate:
    """Return whether each margin is shown, of runs and margins that are not refused."""
    by_systems = {answers.systems: answers for answers in compared}
    results = []
    for systems, margin in product(paired.systems, margins):
        answers = by_systems.get(systems) or ComparedAnswers(systems, "", ())
        if margin.measure == EXACT:
            result = exact_result(answers, margin)
        elif margin.measure in IMAGE_MEASURES:
            result = image_result(answers, margin)
        else:
            result = _scorer_result(paired, answers, margin)
        results.append(result)
    return Gate(results)


def exact_result(answers: ComparedAnswers, margin: Margin) -> MarginResult:
    """Return whether enough queries have equal texts, those of all repeats.

    An answer without a text is not counted.
    """
    is_equal: dict[str, bool] = {}
    for pair in answers.pairs:
        if pair.has_text:
            same = pair.first_difference is None
            is_equal[pair.query] = is_equal.get(pair.query, True) and same
    queries = len(is_equal)
    equal = sum(is_equal.values())
    least = _share_of(margin)
    estimate = wilson_share(equal, queries)
    if not queries:
        estimate = replace(estimate, reason="no answer holds a text")
    lost = _name_lost_answers(answers.pairs)
    verdict = _unless_lost(share_verdict(equal, queries, least), lost)
    undecided = verdict == "not shown" and not lost
    return MarginResult(
        systems=answers.systems,
        margin=margin,
        better="higher",
        bound=least,
        estimate=estimate,
        verdict=verdict,
        more=more_for_share(estimate, least) if undecided else None,
        lost=lost,
    )


def image_result(answers: ComparedAnswers, margin: Margin) -> MarginResult:
    """Return whether images are close enough, in the mean over queries.

    A query counts by the mean of its images in all repeats. The interval is that of how far
    they are from equal images, an amount from 0.
    """
    name = margin.measure
    measure = IMAGE_MEASURES[name]
    losses: dict[str, list[float]] = {}
    unknown_images = 0
    for pair in answers.pairs:
        for image in pair.images:
            loss = measure.loss(image, name)
            if loss is None:
                unknown_images += 1
            else:
                losses.setdefault(pair.query, []).append(loss)
    means = [math.fsum(of_query) / len(of_query) for of_query in losses.values()]
    values = np.array(means)
    estimate = mean(values, AMOUNT)
    if not means:
        estimate = replace(estimate, reason="no two answers hold an image each")
    lost = _name_lost_answers(answers.pairs)
    unpaired = sum(pair.unpaired_images > 0 for pair in answers.pairs)
    if unpaired:
        lost.append(f"{quantity(unpaired, 'answer')} with another number of images")
    if unknown_images:
        images = quantity(unknown_images, "image")
        lost.append(f"{images} of another size, or too small to be measured")
    # Losses are tested, so that a bound on a similarity is one on what it lacks of 1.
    bound = abs(margin.value - measure.identical)
    verdict = _unless_lost(verdict_of(estimate, bound, "lower"), lost)
    same = False
    if estimate.ci95 is None and not lost:
        same = are_same(answers.pairs) and _is_enough(bound - values)
    if same:
        verdict = "shown"
    undecided = verdict == "not shown" and not lost
    return MarginResult(
        systems=answers.systems,
        margin=margin,
        better=measure.better,
        bound=margin.value,
        estimate=_as_measured(estimate, measure),
        verdict=verdict,
        more=more_queries(estimate, bound, _sd(values)) if undecided else None,
        lost=lost,
        same=same,
    )


def are_same(pairs: Iterable[AnswerPair]) -> bool:
    """Return whether all answers are the same, images to the rounding of 8 bits."""
    return all(_is_same(pair) for pair in pairs)


def _is_same(pair: AnswerPair) -> bool:
    for image in pair.images:
        # Of images that are equal to the last bit there is no difference to look at.
        if image is not None and (image["psnr"] or 0.0) < CLOSEST:
            return False
    without_images = pair._replace(images=())
    return without_images.equal


def _is_enough(room: Floats) -> bool:
    """Return whether no query is worse than the margin, of as many as an interval needs.

    `room` (queries,) is by how much each is better than the margin.
    """
    return len(room) >= LEAST and bool((room > 0).all())


def _as_measured(loss: Estimate, measure: ImageMeasure) -> Estimate:
    """Return the estimate of how far images are from equal ones as one of the measure."""
    if loss.value is None:
        return loss
    ends = None
    if loss.ci95 is not None:
        low, high = sorted(map(measure.value, loss.ci95))
        ends = (low, high)
    return replace(loss, value=measure.value(loss.value), ci95=ends)


def _scorer_result(
    paired: PairedRuns, answers: ComparedAnswers, margin: Margin
) -> MarginResult:
    """Return whether scores of the fast run are not worse than the margin."""
    name = margin.scorer
    one, other = paired.runs
    (scorer,) = [scorer for scorer in one.board.scorers if scorer.name == name]
    ours = one.scores(answers.systems[0], name)
    theirs = other.scores(answers.systems[1], name)
    keys = [key for key in paired.keys if key in ours and key in theirs]
    lost = _count_lost_scores(paired, answers.systems, name)
    # All answers were compared, and not only some of them (`answers` of `apply_gate`).
    compares_all = len(answers.pairs) == len(paired.keys) * paired.repeats
    return scorer_result(
        answers.systems,
        margin,
        scorer,
        reference=np.array([ours[key] for key in keys]),
        fast=np.array([theirs[key] for key in keys]),
        lost=[f"{quantity(lost, 'score')} in the first run only"] if lost else [],
        same_answers=compares_all and are_same(answers.pairs),
    )


def scorer_result(
    systems: tuple[str, str],
    margin: Margin,
    scorer: Scorer,
    *,
    reference: Floats,
    fast: Floats,
    lost: Sequence[str] = (),
    same_answers: bool = False,
) -> MarginResult:
    """Return whether scores (queries,) of one query each are not worse than the margin.

    A margin in percent is tested by the scores less that part of the reference's own: the
    mean of `fast - (1 - percent) reference`, by which the uncertainty of the reference's
    mean counts too (Fieller 1954, Journal of the Royal Statistical Society B 16:175).
    """
    sign = 1.0 if scorer.direction == "higher" else -1.0
    gap = sign * paired_differences(fast, reference)
    tested = gap
    found = mean(gap, of_differences(ends_of(scorer.scale)))
    allowed: float | None = margin.value
    if margin.percent:
        part = margin.value / 100
        tested = gap + part * reference
        allowed = part * float(reference.mean()) if len(reference) else None
        # Where too few scores differ for an interval, these sums might have one.
        if found.ci95 is not None and allowed is not None:
            summed = mean(tested, _ends_with_part(scorer, part))
            found = replace(summed, value=found.value, ci95=_shift(summed.ci95, -allowed))
    verdict: Verdict = "not shown"
    same = False
    more = None
    if allowed is not None:
        verdict = _unless_lost(verdict_of(found, -allowed, "higher"), lost)
        if found.ci95 is None and not lost and same_answers:
            same = _is_enough(gap + allowed)
        if same:
            verdict = "shown"
        if verdict == "not shown" and not lost:
            more = more_queries(found, -allowed, _sd(tested))
    return MarginResult(
        systems=systems,
        margin=margin,
        better=scorer.direction,
        bound=None if allowed is None else -sign * allowed,
        estimate=_times_sign(found, sign),
        verdict=verdict,
        more=more,
        lost=lost,
        same=same,
    )


def _ends_with_part(scorer: Scorer, part: float) -> Ends:
    """Return the ends of how much better a score is, plus a part of the reference's."""
    low, high = ends_of(scorer.scale)
    if scorer.direction == "higher":
        return low - (1 - part) * high, high - (1 - part) * low
    return (1 + part) * low - high, (1 + part) * high - low


def _shift(ci95: tuple[float, float] | None, by: float) -> tuple[float, float] | None:
    """Return an interval with both ends moved."""
    if ci95 is None:
        return None
    low, high = ci95
    return low + by, high + by


def _times_sign(estimate: Estimate, sign: float) -> Estimate:
    """Return the estimate of `sign` times the same."""
    if sign > 0 or estimate.value is None:
        return estimate
    ends = None
    if estimate.ci95 is not None:
        low, high = estimate.ci95
        ends = (-high, -low)
    return replace(estimate, value=-estimate.value, ci95=ends)


def _sd(values: Floats) -> float:
    """Return the standard deviation of (n,) values; 0 where one value tells none."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _unless_lost(verdict: Verdict, lost: Sequence[str]) -> Verdict:
    """Return the verdict; nothing is shown while the reference has something more."""
    return "not shown" if lost and verdict == "shown" else verdict


def _name_lost_answers(pairs: Iterable[AnswerPair]) -> list[str]:
    """Say how many answers the first run alone has, if any."""
    lost = 0
    for pair in pairs:
        one, other = pair.outcomes
        if one == "done" and other != "done":
            lost += 1
    return [f"{quantity(lost, 'answer')} in the first run only"] if lost else []


def _count_lost_scores(paired: PairedRuns, systems: tuple[str, str], scorer: str) -> int:
    """Count the scores, one for each repeat, that the first run has and the other lacks."""
    one, other = paired.runs
    ours = one.count_scores(systems[0], scorer)
    theirs = other.count_scores(systems[1], scorer)
    lost = 0
    for key in paired.keys:
        lost += max(0, ours.get(key, 0) - theirs.get(key, 0))
    return lost


def _row(result: MarginResult) -> list[str]:
    """Return the line of a margin in the table."""
    estimate = result.estimate
    form = "+.4g" if _is_difference(result.margin) else ".4g"
    side = "above" if result.better == "higher" else "below"
    bound = "-" if result.bound is None else f"{side} {_number(result.bound, form)}"
    if result.margin.percent and _is_difference(result.margin):
        bound = f"{bound} ({result.margin.text})"
    ends = "-"
    if estimate.ci95 is not None:
        low, high = estimate.ci95
        ends = f"[{_number(low, form)}, {_number(high, form)}]"
    return [
        _name(result.systems),
        result.margin.measure,
        bound,
        "-" if estimate.value is None else _number(estimate.value, form),
        ends,
        f"{estimate.n:,}",
        _VERDICTS[result.verdict],
        "-" if result.more is None else f"{result.more:,}",
    ]


def _is_difference(margin: Margin) -> bool:
    """Return whether a margin is of a scorer: of the difference of two means."""
    return margin.measure != EXACT and margin.measure not in IMAGE_MEASURES


def _number(value: float, form: str) -> str:
    # To add 0 makes 0 of -0.0.
    return f"{value + 0.0:{form}}"


def _name(systems: Iterable[str]) -> str:
    """Name a pair of systems; two of one name once."""
    return " -> ".join(dict.fromkeys(systems))
