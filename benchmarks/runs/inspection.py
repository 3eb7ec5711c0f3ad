"""The exact prompts, replies, settings and seeds behind one query of a run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text as Styled

from plait.benchmarks.results.files.reading import RunResults
from plait.cluster.records import RecordRow, decode
from plait.generators.base import StageSpec
from plait.generators.document import Draft, Image, ImageRequest, Malformed, Text
from plait.generators.names import unknown

Row = Mapping[str, Any]


def describe(
    results: RunResults, query_id: str, system: str | None
) -> Iterator[str | Styled]:
    """Lines for the terminal; UsageError for an unknown query or system."""
    queries = {key: q for key, q in results.queries.items() if q.id == query_id}
    if not queries:
        raise unknown("query", query_id, (q.id for q in results.queries.values()))
    systems = [s.name for s in results.systems if system in (None, s.name)]
    if not systems:
        raise unknown("system", str(system), (s.name for s in results.systems))
    asked = {"query": [*queries], "system": systems}
    answers = {_about(row): row for row in results.rows("answers", among=asked)}
    scores = defaultdict[tuple[str, str, int], dict[str, Row]](dict)
    for row in results.rows("scores", among=asked):
        scores[_about(row)][row["scorer"]] = row
    page = _Inspection.of(results, [*answers.values(), *_all_scores(scores)])
    for key, query in queries.items():
        yield Styled.assemble((query.id, "bold"), f"  {query.category}, {query.field}")
        if isinstance(query, Malformed):
            yield f"malformed: {query.reason}"
            if query.released is None:
                continue
        for name in systems:
            for repeat in range(1, results.about.repeats + 1):
                about = key, name, repeat
                if about in answers:
                    yield from page.answer(answers[about], scores[about])


def _about(row: Row) -> tuple[str, str, int]:
    return row["query"], row["system"], row["repeat"]


def _all_scores(scores: Mapping[Any, Mapping[str, Row]]) -> Iterator[Row]:
    for own in scores.values():
        yield from own.values()


class _Inspection:
    """What was asked and replied behind some answers, and how it is shown."""

    def __init__(
        self, results: RunResults, prompts: Mapping[str, Row], records: Mapping[str, Row]
    ) -> None:
        self._results = results
        self._prompts = prompts
        self._records = records

    @classmethod
    def of(cls, results: RunResults, rows: Sequence[Row]) -> _Inspection:
        """Return the inspection of answers and scores, with what they were made of."""
        jobs: list[Row] = []
        for row in rows:
            jobs += row["jobs"]
        asked = {job["prompt"] for job in jobs if job["prompt"]}
        keys = {job["key"] for job in jobs}
        prompts = results.rows("prompts", among={"prompt": asked})
        records = results.rows("records", among={"key": keys})
        return cls(
            results,
            {row["prompt"]: row for row in prompts},
            {row["key"]: row for row in records},
        )

    def answer(self, row: Row, scores: Mapping[str, Row]) -> Iterator[str | Styled]:
        """Yield the lines of one answer, by a system in a repeat."""
        many = self._results.about.repeats > 1
        again = f", repeat {row['repeat']}" if many else ""
        yield Styled.assemble("\n", (row["system"], "bold"), again)
        own = [scores[s.name] for s in self._results.scorers if s.name in scores]
        jobs: dict[str, Row] = {}
        for asked in (row, *own):
            jobs |= {job["key"]: job for job in asked["jobs"] if job["key"] not in jobs}
        for job in jobs.values():
            yield from self._job(job)
        for tried in json.loads(row["tries"] or "[]"):
            yield f"  drawn: {json.dumps(tried, ensure_ascii=False)}"
        if "missing" in (row["outcome"], *(score["outcome"] for score in own)):
            yield Styled("not finished", "yellow")
        for score in own:
            yield from _score(score)

    def _job(self, job: Row) -> Iterator[str | Styled]:
        spec = self._results.stages[job["stage"]]
        kept = self._results.record(job)
        made = self._records.get(job["key"])
        state = "not made" if made is None else made["outcome"]
        settings = json.dumps(dict(spec.settings), ensure_ascii=False)
        about = f"({spec.kind.value}) {state}, key {job['key']}"
        yield Styled.assemble("  ", (spec.name, "cyan"), f" {about}")
        yield f"    model {spec.identity or spec.target}"
        yield f"    settings {settings}"
        for line in _prompt(self._prompts.get(job["prompt"])):
            yield f"    {line}"
        if kept is not None:
            yield from (f"    {line}" for line in self._output(spec, kept))

    def _output(self, spec: StageSpec, row: RecordRow) -> Iterator[str]:
        if row.reason:
            yield f"reason: {row.reason}"
        for name, value in self._results.noted(row).items():
            # The messages sent to an endpoint repeat the turns above.
            if name != "prompt" or isinstance(value, str):
                yield f"{name}: {value}"
        value = getattr(decode(spec.kind, row), "value", None)
        if isinstance(value, Draft):
            yield from _reply(value)


def _score(score: Row) -> Iterator[str]:
    outcome = score["outcome"]
    value = score["value"]
    if value is not None:
        yield f"  {score['scorer']}: done, {value:z.4g}"
        yield f"    {score['detail'] or '{}'}"
    elif outcome not in ("missing", "no_document"):
        yield f"  {score['scorer']}: {outcome}, {score['reason']}"
        if score["detail"]:
            yield f"    {score['detail']}"


def _prompt(row: Row | None) -> Iterator[str]:
    if row is None:
        return
    yield f"seed {row['seed']}"
    if row["kind"] == "request":
        for turn in row["turns"]:
            for part in turn["content"]:
                yield f"{turn['role']}: {_segment(part)}"
    else:
        yield f"prompt: {row['text'] if row['payload'] is None else '(payload)'}"
        yield from (f"context: {_segment(part)}" for part in row["context"])


def _segment(part: Row) -> str:
    text: str = part["text"]
    return text if part["type"] == "text" else f"(image {part['image']})"


def _show(part: Text | Image) -> str:
    return part.text if isinstance(part, Text) else f"(image {part.digest})"


def _reply(draft: Draft) -> Iterator[str]:
    """The text and what is asked for; part by part where images came with it."""
    if not draft.images:
        yield f"reply: {draft.text}"
    for segment in draft.segments:
        if isinstance(segment, ImageRequest):
            yield f"asks for an image: {segment.prompt or '(payload)'}"
        elif draft.images:
            yield f"reply: {_show(segment)}"
