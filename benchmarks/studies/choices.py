"""How often judges prefer the answer of two that people chose, where the data say which.

A scorer prefers the answer that it gives the better score, a judge of pairs (`plait
compare`) the one it names. A pair counts where all that was asked about it can be read
(both orders of a judge of pairs), a verdict for neither answer as half. The official
accuracy counts every judgement made by itself, and one for neither as wrong
(evaluate/compute_scores/compute_accuracy.py of facebookresearch/MMRB2@7ff0552).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.numbers import NumberForm, estimate_of
from plait.benchmarks.results.people import Agreement, published_figures
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.studies.bias import (
    SAME,
    TO_FIRST,
    TO_LAST,
    find_rulings,
    position_measures,
)
from plait.benchmarks.tasks.mmrb2 import ANSWERS, CHOSEN, GENERATOR, SIDES
from plait.benchmarks.wording import quantity
from plait.generators.base import OutcomeName
from plait.generators.buckets import AnyPath
from plait.generators.document import Query
from plait.generators.errors import UsageError
from plait.generators.keys import digest
from plait.generators.names import unknown
from plait.scorers.base import Scorer
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.means import PERCENT, paired_differences, pooled_mean

POSITIONS = (SAME, TO_FIRST, TO_LAST)
COUNTS = (
    "pairs",
    "counted",
    "one_order",
    "ties",
    "unscored",
    "failed",
    "skipped",
    "missing",
)
GROUPS = {"split": "split", "source": "source", "generator": "pairs with an answer of"}
_COUNTED = (
    "Accuracy: pairs in which the answer that people chose is preferred, in percent with a "
    "95% interval by prompt; a verdict for neither (a tie) is half. 50 is chance. Counted "
    "are pairs of which all replies can be read. Unscored are replies that cannot be read "
    "and answers without a score; missing are pairs that were not judged. Official: of all "
    "judgements made, ties being wrong."
)


class Pair(NamedTuple):
    """Two answers to one prompt, and which of them people chose."""

    id: str
    prompt: str
    """Several pairs may share it: the independent unit of intervals."""
    chosen: str
    split: str
    source: str
    generators: frozenset[str]

    @classmethod
    def of(cls, query: Query) -> Pair:
        """Return the pair that a query of the data stands for."""
        about = query.metadata
        generators = {about[GENERATOR.format(side)] for side in SIDES}
        return cls(
            id=query.id,
            prompt=digest(query.turns),
            chosen=about[CHOSEN],
            split=query.category,
            source=query.field,
            generators=frozenset(generators),
        )

    def groups(self, kind: str) -> Collection[str]:
        """Return the groups of one kind that it is in: one, or those of its generators."""
        return self.generators if kind == "generator" else [getattr(self, kind)]


class Answered(NamedTuple):
    """What one scorer made of an answer."""

    outcome: str
    score: float | None


class Said(NamedTuple):
    """What one reply, or two scores, say of a pair."""

    outcome: str
    """`done`, or why there is no preference."""
    preference: float = 0.0
    """Positive for answer A."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """All that one judge said of the pairs."""

    name: str
    stage: str
    """Digest of the judge's model and settings, by which others of its name differ."""
    manner: str
    """Of asking: the protocol, or the rubrics."""
    orders: int
    """Replies that make a judgement whole: 2 of a judge of pairs."""
    said: Mapping[str, Sequence[Said]]
    """By pair, in the order of the pair and in the other one."""

    def accuracy(self, pairs: Iterable[Pair]) -> Estimate:
        """Return the accuracy on some pairs; its n is the number of pairs that count."""
        prompts = []
        shares = []
        for pair in pairs:
            if pair.id not in self.whole:
                continue
            # The mean over both orders: a judge that always names the first shown has 0.
            toward_a = float(np.sign(self.whole[pair.id]).mean())
            toward_chosen = toward_a if pair.chosen == "A" else -toward_a
            prompts.append(pair.prompt)
            shares.append(50.0 * (1 + toward_chosen))
        if not shares:
            return Estimate(None, None, 0, "no pair of which all replies can be read")
        return replace(pooled_mean(prompts, shares, PERCENT), n=len(shares))

    @cached_property
    def whole(self) -> dict[str, Sequence[float]]:
        """The preferences for A in each pair of which everything could be read."""
        whole: dict[str, Sequence[float]] = {}
        for pair, replies in self.said.items():
            preferences = _preferences(replies)
            if len(preferences) == self.orders:
                whole[pair] = preferences
        return whole

    def official(self, pairs: Iterable[Pair]) -> dict[str, Any]:
        """Return the official counts, and their quotient in percent."""
        evaluated = 0
        judged = 0
        correct = 0
        for pair in pairs:
            evaluated += pair.id in self.said
            # Every order by itself, as the official program counts.
            for preference in _preferences(self.said.get(pair.id, ())):
                judged += 1
                names_chosen = (preference > 0) == (pair.chosen == "A")
                # A tie names neither, and is wrong.
                if preference and names_chosen:
                    correct += 1
        return {
            "evaluated": evaluated,
            "correct": correct,
            "judged": judged,
            "accuracy": 100 * (correct / judged) if judged else None,
        }

    def positions(self, pairs: Iterable[Pair]) -> dict[str, Estimate]:
        """Return how far the place of an answer decides; empty where it has none."""
        if self.orders < 2:
            return {}
        prompts = []
        in_order = []
        swapped = []
        for pair in pairs:
            if pair.id in self.whole:
                toward_a, toward_a_swapped = self.whole[pair.id]
                prompts.append(pair.prompt)
                in_order.append(toward_a)
                swapped.append(toward_a_swapped)
        # Preferences here are for A; the measures want them for the answer shown first,
        # which in the other order is B.
        measures = position_measures(np.array(in_order), -np.array(swapped))
        means = {}
        for name in POSITIONS:
            shares = [*map(float, measures[name])]
            means[name] = pooled_mean(prompts, shares, PERCENT)
        return means

    def counts(self, pairs: Sequence[Pair]) -> dict[str, int]:
        """Return pairs, and replies without a preference by outcome.

        Skipped are also those to whom the judge does not apply; of a missing pair there is
        no reply.
        """
        counts = dict.fromkeys(COUNTS, 0)
        for pair in pairs:
            replies = self.said.get(pair.id, ())
            read = _preferences(replies)
            counts["pairs"] += 1
            counts["counted"] += len(read) == self.orders
            counts["one_order"] += 0 < len(read) < self.orders
            counts["ties"] += read.count(0)
            counts["missing"] += not replies
            for reply in replies:
                if reply.outcome == OutcomeName.UNSCORED:
                    counts["unscored"] += 1
                elif reply.outcome == OutcomeName.FAILED:
                    counts["failed"] += 1
                elif reply.outcome != OutcomeName.DONE:
                    counts["skipped"] += 1
        return counts


