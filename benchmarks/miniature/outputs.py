"""Judges and scorers against truth: on systems' answers, and on damaged ones.

Truth stands where people stand in tables of agreement. An answer that truth cannot read
counts as a miss here (0), as it does in every bar; in the run's own tables it is unscored.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
        systems = [s.name for s in board.systems]
        truths = board.column["scorer"].is_(*(n for n in values if n.startswith("truth:")))
        unread = truths & board.column["outcome"].is_(OutcomeName.UNSCORED)
        lost = [*board.rows(unread, "scorer", "query", "system")]
        for scorer, query, system in lost:
            values[scorer][board.keys.index(query), systems.index(system)] = 0.0
        misses = sum(scorer == TRUTH for scorer, *_ in lost)
        return cls(board=board, values=values, misses=misses)

    @property
    def systems(self) -> list[str]:
        """Names, in the order of the columns."""
        return [s.name for s in self.board.systems]

    @property
    def categories(self) -> list[str]:
        """Of each row."""
        by_key = {q.key: q.category for q in self.board.queries}
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
        rows = [category in (None, own) for own in self.categories]
        scale = next(s.scale for s in self.board.scorers if s.name == scorer)
        return compare_values(scorer, scale, worse, above[rows], below[rows])

    def pairs(self, scorer: str) -> list[ScoredPair]:
        """Answers of systems, without the ground truth and controls, scored by both."""
        if not {scorer, TRUTH} <= self.values.keys():
            return []
        models = [n != GROUND_TRUTH and not is_control(n) for n in self.systems]
        keys = list(zip(self.board.keys, self.categories, strict=True))
        pairs = []
        for system in np.flatnonzero(models):
            judged = self.values[scorer][:, system]
            truths = self.values[TRUTH][:, system]
            for (key, category), score, truth in zip(keys, judged, truths, strict=True):
                if np.isnan(score + truth):
                    continue
                pair = ScoredPair(
                    query=key, category=category, kind="system", judge=score, human=truth
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
        values = _coefficients(pairs)
        texts = (NumberForm().estimate(values[m]) for m in _MEASURES)
        rows.append([scorer, f"{len(pairs):,}", *texts])
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
        own = [cells[control, scorer] for scorer in scorers]
        rows.append([control, *own])
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
        bars += [_difference_bar(scores, name, better, worse) for name in scorers]
    return bars


def _difference_bar(
    scores: RunScores, scorer: str, better: str, worse: str, category: str | None = None
) -> Bar:
    where = f" ({category})" if category else ""
    name = f"{scorer}: {better} above {worse}{where}"
    check = scores.compare(scorer, better, worse, category)
    if check is None:
        absent = [n for n in (better, worse) if n not in scores.systems] or [scorer]
        return Bar.not_there(name, f"not in the run: {', '.join(absent)}")
    if scorer == CLIP:
        return Bar(name=name, estimate=check.difference)
    return _order_bar(name, check)


def protocols_part(scores: RunScores) -> BenchPart:
    """Return the outline protocol against one image, on queries that ask for several."""
    bars = [
        _difference_bar(scores, scorer, OUTLINE, ONE_IMAGE, PROJECTS)
        for scorer in (TRUTH, JUDGE)
    ]
    return BenchPart(title="Outline against one image", bars=tuple(bars))


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


def measure_corruptions(settings: BenchSettings, say: Say) -> BenchPart:
    """Rank correlation over damaged answers to queries of the test split."""
    judge = settings.scorer(JUDGE)
    truth = settings.scorer(TRUTH)
    rng = random.Random(f"damaged {settings.seed}")
    answers = [draw_damaged(rng, "test") for _ in range(settings.scenes)]
    pairs = [(sample_of(a.query), document_of(rng, a)) for a in answers]
    say(f"{JUDGE} and {TRUTH}: {len(pairs)} damaged answers")
    judged = [score_value(outcome) for outcome in outcomes_of(judge, pairs)]
    truths = [
        0.0 if isinstance(outcome, Unscored) else score_value(outcome)
        for outcome in outcomes_of(truth, pairs)
    ]
    return corruptions_part([answer.kind for answer in answers], judged, truths)


def corruptions_part(kinds: Sequence[str], judged: Scores, truths: Scores) -> BenchPart:
    """Return the bar, and both means by what was done to the answers."""
    known: list[tuple[float, float]] = []
    by_kind: dict[str, list[tuple[float, float]]] = {}
    for kind, score, truth in zip(kinds, judged, truths, strict=True):
        if score is not None and truth is not None:
            known.append((score, truth))
            by_kind.setdefault(kind, []).append((score, truth))
    bar = Bar.at_least(
        f"{JUDGE} against {TRUTH}: Spearman",
        _ranks([score for score, _ in known], [truth for _, truth in known]),
        RANKS,
        f"{len(kinds) - len(known):,} of {len(kinds):,} have no score of both",
    )
    title = "Judge against truth, on damaged answers"
    return BenchPart(title=title, bars=(bar,), tables=(_kinds_table(by_kind),))


def _kinds_table(by_kind: Mapping[str, Sequence[tuple[float, float]]]) -> ResultTable:
    """Return the means of both scores by what was done, the best by truth first."""
    means = {kind: np.mean(pairs, axis=0) for kind, pairs in by_kind.items()}
    rows = []
    for kind, (judge, truth) in sorted(means.items(), key=lambda one: -one[1][1]):
        rows.append([kind, f"{len(by_kind[kind]):,}", f"{judge:.2f}", f"{truth:.2f}"])
    head = ["answers", "n", f"mean {JUDGE}", f"mean {TRUTH}"]
    return ResultTable.of("By what was done to the answers", head, rows)


def _ranks(judged: Sequence[float], truths: Sequence[float]) -> Estimate:
    if not judged:
        return Estimate(None, None, 0, "nothing is scored")
    weights = bootstrap_weights([f"answer {i}" for i in range(len(judged))])
    x = np.array(judged, dtype=np.float64)
    y = np.array(truths, dtype=np.float64)
    return replace(
        estimate_with_interval(spearman, x, y, weights, len(judged)), n=len(judged)
    )
