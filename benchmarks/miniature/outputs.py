"""Judges and scorers against truth: on systems' answers, and on damaged ones.

Truth stands where people stand in tables of agreement. An answer that truth cannot read
counts as a miss here (0), as it does in every bar; in the run's own tables it is unscored.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from plait.benchmarks.miniature.captions import outcomes_of
from plait.benchmarks.miniature.damaged import document_of, draw_damaged
from plait.benchmarks.miniature.measures import (
    BEST,
    CLIP,
    JUDGE,
    LVLM,
    NATIVE,
    T2IS,
    TRUTH,
    WEAKER,
    Bar,
    BenchPart,
    BenchSettings,
    Say,
)
from plait.benchmarks.results.board import Board, score_value
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.results.validity import ControlCheck, checks, compare_values
from plait.benchmarks.runs.run_data import RunData
from plait.benchmarks.tasks.controls import CONTROLS, is_control
from plait.benchmarks.tasks.controls import TRUTH as GROUND_TRUTH
from plait.benchmarks.tasks.miniature.reader import sample_of
from plait.generators.base import OutcomeName, Unscored
from plait.scorers.statistics.agreement import (
    ScoredPair,
    agreement,
    estimate_with_interval,
    spearman,
)
from plait.scorers.statistics.estimate import Estimate, Floats, bootstrap_weights
from plait.scorers.truth.language import CAPTION_PROMPT, LEADS

RANKS = 0.8
"""Least rank correlation of the judge with truth."""
OUTLINE = f"{LVLM}+{BEST}@outline"
ONE_IMAGE = f"{LVLM}+{BEST}"
EARLIER = f"{LVLM}+{WEAKER}@outline"
# The first of `T2IS` is `BEST`, whose outline is named already.
SYSTEMS = (
    *(NATIVE, OUTLINE, ONE_IMAGE),
    *(f"{LVLM}+{t2i}@outline" for t2i in T2IS[1:]),
    *(EARLIER, GROUND_TRUTH, *CONTROLS),
)
"""All that are asked where they are to be had."""
SCORERS = (CLIP, JUDGE, TRUTH, "truth:text", "truth:image", "truth:match", "bleu", "ssim")
ORDERS = ((GROUND_TRUTH, OUTLINE), (OUTLINE, EARLIER))
"""(better, worse): pairs whose order is known."""
PROJECTS = "PBL"
_MEASURES = ("spearman", "pearson", "kendall")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScores:
    """The scores of a run as arrays, with truth's misses."""

    board: Board
    values: dict[str, Floats]
    """By scorer, (queries, systems); NaN where there is no score."""
    misses: int
    """Answers that truth could not read."""

    @classmethod
    def of(cls, run: RunData) -> RunScores:
        """Of a run with one repeat."""
        board = run.board
        values = {name: column.copy() for name, column in board.values.items()}
        systems = [system.name for system in board.systems]
        truths = [name for name in values if name.startswith("truth:")]
        unread = board.column["scorer"].is_(*truths)
        unread &= board.column["outcome"].is_(OutcomeName.UNSCORED)
        misses = 0
        for scorer, query, system in board.rows(unread, "scorer", "query", "system"):
            values[scorer][board.keys.index(query), systems.index(system)] = 0.0
            misses += scorer == TRUTH
        return cls(board=board, values=values, misses=misses)

    @property
    def systems(self) -> list[str]:
        """Names, in the order of the columns."""
        return [system.name for system in self.board.systems]

    @property
    def categories(self) -> list[str]:
        """Of each row."""
        by_key = {query.key: query.category for query in self.board.queries}
        return [by_key[key] for key in self.board.keys]

    def column(self, scorer: str, system: str) -> Floats | None:
        """(queries,) scores of one system; None where either is not in the run."""
        if scorer not in self.values or system not in self.systems:
            return None
        return self.values[scorer][:, self.systems.index(system)]

    def compare(
        self, scorer: str, better: str, worse: str, category: str | None = None
    ) -> ControlCheck | None:
        """Better less worse over the queries scored on both; None where one is missing."""
        above = self.column(scorer, better)
        below = self.column(scorer, worse)
        if above is None or below is None:
            return None
        if category is not None:
            of_category = np.array(self.categories) == category
            above = above[of_category]
            below = below[of_category]
        scales = {own.name: own.scale for own in self.board.scorers}
        return compare_values(scorer, scales[scorer], worse, above, below)

    def pairs(self, scorer: str) -> list[ScoredPair]:
        """Answers of systems, without the ground truth and controls, scored by both."""
        judged = self.values.get(scorer)
        true = self.values.get(TRUTH)
        if judged is None or true is None:
            return []
        categories = self.categories
        pairs = []
        for column, system in enumerate(self.systems):
            if system == GROUND_TRUTH or is_control(system):
                continue
            for row, key in enumerate(self.board.keys):
                score = judged[row, column]
                truth = true[row, column]
                if np.isnan(score) or np.isnan(truth):
                    continue
                pair = ScoredPair(
                    query=key,
                    category=categories[row],
                    kind="system",
                    judge=score,
                    human=truth,
                )
                pairs.append(pair)
        return pairs


