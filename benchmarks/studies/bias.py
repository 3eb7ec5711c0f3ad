"""`plait bias`: the bias of a run's judges, from recorded judgements; none is asked.

    sections(open_results(root))    # position, length, self-preference, repeatability, ...

Verdicts on pairs come from the rulings of `plait compare`. A rubric judge's scores of two
answers to one query are a preference too, and are looked up under other seeds and rubrics.
The question is the independent unit of every interval.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console

from plait.benchmarks.results.files.about import RecordedScorer
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.rulings import Ruling, Side, ruling_of
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.table import ResultTable, json_text, markdown_page
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.run_directory import folder_written
from plait.benchmarks.studies.rulings import lvlm_of, side_of
from plait.cluster.plan import Evaluation, lookup_in
from plait.cluster.walks import noting, read
from plait.generators.base import Job, Result
from plait.generators.buckets import AnyPath
from plait.generators.document import Document, Query
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.names import validate
from plait.scorers.judging.judge import ChatJudge, RubricJudge
from plait.scorers.judging.mmie import Corrected
from plait.scorers.judging.resolve import PREFIX, JudgeSettings
from plait.scorers.judging.sources import OWN_WORDING, PLAIT, RubricSource, parse_rubric
from plait.scorers.judging.user_judge import UserRubricJudge
from plait.scorers.statistics.estimate import (
    Estimate,
    Floats,
    bootstrap_estimate,
    bootstrap_weights,
)
from plait.scorers.statistics.means import PERCENT, UNBOUNDED, of_differences, pooled_mean

_REMARK = (
    "Means with 95% intervals by question; n is the number of questions. From "
    "recorded judgements only; no judge is asked."
)


class Finding(NamedTuple):
    """One measure of one judge."""

    judge: str
    measure: str
    estimate: Estimate
    """Its n is the number of questions."""
    judgements: int
    """Comparisons, on one question or several, behind the value."""


Measured = Iterator[Finding | str]
"""Findings, and for what could not be computed the reason why."""
ByRubric = RubricJudge | UserRubricJudge


class Section:
    """One kind of bias."""

    def __init__(self, title: str, measured: Iterable[Finding | str]) -> None:
        """`measured` are findings, and reasons why something could not be measured."""
        self.title = title
        self.findings: list[Finding] = []
        self.absent: list[str] = []
        """Why something could not be computed, a line each."""
        for part in measured:
            if isinstance(part, Finding):
                self.findings.append(part)
            else:
                self.absent.append(part)

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        findings = []
        for one in self.findings:
            about: dict[str, Any] = {"judge": one.judge, "measure": one.measure}
            about |= one.estimate.as_json()
            about["judgements"] = one.judgements
            findings.append(about)
        return {"title": self.title, "findings": findings, "absent": self.absent}

    @property
    def table(self) -> ResultTable:
        """One line per finding."""
        form = NumberForm()
        rows = []
        for one in self.findings:
            value = form.counted(one.estimate)
            rows.append([one.judge, one.measure, value, f"{one.judgements:,}"])
        notes = [f"not available: {reason}" for reason in self.absent]
        head = ["judge", "measure", "value", "judgements"]
        return ResultTable.of(self.title, head, rows, notes)


def bias(
    root: AnyPath,
    console: Console,
    *,
    rubric: RubricSource = OWN_WORDING,
    out: Path | None = None,
) -> int:
    """Show the tables of the run in `root`, and write `bias.{json,md}` there or to `out`.

    `rubric` is `official:PATH` to include judgements by the released MMIE rubrics.
    UsageError when `root` is not a run, WriteError where the files cannot be written.
    """
    content = {}
    tables = []
    for name, section in sections(open_results(root), rubric=rubric).items():
        content[name] = section.as_json
        tables.append(section.table)
    for table in tables:
        console.print(table.rich)
    console.print(_REMARK, soft_wrap=True)
    with folder_written(root, out) as folder:
        page = folder / "bias.md"
        write_whole(page.with_suffix(".json"), json_text(content))
        write_whole(page, markdown_page("Bias of the judges", [_REMARK], tables))
    console.print(f"bias {page}", soft_wrap=True)
    return 0


def sections(
    results: RunResults, *, rubric: RubricSource = OWN_WORDING
) -> dict[str, Section]:
    """Return all sections by name, from comparisons and scores of a run."""
    rulings = find_rulings(results)
    scored = Scored(results)
    pairs = {}
    for judge, lines in rulings.items():
        rows = preferences(lines)
        if rows:
            pairs[judge] = rows
    pairs |= scored.pairs()
    # What a section says in the place of findings, where there is nothing to look at.
    no_pairs = [] if rulings else ["no pairwise judgements: run `plait compare` first"]
    no_answers = [] if pairs else ["no two answers to one question were judged"]
    return {
        "position": Section(
            "Position: both orders of showing",
            [*no_pairs, *positions(rulings)],
        ),
        "length": Section(
            "Length: preference against difference in words",
            [*no_answers, *lengths(pairs)],
        ),
        "self_preference": Section(
            "Self-preference: answers of the judge's own family",
            [*no_answers, *self_preference(pairs)],
        ),
        "repeatability": Section(
            "Repeatability: the same question, asked again",
            [*no_pairs, *repeatability(rulings), *scored.repeatability()],
        ),
        "rewording": Section(
            "Wording and mode: the same pair, asked or read differently",
            [*no_pairs, *rewording(rulings), *scored.rewording(rubric)],
        ),
    }


class JudgeIdentity(NamedTuple):
    """A model under one protocol and one wording."""

    name: str
    protocol: str
    """Empty for a judge that scores single documents."""
    mode: str = ""
    wording: str = ""
    stage: str = ""
    """Digest of the model and its settings."""
    namesake: bool = False
    """True where a judge of the same name has another model or other settings."""

    @property
    def display_name(self) -> str:
        """The name, with the stage where it is needed to distinguish two judges."""
        return f"{self.name} [settings {self.stage[:6]}]" if self.namesake else self.name

    @property
    def label(self) -> str:
        """For people."""
        about = f"{self.protocol}, {self.mode}, wording {self.wording[:6]}"
        return f"{self.display_name} ({about})" if self.protocol else self.display_name


Rulings = Mapping[JudgeIdentity, Sequence[Ruling]]


class Preference(NamedTuple):
    """What a judge made of a pair of answers to one question."""

    question: str
    repeat: int
    """Of the answers."""
    first: Side
    second: Side
    value: float
    """How much it prefers the second: levels of a verdict, or points of a score."""


Preferences = Mapping[JudgeIdentity, Sequence[Preference]]


def find_rulings(results: RunResults) -> dict[JudgeIdentity, list[Ruling]]:
    """Return the rulings of preference in all comparisons of a run, by judge, each once.

    The first side of each is the one whose name sorts first. Where comparisons hold the
    same reply, one that could be read counts.
    """
    by_judge: dict[JudgeIdentity, dict[tuple[object, ...], Ruling]] = defaultdict(dict)
    for row in results.rows("comparisons", among={"aspect": ["preference"]}):
        ruling = upright(ruling_of(row))
        judge = JudgeIdentity(
            name=ruling.judge,
            protocol=ruling.protocol,
            mode=ruling.mode,
            wording=ruling.wording,
            stage=ruling.stage,
        )
        own = by_judge[judge]
        # Two comparisons, say with a baseline and of all pairs, share their replies.
        reply = (*_about(ruling), ruling.judging, ruling.swapped)
        if reply not in own or own[reply].preference is None:
            own[reply] = ruling
    stages_of_name: dict[str, set[str]] = defaultdict(set)
    for judge in by_judge:
        stages_of_name[judge.name].add(judge.stage)
    rulings = {}
    for judge, own in sorted(by_judge.items()):
        is_namesake = len(stages_of_name[judge.name]) > 1
        rulings[judge._replace(namesake=is_namesake)] = list(own.values())
    return rulings


def upright(ruling: Ruling) -> Ruling:
    """Return the ruling with its sides in the order of their names."""
    first = ruling.first
    second = ruling.second
    if first.system <= second.system:
        return ruling
    return replace(ruling, first=second, second=first, swapped=not ruling.swapped)


def _about(ruling: Ruling) -> tuple[str, int, str, str]:
    """Return what a ruling is about: which question, and which two answers to it."""
    return ruling.question, ruling.repeat, ruling.first.system, ruling.second.system


class BothOrders(NamedTuple):
    """A pair of answers that a judge was shown in both orders."""

    ruling: Ruling
    """On the pair as it is named."""
    named: int
    """The preference for the answer shown first, in the order of the names."""
    swapped: int
    """The same in the other order, in which the second answer is shown first."""


def both_orders(rulings: Iterable[Ruling]) -> list[BothOrders]:
    """Return the pairs of answers that were read in both orders, once each."""
    by_answers: dict[tuple[object, ...], dict[bool, tuple[Ruling, int]]] = defaultdict(dict)
    for ruling in rulings:
        # Further judgings of a pair measure repeatability and are no further evidence.
        if ruling.judging == 0 and ruling.preference is not None:
            by_answers[_about(ruling)][ruling.swapped] = ruling, ruling.preference
    pairs = []
    for orders in by_answers.values():
        # By whether it was swapped: both orders are there.
        if len(orders) == 2:
            ruling, named = orders[False]
            _, swapped = orders[True]
            pairs.append(BothOrders(ruling, named, swapped))
    return pairs


def preferences(rulings: Iterable[Ruling]) -> list[Preference]:
    """Return mean preferences over both orders, in which one for a position cancels."""
    means = []
    for pair in both_orders(rulings):
        mean = Preference(
            question=pair.ruling.question,
            repeat=pair.ruling.repeat,
            first=pair.ruling.first,
            second=pair.ruling.second,
            # Both are for the answer shown first, which is the second one when swapped.
            value=(pair.swapped - pair.named) / 2,
        )
        means.append(mean)
    return means


class _AnswerPair(NamedTuple):
    """Two answers to one question, of which one is by a judge's own family."""

    question: str
    repeat: int
    own: str
    """The system that gave the answer of the family."""
    other: str


