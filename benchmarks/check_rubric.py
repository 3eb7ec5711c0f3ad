"""`plait check mine.toml`: what plait understands of a user's own rubric.

It shows the criteria, how many queries of some data they are asked about, and one whole
prompt. Nothing is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console

from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.config import RunConfig
from plait.benchmarks.runs.queries import read_task
from plait.benchmarks.wording import quantity
from plait.generators.buckets import AnyPath
from plait.generators.content import display_text
from plait.generators.document import Document, Image, Query, Text, Turn
from plait.scorers.judging.judge import Question
from plait.scorers.judging.pages import Pages
from plait.scorers.judging.rubric_file import RubricText
from plait.scorers.judging.user_examiner import UserExaminer
from plait.scorers.judging.user_rubric import (
    QUERY_CRITERIA,
    CategoryRubric,
    ReadRubric,
    read_criteria,
    read_user_rubric,
)

_ANSWER = Document((Text("(The answer of a system.)"),))
_EXAMPLE = Query(
    id="example",
    category="",
    field="",
    turns=(Turn("user", (Text("(A question; --data DATA shows one of yours.)"),)),),
)
_MOST_PROBLEMS = 5


def check_rubric(path: AnyPath, config: RunConfig | None, console: Console) -> int:
    """Print what a rubric asks, and one prompt; of the queries that `config` names.

    Returns the exit status: 1 where criteria of queries are not valid, or where the rubric
    is for none of them. UsageError names the lines of a rubric that is not valid.
    """
    rubric = read_user_rubric(RubricText.at(path))
    examiner = UserExaminer(rubric)
    console.print(_criteria_table(rubric).rich)
    console.print(f"score: the weighted mean, on the scale {rubric.score}")
    if config is None:
        _show_prompt(examiner, _EXAMPLE, console)
        return 0
    task, _ = read_task(config)
    queries = [row for row in task.samples if isinstance(row, Query)]
    found = _requests(examiner, queries)
    judged = [query for query in queries if found.requests[query.id]]
    total = sum(found.requests.values())
    most = f", {quantity(total, 'request')} for one answer to each" if judged else ""
    of_all = f"{len(judged):,} of {len(queries):,} queries of {config.data}"
    console.print(f"{of_all} are judged{most}")
    for line in _iter_left_out(rubric, queries, found.requests):
        console.print(line)
    for problem in found.problems[:_MOST_PROBLEMS]:
        console.print(problem)
    if len(found.problems) > _MOST_PROBLEMS:
        console.print(f"... and {len(found.problems) - _MOST_PROBLEMS:,} more")
    if judged:
        _show_prompt(examiner, judged[0], console)
    return 0 if judged and not found.problems else 1


def _criteria_table(rubric: ReadRubric) -> ResultTable:
    """Return a row for each criterion; the categories are left out where there are none."""
    groups = {"": rubric.usual, **rubric.categories}
    rows = []
    for category, own in groups.items():
        for criterion in own.criteria:
            shown = ", ".join(own.parts_to_show(criterion))
            about = (criterion.name, criterion.scale, f"{criterion.weight:g}")
            better = "" if criterion.direction == "higher" else "lower is better"
            rows.append([category or "all others", *about, better, shown])
    if (usual := rubric.query_criteria) is not None:
        shown = ", ".join(usual.show or rubric.usual.show)
        row = ["all", QUERY_CRITERIA, usual.scale, f"{usual.weight:g} each", "", shown]
        rows.append(row)
    if not rubric.categories:
        rows = [row[1:] for row in rows]
    heads = ["category", "criterion", "scale", "weight", "", "shown"]
    title = f"rubric {rubric.name} ({rubric.digest[:8]})"
    return ResultTable.of(title, heads[-len(rows[0]) :], rows, numeric=False)


class _Requests(NamedTuple):
    """What a rubric asks about some queries."""

    requests: Mapping[str, int]
    """By the id of each query, how many requests judge one answer to it."""
    problems: Sequence[str]
    """What is wrong with criteria that queries have themselves, a line for each."""


def _requests(examiner: UserExaminer, queries: Sequence[Query]) -> _Requests:
    requests = {}
    problems = []
    for query in queries:
        requests[query.id] = 0
        rubric = examiner.rubric.of(query)
        if rubric is None:
            continue
        try:
            requests[query.id] = len(examiner.group_criteria(rubric, query))
        except ValueError as error:
            problems.append(f"query {query.id}: {error}")
    return _Requests(requests, problems)


def _iter_left_out(
    rubric: ReadRubric, queries: Sequence[Query], requests: Mapping[str, int]
) -> Iterator[str]:
    """Say which queries are not judged, and what the rubric does not use."""
    silent = Counter[str]()
    without_criteria = 0
    with_own_criteria = 0
    without_truth = 0
    for query in queries:
        if rubric.of(query) is None:
            silent[query.category] += 1
        elif not requests[query.id]:
            without_criteria += 1
        with_own_criteria += bool(read_criteria(query))
        without_truth += query.reference is None
    for category, n in silent.items():
        yield f"not judged: {n:,} of category {category!r}, for which it has no criteria"
    if without_criteria and rubric.query_criteria:
        yield f"not judged: {without_criteria:,} without criteria of their own"
    if with_own_criteria and not rubric.query_criteria:
        yield (
            f"{quantity(with_own_criteria, 'query')} with criteria of their own; a table "
            "[query_criteria] asks about them too"
        )
    if without_truth and _shows_truth(rubric):
        yield (
            f"{quantity(without_truth, 'query')} without a reference: the judge is "
            "told that none is known"
        )


def _shows_truth(rubric: ReadRubric) -> bool:
    """Return whether a judge is shown the reference for any criterion."""
    for own in (rubric.usual, *rubric.categories.values()):
        for criterion in own.criteria:
            if "reference" in own.parts_to_show(criterion):
                return True
    return False


def _show_prompt(examiner: UserExaminer, query: Query, console: Console) -> None:
    """Print the first request about a query, with its reference in an answer's place."""
    rubric: CategoryRubric | None = examiner.rubric.of(query)
    if rubric is None:  # no query at hand, and every category has its own criteria
        rubric = next(iter(examiner.rubric.categories.values()))
    asked = examiner.group_criteria(rubric, query)
    if not asked:
        return
    document = query.reference or _ANSWER
    question = examiner.ask(rubric, asked[0], query, document, Pages(None))
    of = f"1 of {len(asked)} requests" if len(asked) > 1 else "the request"
    answer = "its reference stands for the answer" if query.reference else "no answer"
    console.print(f"\n{of} about query {query.id} ({answer}):\n")
    for line in _lines(question):
        console.print(line)


def _lines(question: Question) -> Iterator[str]:
    for turn in question.turns:
        yield f"--- {turn.role}"
        parts = []
        for segment in turn.content:
            parts.append(segment if isinstance(segment, Image) else segment.text)
        yield display_text(parts)