def outputs_part(scores: RunScores) -> BenchPart:
    """Return the judge against truth on systems' answers, and every scorer beside it."""
    name = f"{JUDGE} against {TRUTH}: Spearman"
    pairs = scores.pairs(JUDGE)
    title = "Judge against truth, on systems' answers"
    if not pairs:
        return BenchPart(title=title, bars=(Bar.not_there(name, _nothing(scores, JUDGE)),))
    bar = Bar.at_least(name, _coefficients(pairs)["spearman"], RANKS)
    note = f"{scores.misses:,} answers that truth cannot read count as misses (0)."
    tables = (agreement_table(scores),)
    return BenchPart(title=title, bars=(bar,), tables=tables, notes=(note,))


def _nothing(scores: RunScores, scorer: str) -> str:
    if scorer not in scores.values:
        return f"{scorer} is not to be had"
    return "no answer of a system has a score of both"


def _coefficients(pairs: Sequence[ScoredPair]) -> dict[str, Estimate]:
    return dict(agreement(pairs, one_scale=False)[0].coefficients)


def agreement_table(scores: RunScores) -> ResultTable:
    """Every scorer beside truth, as MMIE's Table 5 sets metrics beside people."""
    rows = []
    for scorer in scores.values:
        pairs = [] if scorer == TRUTH else scores.pairs(scorer)
        if not pairs:
            continue
        row = [scorer, f"{len(pairs):,}"]
        coefficients = _coefficients(pairs)
        for measure in _MEASURES:
            row.append(NumberForm().estimate(coefficients[measure]))
        rows.append(row)
    head = ["scorer", "answers", "Spearman", "Pearson", "Kendall tau-b"]
    note = "CLIPScore and SSIM are not applicable to answers without images."
    return ResultTable.of(f"Agreement with {TRUTH}, where people stand", head, rows, [note])


def controls_part(scores: RunScores) -> BenchPart:
    """Every control below the ground truth, by the judge; the other scorers as a table."""
    made = checks(scores.board)
    bars = []
    for check in made:
        if check.scorer == JUDGE:
            bars.append(_order_bar(f"{JUDGE}: gt above {check.control}", check))
    if not bars:
        return BenchPart.not_there("Controls", _nothing(scores, JUDGE))
    return BenchPart(title="Controls", bars=tuple(bars), tables=(blindness_table(made),))


def _order_bar(name: str, check: ControlCheck) -> Bar:
    """Met where the order is right, by the interval or, without one, by the sign test."""
    met = None if check.difference.value is None else check.order == "right"
    return Bar(
        name=name,
        estimate=check.difference,
        aim="interval > 0",
        met=met,
        remark="" if met and check.difference.ci95 else check.order,
    )


