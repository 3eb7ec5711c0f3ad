"""`plait check mine.toml`: what plait understands of a user's own rubric.

It shows the criteria, how many queries of some data they are asked about, and one whole
prompt. Nothing is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console

from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.config import RunConfig
from plait.benchmarks.runs.experiment import read_task
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
_SAMPLE = Query(
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
        _show_prompt(examiner, _SAMPLE, console)
        return 0
    samples = [s for s in read_task(config)[0].samples if isinstance(s, Query)]
    requests, problems = _requests(examiner, samples)
    asked = {id: n for id, n in requests.items() if n}
    most = f", {sum(asked.values()):,} requests for one answer to each" if asked else ""
    of_all = f"{len(asked):,} of {len(samples):,} queries of {config.data}"
    console.print(f"{of_all} are judged{most}")
    for line in _iter_left_out(rubric, samples, requests):
        console.print(line)
    for problem in problems[:_MOST_PROBLEMS]:
        console.print(problem)
    if len(problems) > _MOST_PROBLEMS:
        console.print(f"... and {len(problems) - _MOST_PROBLEMS:,} more")
    if first := next((s for s in samples if s.id in asked), None):
        _show_prompt(examiner, first, console)
    return 0 if asked and not problems else 1


def _criteria_table(rubric: ReadRubric) -> ResultTable:
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


def _requests(
    examiner: UserExaminer, samples: Sequence[Query]
) -> tuple[dict[str, int], list[str]]:
    """Return by query its requests, and what is wrong with criteria of some."""
    requests: dict[str, int] = {}
    problems = []
    for sample in samples:
        own = examiner.rubric.of(sample)
        try:
            found = [] if own is None else examiner.group_criteria(own, sample)
        except ValueError as error:
            problems.append(f"query {sample.id}: {error}")
            found = []
        requests[sample.id] = len(found)
    return requests, problems


def _iter_left_out(
    rubric: ReadRubric, samples: Sequence[Query], requests: dict[str, int]
) -> Iterator[str]:
    """Say which queries are not judged, and what the rubric does not use."""
    silent = Counter(s.category for s in samples if rubric.of(s) is None)
    for category, n in silent.items():
        yield f"not judged: {n:,} of category {category!r}, for which it has no criteria"
    without = [s for s in samples if rubric.of(s) is not None and not requests[s.id]]
    if without and rubric.query_criteria:
        yield f"not judged: {len(without):,} without criteria of their own"
    own = sum(bool(read_criteria(sample)) for sample in samples)
    if own and not rubric.query_criteria:
        yield (
            f"{own:,} queries have criteria of their own; a table [query_criteria] asks "
            "about them too"
        )
    uses_truth = any("reference" in shown for shown in _all_shown(rubric))
    if uses_truth and (lacking := sum(s.reference is None for s in samples)):
        yield f"{lacking:,} queries have no reference: the judge is told that none is known"


def _all_shown(rubric: ReadRubric) -> Iterator[tuple[str, ...]]:
    for own in (rubric.usual, *rubric.categories.values()):
        yield from (own.parts_to_show(criterion) for criterion in own.criteria)


def _show_prompt(examiner: UserExaminer, sample: Query, console: Console) -> None:
    own: CategoryRubric | None = examiner.rubric.of(sample)
    if own is None:  # no query at hand, and every category has its own criteria
        own = next(iter(examiner.rubric.categories.values()))
    document = sample.reference or _ANSWER
    asked = examiner.group_criteria(own, sample)
    for number, one in enumerate(asked[:1], 1):
        question = examiner.ask(own, one, sample, document, Pages(None))
        of = f"{number} of {len(asked)} requests" if len(asked) > 1 else "the request"
        answer = "its reference stands for the answer" if sample.reference else "no answer"
        console.print(f"\n{of} about query {sample.id} ({answer}):\n")
        for line in _lines(question):
            console.print(line)


def _lines(question: Question) -> Iterator[str]:
    for turn in question.turns:
        yield f"--- {turn.role}"
        parts = (s if isinstance(s, Image) else s.text for s in turn.content)
        yield display_text(parts)