def finding(judge: str, measure: str, questions: Sequence[str], values: Any) -> Finding:
    """Return the mean of (n,) values on n questions, with its interval by question."""
    numbers = [float(value) for value in values]
    # Intervals depend on the ends of the scale, which the name of a measure tells.
    ends = UNBOUNDED
    if measure.endswith("points of %"):
        ends = of_differences(PERCENT)
    elif measure.endswith(" %"):
        ends = PERCENT
    nothing = Estimate(None, None, 0, "nothing to compare")
    mean = pooled_mean(questions, numbers, ends) if numbers else nothing
    return Finding(judge, measure, mean, len(numbers))


def positions(rulings: Rulings) -> Measured:
    """Measure how often the verdict stays when the answers change places."""
    for judge, lines in rulings.items():
        pairs = both_orders(lines)
        if not pairs:
            yield f"{judge.label}: no pair was read in both orders"
            continue
        questions = [pair.ruling.question for pair in pairs]
        named = np.array([pair.named for pair in pairs])
        swapped = np.array([pair.swapped for pair in pairs])
        for name, values in position_measures(named, swapped).items():
            yield finding(judge.label, name, questions, values)


SAME = "same verdict either way, %"
TO_FIRST = "goes to the first shown, %"
TO_LAST = "goes to the last shown, %"
LEVELS = "preference for the first shown, levels"