def _preferences(replies: Iterable[Said]) -> list[float]:
    """Return the preferences in the replies that could be read."""
    return [reply.preference for reply in replies if reply.outcome == OutcomeName.DONE]


def choices_report(root: AnyPath, names: Collection[str] = ()) -> Mapping[str, Any]:
    """Return how often the judges of the run in `root` agree with people's choices.

    Of all scorers and judges of pairs, or of those with `names`. Plain data. UsageError
    where the data hold no choices, and where nothing was judged.
    """
    results = open_results(root)
    pairs = []
    for query in results.queries.values():
        if isinstance(query, Query) and CHOSEN in query.metadata:
            pairs.append(Pair.of(query))
    if not pairs:
        raise UsageError(
            f"the data of {root} ({results.about.name}) do not say which answers people "
            "chose, as mmrb2:PLACE does; name a file of annotations, or truth:NAME"
        )
    board = results.board
    judges = [*_scorers(board), *_judges_of_pairs(results)]
    if not judges:
        raise UsageError(
            f"nothing in {root} has judged {' and '.join(ANSWERS)}: answer with both "
            "systems, and name a scorer, or run `plait compare`"
        )
    judge_names = {judge.name for judge in judges}
    for name in names:
        if name not in judge_names:
            raise unknown("judge", name, sorted(judge_names))
    if names:
        judges = [judge for judge in judges if judge.name in names]
    figures = published_figures({pair.split for pair in pairs})
    return {
        "form": "choice",
        "scores": str(root),
        "data": dict(results.about.data),
        "warning": board.warning,
        "pairs": len(pairs),
        "prompts": len({pair.prompt for pair in pairs}),
        "judges": [_plain(judge, pairs) for judge in judges],
        "published": [figure.as_json for figure in figures],
    }