def blindness_table(made: Sequence[ControlCheck]) -> ResultTable:
    """Return how often each scorer puts the ground truth above an answer made worse."""
    scorers = list(dict.fromkeys(check.scorer for check in made))
    controls = list(dict.fromkeys(check.control for check in made))
    cells = {(check.control, check.scorer): _counts(check) for check in made}
    rows = []
    for control in controls:
        rows.append([control, *(cells[control, scorer] for scorer in scorers)])
    notes = [
        "gt above / equal / below the control, over the queries that the control changes "
        "and both are scored on; all equal: the scorer is blind to the change."
    ]
    return ResultTable.of("What scorers do not see", ["control", *scorers], rows, notes)


def _counts(check: ControlCheck) -> str:
    """Return how many answers are above, equal to and below those made worse."""
    count = check.difference.n
    if not count:
        return "-"
    equal = count - check.above - check.below
    blind = " blind" if check.order == "blind" else ""
    return f"{check.above}/{equal}/{check.below}{blind}"


def orders_part(scores: RunScores) -> BenchPart:
    """Systems of known order, by paired differences of the judge and of truth."""
    bars = _difference_bars(scores, ORDERS, (JUDGE, TRUTH, CLIP))
    return BenchPart(title="Systems of known order", bars=tuple(bars))


def _difference_bars(
    scores: RunScores, pairs: Sequence[tuple[str, str]], scorers: Sequence[str]
) -> list[Bar]:
    """Return a bar of each scorer for each pair of a better and a worse system."""
    bars: list[Bar] = []
    for better, worse in pairs:
        for scorer in scorers:
            bars.append(_difference_bar(scores, scorer, better, worse))
    return bars


def _difference_bar(
    scores: RunScores, scorer: str, better: str, worse: str, category: str | None = None
) -> Bar:
    where = f" ({category})" if category else ""
    name = f"{scorer}: {better} above {worse}{where}"
    check = scores.compare(scorer, better, worse, category)
    if check is None:
        absent = [system for system in (better, worse) if system not in scores.systems]
        told = ", ".join(absent or [scorer])
        return Bar.not_there(name, f"not in the run: {told}")
    if scorer == CLIP:
        # Shown beside the others, without an aim.
        return Bar(name=name, estimate=check.difference)
    return _order_bar(name, check)


def protocols_part(scores: RunScores) -> BenchPart:
    """Return the outline protocol against one image, on queries that ask for several."""
    by_truth = _difference_bar(scores, TRUTH, OUTLINE, ONE_IMAGE, PROJECTS)
    by_judge = _difference_bar(scores, JUDGE, OUTLINE, ONE_IMAGE, PROJECTS)
    return BenchPart(title="Outline against one image", bars=(by_truth, by_judge))


PARTS_OF_A_RUN = (outputs_part, controls_part, orders_part, protocols_part)
"""What is measured of one run, in the order of the report."""


def measure_systems(settings: BenchSettings, say: Say) -> Sequence[BenchPart]:
    """Run all systems and scorers that are to be had, one answer to each query."""
    scores = RunScores.of(settings.run("run", SYSTEMS, SCORERS, say))
    return [part(scores) for part in PARTS_OF_A_RUN]


# ------------------------------------------------------------------ critics and outlines


LOOKS_AGAIN = f"{LVLM}+{WEAKER}@critic"
DRAWS_ONCE = f"{LVLM}+{WEAKER}"
CRITIC = {"question": CAPTION_PROMPT, "answer": f"{LEADS[0]} {{}}.", "threshold": 0.9}
"""The mini LVLM has learnt to describe images, and not to answer by yes or no."""
_TAKEN = ("images", "discarded", "seconds", "tokens")


def measure_critic(settings: BenchSettings, say: Say) -> BenchPart:
    """What a critic, and an outline, do for a weak T2I model, and what they take."""
    systems = (DRAWS_ONCE, EARLIER, LOOKS_AGAIN)
    scorers = ("truth:match", TRUTH)
    run = settings.run("critic", systems, scorers, say, composition={"critic": CRITIC})
    return critic_part(RunScores.of(run))