def position_measures(named: Floats, swapped: Floats) -> dict[str, Floats]:
    """Return (pairs,) values of each measure of position.

    `named` and `swapped` are (pairs,) preferences for the answer shown first, in the order
    of the pair and in the other one.
    """
    shift = (named + swapped) / 2
    # Where both orders prefer the same answer, or neither of them any.
    stays = np.sign(named) == -np.sign(swapped)
    return {
        SAME: 100.0 * stays,
        TO_FIRST: 100.0 * ((shift > 0) & ~stays),
        TO_LAST: 100.0 * ((shift < 0) & ~stays),
        LEVELS: shift,
    }


def _share(toward: npt.ArrayLike) -> Floats:
    """100 where an answer is preferred, 50 for neither."""
    return 50.0 * (1 + np.sign(toward))


class _PairSizes(NamedTuple):
    """Pairs of answers as arrays, by pair."""

    questions: Sequence[str]
    preference: Floats
    """(pairs,) for the second answer."""
    words: npt.NDArray[np.int64]
    """(pairs, 2) of both answers."""
    images: npt.NDArray[np.int64]
    """(pairs, 2) of both answers."""


class _LengthMeasure(NamedTuple):
    """A measure of length, and which pairs it is about."""

    values: Floats
    """(pairs,)"""
    chosen: npt.NDArray[np.bool_]
    """(pairs,)"""