def _scorers(board: Board) -> Iterator[Judged]:
    """Yield what each scorer of single answers says of the pairs, by its two scores."""
    if not {*ANSWERS} <= {system.name for system in board.systems}:
        return
    for scorer in board.scorers:
        said = {}
        for query, by_system in _scores(board, scorer.name).items():
            # A preference needs a judgement of both answers, even one without a score.
            if len(by_system) == 2:
                said[query] = [_preference(by_system, scorer)]
        yield Judged(
            name=scorer.name,
            stage=scorer.stage.digest[:12],
            manner=scorer.manner,
            orders=1,
            said=said,
        )


def _scores(board: Board, scorer: str) -> dict[str, dict[str, Answered]]:
    """Return what became of the first answers, by query and system."""
    columns = ("query", "system", "repeat", "outcome", "value")
    first: dict[str, dict[str, Answered]] = {}
    own = board.is_score & board.column["scorer"].is_(scorer)
    for query, system, repeat, outcome, value in board.rows(own, *columns):
        if system in ANSWERS and repeat == 1:
            first.setdefault(query, {})[system] = Answered(outcome, value)
    return first


def _preference(by_system: Mapping[str, Answered], scorer: Scorer) -> Said:
    """Return the preference for answer A, or the outcome of an answer without a score."""
    name_of_a, name_of_b = ANSWERS
    a = by_system[name_of_a]
    b = by_system[name_of_b]
    # Where neither has a score, the outcome is that of the second.
    if b.score is None:
        return Said(b.outcome)
    if a.score is None:
        return Said(a.outcome)
    # Not a - b: differences of rounding alone are a tie, as in all paired comparisons.
    difference = paired_differences(np.array([a.score]), np.array([b.score]))[0]
    sign = 1 if scorer.direction == "higher" else -1
    return Said(OutcomeName.DONE, sign * float(difference))


def _judges_of_pairs(results: RunResults) -> Iterator[Judged]:
    """Yield what each judge of `plait compare` says of the pairs, in both orders."""
    for judge, rulings in find_rulings(results).items():
        said: dict[str, dict[bool, Said]] = {}
        for ruling in rulings:
            sides = (ruling.first.system, ruling.second.system)
            # Only the first answers, judged once: people saw no others.
            if sides == ANSWERS and ruling.repeat == ruling.judging == 0:
                toward_first = ruling.preference or 0
                toward_a = -toward_first if ruling.swapped else toward_first
                own = said.setdefault(ruling.question, {})
                own[ruling.swapped] = Said(ruling.outcome, toward_a)
        in_order = {}
        for id, by_swapped in said.items():
            # The order of the pair goes first: False sorts before True.
            in_order[id] = [reply for _, reply in sorted(by_swapped.items())]
        if in_order:
            yield Judged(
                name=judge.display_name,
                stage=judge.stage,
                manner=f"{judge.protocol}, {judge.mode} mode, wording {judge.wording[:6]}",
                orders=2,
                said=in_order,
            )