def critic_part(scores: RunScores) -> BenchPart:
    """A critic against the outline alone, the outline against one image."""
    pairs = ((LOOKS_AGAIN, EARLIER), (EARLIER, DRAWS_ONCE))
    scorers = [name for name in ("truth:match", TRUTH) if name in scores.values]
    bars = _difference_bars(scores, pairs, scorers)
    tables = (_costs_table(scores.board),)
    return BenchPart(title="A critic, and an outline", bars=tuple(bars), tables=tables)


def _costs_table(board: Board) -> ResultTable:
    """Return what an answer of each system takes on average."""
    rows: dict[str, list[str]] = {}
    for measure in _TAKEN:
        for system, answers, amount in board.group(board.is_answer, ("system",), measure):
            row = rows.setdefault(system, [system, f"{answers:,}"])
            row.append("-" if amount is None else f"{amount / answers:.3g}")
    head = ["system", "answers", *_TAKEN]
    return ResultTable.of("What an answer takes", head, list(rows.values()))


# ------------------------------------------------------------------ damaged answers


Scores = Sequence[float | None]
"""One score per answer; None where there is none."""


class _Scored(NamedTuple):
    """An answer that the judge and truth have both scored."""

    judge: float
    truth: float


def measure_corruptions(settings: BenchSettings, say: Say) -> BenchPart:
    """Rank correlation over damaged answers to queries of the test split."""
    judge = settings.scorer(JUDGE)
    truth = settings.scorer(TRUTH)
    rng = random.Random(f"damaged {settings.seed}")
    # All are drawn before the first is turned into a document, which draws as well.
    answers = [draw_damaged(rng, "test") for _ in range(settings.scenes)]
    pairs = []
    for answer in answers:
        pairs.append((sample_of(answer.query), document_of(rng, answer)))
    say(f"{JUDGE} and {TRUTH}: {len(pairs)} damaged answers")
    judged = [*map(score_value, outcomes_of(judge, pairs))]
    truths: list[float | None] = []
    for outcome in outcomes_of(truth, pairs):
        truths.append(0.0 if isinstance(outcome, Unscored) else score_value(outcome))
    return corruptions_part([answer.kind for answer in answers], judged, truths)


def corruptions_part(kinds: Sequence[str], judged: Scores, truths: Scores) -> BenchPart:
    """Return the bar, and both means by what was done to the answers."""
    known: list[_Scored] = []
    by_kind: dict[str, list[_Scored]] = {}
    for kind, score, truth in zip(kinds, judged, truths, strict=True):
        if score is not None and truth is not None:
            scored = _Scored(score, truth)
            known.append(scored)
            by_kind.setdefault(kind, []).append(scored)
    bar = Bar.at_least(
        f"{JUDGE} against {TRUTH}: Spearman",
        _rank_correlation(known),
        RANKS,
        f"{len(kinds) - len(known):,} of {len(kinds):,} have no score of both",
    )
    title = "Judge against truth, on damaged answers"
    return BenchPart(title=title, bars=(bar,), tables=(_kinds_table(by_kind),))


def _kinds_table(by_kind: Mapping[str, Sequence[_Scored]]) -> ResultTable:
    """Return the means of both scores by what was done, the best by truth first."""
    means = {kind: _Scored(*np.mean(own, axis=0)) for kind, own in by_kind.items()}
    rows = []
    for kind in sorted(means, key=lambda kind: -means[kind].truth):
        mean = means[kind]
        n = len(by_kind[kind])
        rows.append([kind, f"{n:,}", f"{mean.judge:.2f}", f"{mean.truth:.2f}"])
    head = ["answers", "n", f"mean {JUDGE}", f"mean {TRUTH}"]
    return ResultTable.of("By what was done to the answers", head, rows)


def _rank_correlation(scored: Sequence[_Scored]) -> Estimate:
    """Return Spearman's coefficient, with an interval by answers, its independent unit."""
    n = len(scored)
    if not n:
        return Estimate(None, None, 0, "nothing is scored")
    weights = bootstrap_weights([f"answer {i}" for i in range(n)])
    judge, truth = np.array(scored, dtype=np.float64).T
    return replace(estimate_with_interval(spearman, judge, truth, weights, n), n=n)