def lengths(preferences: Preferences) -> Measured:
    """Measure how far the longer answer is preferred, and the one with more images."""
    for judge, pairs in preferences.items():
        sizes = _pair_sizes(pairs)
        measure = "rank correlation of difference in length and preference"
        longer = sizes.words[:, 1] - sizes.words[:, 0]
        # Plus 1, since both answers may be without a word.
        relative = longer / (sizes.words.sum(1) + 1)
        correlation = rank_correlation(sizes.questions, relative, sizes.preference)
        yield Finding(judge.label, measure, correlation, len(pairs))
        for name, (values, chosen) in _length_measures(sizes).items():
            questions = [sizes.questions[row] for row in np.flatnonzero(chosen).tolist()]
            yield finding(judge.label, name, questions, values[chosen])


def _pair_sizes(pairs: Sequence[Preference]) -> _PairSizes:
    questions = []
    preference = []
    words = []
    images = []
    for pair in pairs:
        questions.append(pair.question)
        preference.append(pair.value)
        words.append((pair.first.words, pair.second.words))
        images.append((pair.first.images, pair.second.images))
    return _PairSizes(
        questions, np.array(preference, dtype=np.float64), np.array(words), np.array(images)
    )


def _length_measures(sizes: _PairSizes) -> dict[str, _LengthMeasure]:
    """Return the measures of pairs that differ in words, or in images, by name."""
    words = sizes.words
    longer = words[:, 1] - words[:, 0]
    # Preferences are for the second answer: turned to be for the longer one.
    toward_longer = np.sign(longer) * sizes.preference
    uneven = longer != 0
    # At least 1, since the shorter answer may be without a word.
    ratio = words.max(1) / np.maximum(1, words.min(1))
    # A judge may well prefer the answer that says twice as much, which is no bias: where
    # lengths are nearly equal, little but length itself is left to prefer.
    alike = ratio <= 1.05
    twice = ratio <= 2
    up_to_twice = uneven & ~alike & twice
    measures = {
        "longer answer preferred, %": _LengthMeasure(_share(toward_longer), uneven),
        "preference for the longer, by up to 5%": _LengthMeasure(
            toward_longer, uneven & alike
        ),
        "preference for the longer, up to twice": _LengthMeasure(
            toward_longer, up_to_twice
        ),
        "preference for the longer, over twice": _LengthMeasure(
            toward_longer, uneven & ~twice
        ),
    }
    more = sizes.images[:, 1] - sizes.images[:, 0]
    if more.any():
        toward_more = _share(np.sign(more) * sizes.preference)
        measures["answer with more pictures preferred, %"] = _LengthMeasure(
            toward_more, more != 0
        )
    return measures


def rank_correlation(questions: Sequence[str], x: Floats, y: Floats) -> Estimate:
    """Return Spearman's coefficient of two differences within pairs, -1 to 1.

    The naming of a pair's sides is arbitrary, so every pair counts in both directions:
    the ranks are those of the values and their negatives together.
    """
    from scipy.stats import rankdata

    both = np.column_stack([np.concatenate([x, -x]), np.concatenate([y, -y])])
    centred = rankdata(both, axis=0) - (len(both) + 1) / 2
    # Those of the negatives are the negatives of these: one direction tells all.
    ranks = centred[: len(x)]
    # Pearson's coefficient of ranks whose mean is 0, from sums of products and squares by
    # question: a bootstrap of questions then only weights these sums.
    names, places = np.unique(questions, return_inverse=True)
    sums = np.zeros((len(names), 3))
    np.add.at(sums, places, np.column_stack([ranks.prod(1), ranks**2]))
    value = _cosine(sums.sum(0, keepdims=True))[0]
    if np.isnan(value):
        return Estimate(None, None, len(names), "one of the two does not vary")
    draws = _cosine(bootstrap_weights(names.tolist()) @ sums)
    return bootstrap_estimate(float(value), draws, len(names))


