"""A comparison written down and shown: `compare-PROTOCOL-NAME.{json,md}`, the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from plait.benchmarks.results.board import MINI
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.reasons import (
    MissingValue,
    count_reasons,
    missing_values_csv,
    most_frequent,
    reasons_table,
)
from plait.benchmarks.results.table import ResultTable, json_text, markdown_page
from plait.cluster.run import RunResult
from plait.generators.base import (
    RANDOM,
    Failure,
    NotApplicable,
    Outcome,
    Result,
    StageSpec,
    outcome_name,
)
from plait.generators.buckets import AnyPath
from plait.generators.document import key_of
from plait.generators.files import write_whole
from plait.generators.mini.table import ABOUT
from plait.scorers.judging.sources import parse_rubric
from plait.scorers.pairwise.games import Judgement, PairStanding, Standings
from plait.scorers.pairwise.matchup import Matchup
from plait.scorers.statistics.estimate import Estimate

Judged = Sequence[tuple[Matchup, Outcome[Judgement]]]
"""Every pair of documents with the outcome of its judgement."""
_PARTS = {"overall": "All questions", "category": "By category", "field": "By field"}


def report(
    place: AnyPath,
    *,
    about: Mapping[str, Any],
    table: Standings,
    judged: Judged,
    run: RunResult,
    asked: str,
    stages: Mapping[str, Sequence[StageSpec]],
    console: Console,
) -> None:
    """Show a comparison, and write its files: `place` with a suffix.

    In the terminal without groups and with the most frequent reasons. `stages` are those
    of each system and of the judge; `asked` says how many questions were asked.
    """
    missing = list(_missing_values(judged))
    failures = f"{place.name}-failures.csv"
    names = list(dict.fromkeys(_pair(matchup) for matchup, _ in judged))
    reasons = {}
    for pair, own_reasons in count_reasons(missing, names).items():
        if own_reasons:
            reasons[pair] = own_reasons
    rows = [replace(row, values=_values(row)) for row in table.rows]
    table = replace(table, rows=tuple(rows))
    content = {
        **about,
        "counts": dict(run.counts),
        "table": table.as_json(),
        "reasons": reasons,
    }
    on_page = list(tables(table))
    in_terminal = [one for one in on_page if one.columns[0].heading != "group"]
    if reasons:
        notes = [f"each one is listed in {failures}"]
        on_page.append(reasons_table("pair", reasons.items(), notes))
        in_terminal.append(most_frequent("pair", reasons.items(), failures))
    for result_table in in_terminal:
        console.print(result_table.rich)
    remarks = list(_remarks(about, judged, stages))
    lines = [*remarks, f"{asked} in {run.seconds:.0f} s"]
    if run.interrupted:
        lines.append("Stopped. Run the same command again to continue.")
    for line in lines:
        console.print(line, soft_wrap=True)
    page = place.parent / f"{place.name}.md"
    write_whole(page.with_suffix(".json"), json_text(content))
    write_whole(page.parent / failures, missing_values_csv(missing, names, {}))
    write_whole(page, markdown_page(_title(about), remarks, on_page))
    console.print(f"comparison {page}", soft_wrap=True)


def _title(about: Mapping[str, Any]) -> str:
    against = f" against {about['baseline']}" if about["baseline"] else ""
    whose = "our" if parse_rubric(about["rubric"]).path is None else "the released"
    how = f"{about['mode']} mode, {whose} wording, judged by {about['judge']}"
    return f"Comparison by {about['protocol']}{against}, {how}"


def _pair(matchup: Matchup) -> str:
    return f"{matchup.second} against {matchup.first}"


def _missing_values(judged: Judged) -> Iterator[MissingValue]:
    """Yield the judgements, or their readings, that have no verdict.

    A question that does not apply in a protocol has no missing value there.
    """
    for matchup, judgement in judged:
        outcomes: Sequence[Outcome[Any]] = [judgement]
        if isinstance(judgement, Result):
            outcomes = [reading.outcome for reading in judgement.value.readings]
        for outcome in outcomes:
            if not isinstance(outcome, Result | NotApplicable):
                yield MissingValue(
                    system=_pair(matchup),
                    query=key_of(matchup.query),
                    category=matchup.query.category,
                    field=matchup.query.field,
                    repeat=matchup.repeat + 1,
                    scorer="",
                    outcome=outcome_name(outcome),
                    fault=outcome.fault.value if isinstance(outcome, Failure) else "",
                    reason=outcome.reason,
                )


def _values(row: PairStanding) -> Mapping[str, Estimate]:
    """Return the values of a row, missing ones named where questions were read once."""
    values = dict(row.values)
    for name, value in values.items():
        read = "factuality_read" if name.startswith("visual_factuality") else "read"
        if value.reason == "no question judged" and row.counts.get(read):
            values[name] = replace(value, reason="no question read in both orders")
    return values


def tables(table: Standings) -> Iterator[ResultTable]:
    """Yield one table per part and set of values, overall ones first."""
    for part, title in _PARTS.items():
        by_names: dict[tuple[str, ...], list[PairStanding]] = {}
        for row in table.rows:
            if row.part == part:
                by_names.setdefault(tuple(row.values), []).append(row)
        for names, rows in by_names.items():
            if names:
                yield _part(title, rows, names)


def _part(title: str, rows: Sequence[PairStanding], names: Sequence[str]) -> ResultTable:
    """Return a line for each row, with groups and counts only where there are any."""
    form = NumberForm()
    has_groups = any(row.group for row in rows)
    has_counts = any(_replies(row.counts) for row in rows)
    lines = []
    for row in rows:
        line = [row.group] if has_groups else []
        line += [row.system or "(all)", row.opponent or "-"]
        for name in names:
            line.append(form.counted(row.values[name]))
        if has_counts:
            line.append(_replies(row.counts))
        lines.append(line)
    head = ["group"] if has_groups else []
    head += ["system", "against", *names]
    if has_counts:
        head.append("replies")
    return ResultTable.of(title, head, lines)


_JUDGED = ("questions", "read")
_MISSING = (
    "unjudged",
    "unread",
    "failed",
    "skipped",
    "not_applicable",
    "one_order",
    "no_order",
    "factuality_unread",
    "factuality_failed",
)


def _replies(counts: Mapping[str, int]) -> str:
    """`40 questions, 78 read, 2 unread`: what was judged, and what is missing."""
    told = []
    for name, count in counts.items():
        if name in _JUDGED or (count and name in _MISSING):
            told.append(f"{count:,} {name.replace('_', ' ')}")
    return ", ".join(told)


_INTERVALS = (
    "Values with 95% intervals by question. Unread and failed replies are "
    "counted and do not enter any value."
)
_OUR_WORDING = (
    "Warning: the judge was asked in this project's wording, so these numbers are not "
    "comparable with published ones; --rubric official:PATH asks in the released wording."
)


def _remarks(
    about: Mapping[str, Any], judged: Judged, stages: Mapping[str, Sequence[StageSpec]]
) -> Iterator[str]:
    if about["mode"] == "official":
        yield "Numbers as the released program computes them."
        if parse_rubric(about["rubric"]).path is None:
            yield _OUR_WORDING
    else:
        yield _INTERVALS
    if not any(map(_has_reading, judged)):
        yield "Warning: no reply was read, so there are no numbers."
    if random := _of_weights(stages, RANDOM):
        yield f"Warning: made with random weights ({random}): the numbers mean nothing."
    if mini := _of_weights(stages, (MINI,)):
        yield f"Warning: weights ({mini}) {ABOUT}."


def _has_reading(judged: tuple[Matchup, Outcome[Judgement]]) -> bool:
    """Return whether a reply about a pair could be read."""
    _, judgement = judged
    if not isinstance(judgement, Result):
        return False
    readings = judgement.value.readings
    return any(isinstance(reading.outcome, Result) for reading in readings)


def _of_weights(stages: Mapping[str, Sequence[StageSpec]], kinds: Sequence[str]) -> str:
    """`tiny: anole, gpt; dummy: ...`: which systems, or the judge, used `kinds`."""
    told = []
    for kind in kinds:
        names = [name for name, own in stages.items() if _any_of_weights(own, kind)]
        if names:
            told.append(f"{kind}: {', '.join(names)}")
    return "; ".join(told)


def _any_of_weights(stages: Iterable[StageSpec], kind: str) -> bool:
    return any(stage.weights == kind for stage in stages)