def _plain(judge: Judged, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return all that is said of one judge, as plain data."""
    groups = {kind: _accuracy_by_group(judge, pairs, kind) for kind in GROUPS}
    official = {"all": judge.official(pairs)}
    for split in groups["split"]:
        of_split = [pair for pair in pairs if pair.split == split]
        official[split] = judge.official(of_split)
    position = {}
    for name, estimate in judge.positions(pairs).items():
        position[name] = estimate.as_json()
    return {
        "judge": judge.name,
        "manner": judge.manner,
        "stage": judge.stage,
        "accuracy": judge.accuracy(pairs).as_json(),
        "official": official,
        "position": position,
        "counts": judge.counts(pairs),
        "groups": groups,
    }


def _accuracy_by_group(
    judge: Judged, pairs: Iterable[Pair], kind: str
) -> dict[str, dict[str, Any]]:
    """Return a judge's accuracy on each group of one kind, in the order of the pairs."""
    members: dict[str, list[Pair]] = {}
    for pair in pairs:
        # Sorted, since the generators of a pair are a set, of which the order varies.
        for group in sorted(pair.groups(kind)):
            members.setdefault(group, []).append(pair)
    return {name: judge.accuracy(own).as_json() for name, own in members.items()}


def tables(content: Mapping[str, Any]) -> list[ResultTable]:
    """Return judges side by side: on all pairs, on those of each group, officially."""
    judges = content["judges"]
    shown = [_overall(content)]
    for kind in GROUPS:
        # All judges have the same groups, which are those of the data.
        shown.append(_by_group(judges, kind, judges[0]["groups"][kind]))
    return [*shown, _officially(content)]


def brief_tables(content: Mapping[str, Any]) -> list[ResultTable]:
    """Return the same of those groups alone that have pairs enough for an interval."""
    judges = content["judges"]
    shown = list[ResultTable]()
    hidden = 0
    for kind in GROUPS:
        enough = []
        for name in judges[0]["groups"][kind]:
            if _has_interval(judges, kind, name):
                enough.append(name)
            else:
                hidden += 1
        if enough:
            shown.append(_by_group(judges, kind, enough))
    overall = _overall(content)
    small = f"{hidden:,} groups too small for an interval, and the " if hidden else "the "
    note = f"--all shows {small}official accuracy beside the published figures."
    return [replace(overall, notes=[*overall.notes, note]), *shown]


def _has_interval(judges: Iterable[Mapping[str, Any]], kind: str, name: str) -> bool:
    return any(judge["groups"][kind][name]["ci95"] for judge in judges)


def _by_group(
    judges: Sequence[Mapping[str, Any]], kind: str, names: Iterable[str]
) -> ResultTable:
    head = [GROUPS[kind], *map(_label, judges)]
    rows: list[list[str | TableCell]] = []
    for name in names:
        row: list[str | TableCell] = [name]
        for judge in judges:
            row.append(_accuracy(judge["groups"][kind][name], counted=True))
        rows.append(row)
    return ResultTable.of(f"Accuracy by {kind}", head, rows)


def _overall(content: Mapping[str, Any]) -> ResultTable:
    head = [
        TableColumn("judge", numeric=False),
        TableColumn("accuracy %", "higher", numeric=True),
        TableColumn("official %", numeric=True),
        *(TableColumn(name, numeric=True) for name in POSITIONS),
        TableColumn("pairs and replies", numeric=False),
    ]
    rows = []
    for judge in content["judges"]:
        official = judge["official"]["all"]["accuracy"]
        row = [
            TableCell(judge["judge"], judge["manner"]),
            _accuracy(judge["accuracy"]),
            TableCell(_FORM.number(official)),
            *(_accuracy(judge["position"].get(name)) for name in POSITIONS),
            TableCell(_counts(judge["counts"])),
        ]
        rows.append(row)
    pairs = quantity(content["pairs"], "pair")
    about = f"{pairs} of answers to {quantity(content['prompts'], 'prompt')}"
    notes = [f"Warning: {content['warning']}."] if content["warning"] else []
    title = f"Agreement with people's choices: {about}"
    return ResultTable.of(title, head, rows, [*notes, _COUNTED])


def _counts(counts: Mapping[str, int]) -> str:
    parts = [f"{counts['counted']:,} of {counts['pairs']:,} counted"]
    for name in COUNTS[2:]:
        if counts[name]:
            parts.append(f"{counts[name]:,} {name.replace('_', ' ')}")
    return ", ".join(parts)


_FORM = NumberForm(1)


def _accuracy(plain: Mapping[str, Any] | None, *, counted: bool = False) -> TableCell:
    if plain is None:
        return TableCell("-")
    return TableCell.of(estimate_of(plain, "value"), _FORM, counted=counted)


def _label(judge: Mapping[str, Any]) -> str:
    return f"{judge['judge']} ({judge['manner']})" if judge["manner"] else judge["judge"]


def _officially(content: Mapping[str, Any]) -> ResultTable:
    judges = content["judges"]
    splits = list(judges[0]["groups"]["split"])
    rows: list[list[str]] = []
    for judge in judges:
        accuracies = (judge["official"][split]["accuracy"] for split in splits)
        rows.append([_label(judge), "here", *map(_FORM.number, accuracies)])
    published: dict[str, dict[str, float]] = {}
    notes = set()
    for plain in content["published"]:
        figure = Agreement(**plain)
        published.setdefault(figure.name, {})[figure.split] = figure.value
        notes.add(f"Published: {figure.source}.")
    for name, by_split in published.items():
        rows.append([name, "published", *map(_FORM.number, map(by_split.get, splits))])
    title = "Official accuracy by split, %"
    return ResultTable.of(title, ["judge", "measured", *splits], rows, sorted(notes))