def _cosine(sums: Floats) -> Floats:
    """Return (n,) cosines of (n, 3) sums of x y, x² and y²; NaN where one is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[:, 0] / np.sqrt(sums[:, 1] * sums[:, 2]))


def self_preference(preferences: Preferences) -> Measured:
    """Measure how much more a judge prefers answers of its own family than others do."""
    for judge, pairs in preferences.items():
        own = family(judge.name)
        toward = _toward(own, pairs)
        if not toward:
            yield f"{judge.label}: no pair has exactly one answer of its own family ({own})"
            continue
        mine = {pair: float(_share(value)) for pair, value in toward.items()}
        measure = f"answers of {own} preferred"
        questions = [pair.question for pair in mine]
        yield finding(judge.label, f"{measure}, %", questions, mine.values())
        # Answers of its family may be better: what other families say of them is the
        # standard.
        others = _by_others(preferences, judge, own)
        same = [pair for pair in mine if pair in others]
        if not same:
            yield (
                f"{judge.label}: no judge of another family has judged the same pairs, so "
                "its preference cannot be distinguished from the answers' quality"
            )
            continue
        questions = []
        theirs = []
        gaps = []
        for pair in same:
            questions.append(pair.question)
            theirs.append(others[pair])
            gaps.append(mine[pair] - others[pair])
        yield finding(judge.label, f"{measure} by other judges, %", questions, theirs)
        more = "more than by other judges, points of %"
        yield finding(judge.label, more, questions, gaps)


def family(name: str) -> str:
    """Return the line of models that a name belongs to: `gpt` of `openai:gpt-4o`.

    `qwen` of `hf:Qwen/Qwen2-VL-7B`; empty where the name begins with no letter.
    """
    bare = name.rpartition("/")[2].rpartition(":")[2].lower()
    letters = re.match(r"[a-z]+", bare)
    return letters[0] if letters else ""


def _toward(own: str, pairs: Iterable[Preference]) -> dict[_AnswerPair, float]:
    """Return the preference for the one answer of the family `own`, by both answers."""
    if not own:
        return {}
    toward = {}
    for pair in pairs:
        first = pair.first
        second = pair.second
        is_first = family(first.writer) == own
        is_second = family(second.writer) == own
        if is_second and not is_first:
            key = _AnswerPair(pair.question, pair.repeat, second.system, first.system)
            toward[key] = pair.value
        elif is_first and not is_second:
            # A preference is for the second answer.
            key = _AnswerPair(pair.question, pair.repeat, first.system, second.system)
            toward[key] = -pair.value
    return toward


def _by_others(
    preferences: Preferences, judge: JudgeIdentity, own: str
) -> Mapping[_AnswerPair, float]:
    """Return the mean share of preference for family `own` by judges of other families.

    Only of judges that are asked in the same way, by protocol and mode.
    """
    shares: dict[_AnswerPair, list[float]] = defaultdict(list)
    for other, pairs in preferences.items():
        is_asked_alike = other.protocol == judge.protocol and other.mode == judge.mode
        if not is_asked_alike or family(other.name) == own:
            continue
        for pair, value in _toward(own, pairs).items():
            shares[pair].append(float(_share(value)))
    return {pair: sum(own_shares) / len(own_shares) for pair, own_shares in shares.items()}


Values = Mapping[tuple[str, object], float]
"""Preferences or scores, by question and by what else they are about."""


def equality(label: str, unit: str, sets: Sequence[Values], otherwise: str) -> Measured:
    """Measure how equal two or more sets of values about the same things are.

    Every pair of sets counts where both have a value; where there is none, the reason is
    `otherwise`.
    """
    questions = []
    differences = []
    for one, other in combinations(sets, 2):
        # By `repr`, since what values are about may be of types that cannot be compared.
        for key in sorted(one.keys() & other.keys(), key=repr):
            questions.append(key[0])
            differences.append(one[key] - other[key])
    if not questions:
        yield otherwise
        return
    gaps = np.abs(differences)
    yield finding(label, "equal, %", questions, 100.0 * (gaps == 0))
    yield finding(label, f"mean difference, {unit}", questions, gaps)


def _values(rulings: Iterable[Ruling], judging: int) -> Values:
    """Return the preferences of one judging, by question and by answers and their order."""
    values = dict[tuple[str, object], float]()
    for ruling in rulings:
        if ruling.judging == judging and ruling.preference is not None:
            question, *answers = _about(ruling)
            values[question, (*answers, ruling.swapped)] = float(ruling.preference)
    return values


def repeatability(rulings: Rulings) -> Measured:
    """Measure how equal verdicts on a question are under other seeds."""
    for judge, lines in rulings.items():
        judgings = sorted({ruling.judging for ruling in lines})
        sets = [_values(lines, judging) for judging in judgings]
        once = "asked once; `plait compare --judgings 2` asks again, with other seeds"
        yield from equality(judge.label, "levels", sets, f"{judge.label}: {once}")


def rewording(rulings: Rulings) -> Measured:
    """Measure how equal verdicts are under other wordings and modes."""
    by_model: dict[tuple[str, str, str], list[JudgeIdentity]] = defaultdict(list)
    for judge in rulings:
        by_model[judge.name, judge.stage, judge.protocol].append(judge)
    for judges in by_model.values():
        name = f"{judges[0].display_name} ({judges[0].protocol})"
        wordings = {judge.wording for judge in judges}
        if len(wordings) < 2:
            yield (
                f"{name}: asked in one wording; `plait compare --rubric official:PATH` "
                "asks in another"
            )
        for one, other in combinations(judges, 2):
            sets = [_values(rulings[judge], 0) for judge in (one, other)]
            label = f"{name}: {_apart(one, other)}"
            unread = f"{label}: no reply about the same pair was read in both"
            yield from equality(label, "levels", sets, unread)


def _apart(one: JudgeIdentity, other: JudgeIdentity) -> str:
    """Say in what two ways of asking one model differ."""
    first = one.wording[:6]
    second = other.wording[:6]
    if one.wording == other.wording:
        return f"modes {one.mode} and {other.mode}, one wording {first}"
    if one.mode == other.mode:
        return f"wordings {first} and {second}, both {one.mode}"
    return f"{one.mode} {first} and {other.mode} {second}, modes differ too"


_ScoredSides = list[tuple[Side, float]]
"""Answers to one query, each with its score."""
SEEDS = range(5)
"""Seeds of a judge's own sampling that are looked up beside the run's."""


class _Variant(NamedTuple):
    """What a judge said by one rubric."""

    label: str
    texts: Any
    """The rubric's, by which it differs from others."""
    values: Values


class Scored:
    """The answers of a run, and its rubric judges' scores of them."""

    def __init__(self, results: RunResults) -> None:
        self._results = results
        self._lookup = lookup_in(results.store)
        self._lvlms = {system.name: lvlm_of(system) for system in results.systems}
        """By system, the model that writes its answers."""
        self._judges: list[RecordedScorer] = []
        for scorer in results.scorers:
            if scorer.name.startswith(PREFIX):
                self._judges.append(scorer)
        self._answers = [*_answers(results)]

    def pairs(self) -> dict[JudgeIdentity, list[Preference]]:
        """Return differences in score of all pairs of answers to one query, by judge."""
        games: dict[JudgeIdentity, list[Preference]] = {}
        for judge in self._judges:
            rows = []
            for (query, repeat), sides in self._sides_with_scores(judge.name).items():
                # By name, as the sides of rulings are.
                sides.sort(key=lambda scored: scored[0].system)
                for (first, score), (second, other) in combinations(sides, 2):
                    rows.append(Preference(query, repeat, first, second, other - score))
            if rows:
                games[JudgeIdentity(judge.name, "")] = rows
        return games

    def _sides_with_scores(self, judge: str) -> Mapping[tuple[str, int], _ScoredSides]:
        """Return the answers that a judge scored and their scores, by query and repeat."""
        scored: dict[tuple[str, int], _ScoredSides] = defaultdict(list)
        for evaluation, query, document in self._answers:
            score = evaluation.scores.get(judge)
            if isinstance(score, Result):
                system = evaluation.system
                side = side_of(system, self._lvlms[system], document)
                scored[query.id, evaluation.repeat].append((side, score.value.value))
        return scored

    def repeatability(self) -> Measured:
        """Measure how far each rubric judge agrees with itself under other seeds."""
        for judge in (yield from self._with_records()):
            if not judge.stage.seeded:
                yield f"{judge.name}: draws nothing at random, so it is asked once"
                continue
            sets = []
            for seed in sorted({judge.seed, *SEEDS}):
                values, _ = self._scores(replace(judge, seed=seed))
                sets.append(values)
            once = f"{judge.name}: scored under one seed only"
            yield from equality(judge.name, "points of 100", sets, once)

    def rewording(self, released: RubricSource) -> Measured:
        """Measure how far each rubric judge agrees with itself under other rubrics.

        Without `released` rubrics only our own can be looked up. Rubrics with equal texts
        are one rubric, whatever their names.
        """
        for judge in (yield from self._with_records()):
            pairs = []
            for first, second in combinations(self._variants(judge, released), 2):
                if first.texts != second.texts:
                    pairs.append((first, second))
            if not pairs:
                yield f"{judge.name}: scores by one rubric only"
            for first, second in pairs:
                both = f"{judge.name}: {first.label} and {second.label}"
                unscored = f"{both}: no document was scored by both"
                sets = [first.values, second.values]
                yield from equality(both, "points of 100", sets, unscored)

    def _variants(self, judge: ByRubric, released: RubricSource) -> list[_Variant]:
        """Return the rubrics under which a judge has recorded scores, each once."""
        variants: dict[frozenset[str], _Variant] = {}
        for label, variant in reword(judge, released).items():
            values, keys = self._scores(variant)
            if values:
                # Two names of a rubric make the same requests, so they have the same keys.
                variants.setdefault(keys, _Variant(label, variant.texts, values))
        return [*variants.values()]

    def _with_records(self) -> Generator[str, None, list[ByRubric]]:
        """Return the judges whose records can be looked up; yield why others cannot."""
        judges = []
        results = self._results
        for scorer in self._judges:
            made = results.rows("records", ["stage"], {"stage": [scorer.stage.folder]})
            # A pack holds results without records.
            if next(made, None) and not results.store.parts(scorer.stage):
                yield f"{scorer.name}: of its judgements only the results are here"
                continue
            try:
                judges.append(rubric_judge(scorer, results.root))
            except UsageError as error:
                yield f"{scorer.name}: {error}"
        return judges

    def _scores(self, judged: ChatJudge) -> tuple[Values, frozenset[str]]:
        """Return recorded scores by `judged`, and the keys of its first requests."""
        values = dict[tuple[str, object], float]()
        keys = set[str]()
        for evaluation, query, document in self._answers:
            # The judge's own walk finds its records, whichever requests it makes.
            steps: list[list[Job]] = []
            outcome = read(noting(judged.judge(query, document), steps), self._lookup)
            # Later requests depend on replies, the first ones on the rubric alone.
            if steps:
                keys.update(job.key for job in steps[0])
            if isinstance(outcome, Result):
                answer = (evaluation.system, evaluation.repeat)
                values[query.id, answer] = outcome.value.value
        return values, frozenset(keys)


def _answers(results: RunResults) -> Iterator[tuple[Evaluation, Query, Document]]:
    """Yield every answer of a run with its evaluation and its query."""
    for evaluation in results.evaluations():
        query = evaluation.query
        document = evaluation.document
        if not evaluation.complete or not isinstance(query, Query):
            continue
        if isinstance(document, Result):
            yield evaluation, query, document.value


def rubric_judge(scorer: RecordedScorer, root: AnyPath) -> ByRubric:
    """Return a rubric judge of the run in `root` as it asked then; it asks nobody.

    UsageError where it was asked by released rubrics of which the run has no copy.
    """
    own = {}
    for key, value in scorer.settings.items():
        # Settings of the model that judges stand beside those of the judge.
        if key in JudgeSettings.model_fields:
            own[key] = value
    rubric = parse_rubric(own.get("rubric")).or_copy_in(root)
    settings = validate(JudgeSettings, own | {"rubric": str(rubric)}, scorer.name)
    return settings.judge(scorer.name, scorer.stage)


def reword(one: ByRubric, released: RubricSource) -> Mapping[str, ByRubric]:
    """Return a judge by every rubric that can be looked up; nobody rewords a user's own."""
    if isinstance(one, UserRubricJudge):
        return {"the run's rubric": one}
    variants = {"the run's rubric": one, "our rubric": _with(one, rubric=PLAIT)}
    if released.path is not None:
        official = str(released)
        variants["released rubric"] = _with(one, rubric=official)
        variants["released scorer"] = _with(one, rubric=official, mode="official")
    return variants


def _with(one: RubricJudge, **settings: str) -> RubricJudge:
    """Return a judge with another rubric or mode, and all else as it was."""
    other = validate(JudgeSettings, settings, one.name).judge(one.name, one.stage)
    assert isinstance(other, RubricJudge), "none of a user's own is asked for"
    if isinstance(one.examiner, Corrected) and isinstance(other.examiner, Corrected):
        examiner = replace(one.examiner, rubrics=other.examiner.rubrics)
        return replace(one, examiner=examiner)
    # Official mode asks once and has its own limit of tokens.
    return replace(one, examiner=other.examiner, retries=other.retries)
