"""`plait show`: the exact prompts, replies, settings and seeds behind one query of a run.

    for line in describe(results, "SA-1", system="anole"):
        console.print(line)

All of it stands in the tables of the results: what was asked in `prompts`, what came of it
in `records`, and which of both belong to an answer or a score in its `jobs`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.text import Text as Styled

from plait.benchmarks.results.files.reading import RunResults
from plait.cluster.records import RecordRow, decode
from plait.generators.base import StageSpec
from plait.generators.document import Draft, Image, ImageRequest, Malformed, Text
from plait.generators.names import unknown

Row = Mapping[str, Any]
"""A row of a table of the results, by column."""


class _AnswerPlace(NamedTuple):
    """Which answer a row is of."""

    query: str
    system: str
    repeat: int

    @classmethod
    def of(cls, row: Row) -> _AnswerPlace:
        return cls(row["query"], row["system"], row["repeat"])


def describe(
    results: RunResults, query_id: str, system: str | None
) -> Iterator[str | Styled]:
    """Yield lines for the terminal; UsageError for an unknown query or system."""
    # A malformed row may have the id of a valid one: there are two keys then.
    queries = {}
    for key, query in results.queries.items():
        if query.id == query_id:
            queries[key] = query
    if not queries:
        raise unknown("query", query_id, [q.id for q in results.queries.values()])
    every = [own.name for own in results.systems]
    if system is not None and system not in every:
        raise unknown("system", system, every)
    systems = every if system is None else [system]
    asked = {"query": [*queries], "system": systems}
    answers = [*results.rows("answers", among=asked)]
    judgements = [*results.rows("scores", among=asked)]
    page = _Inspection.of(results, [*answers, *judgements])
    answer_at = {_AnswerPlace.of(row): row for row in answers}
    scores_at: dict[_AnswerPlace, dict[str, Row]] = {}
    for row in judgements:
        scores_at.setdefault(_AnswerPlace.of(row), {})[row["scorer"]] = row
    for key, query in queries.items():
        yield Styled.assemble((query.id, "bold"), f"  {query.category}, {query.field}")
        if isinstance(query, Malformed):
            yield f"malformed: {query.reason}"
            if query.released is None:
                continue
        for name in systems:
            for repeat in range(1, results.about.repeats + 1):
                place = _AnswerPlace(key, name, repeat)
                if place in answer_at:
                    yield from page.answer(answer_at[place], scores_at.get(place, {}))


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
        prompt_names = set()
        keys = set()
        for row in rows:
            for job in row["jobs"]:
                keys.add(job["key"])
                if job["prompt"]:
                    prompt_names.add(job["prompt"])
        prompts = results.rows("prompts", among={"prompt": prompt_names})
        records = results.rows("records", among={"key": keys})
        return cls(
            results,
            prompts={row["prompt"]: row for row in prompts},
            records={row["key"]: row for row in records},
        )

    def answer(self, row: Row, scores: Mapping[str, Row]) -> Iterator[str | Styled]:
        """Yield the lines of one answer, by a system in a repeat."""
        many = self._results.about.repeats > 1
        again = f", repeat {row['repeat']}" if many else ""
        yield Styled.assemble("\n", (row["system"], "bold"), again)
        own = [row]
        for scorer in self._results.scorers:
            if scorer.name in scores:
                own.append(scores[scorer.name])
        # What several scorers have asked for is shown once.
        shown = set()
        for asking in own:
            for job in asking["jobs"]:
                if job["key"] not in shown:
                    shown.add(job["key"])
                    yield from self._job(job)
        for tried in json.loads(row["tries"] or "[]"):
            yield f"  drawn: {json.dumps(tried, ensure_ascii=False)}"
        if any(one["outcome"] == "missing" for one in own):
            yield Styled("not finished", "yellow")
        for score in own[1:]:
            yield from _score(score)

    def _job(self, job: Row) -> Iterator[str | Styled]:
        """Yield the lines of one request: its stage, what it was asked, what came of it."""
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
            for line in self._output(spec, kept):
                yield f"    {line}"

    def _output(self, spec: StageSpec, row: RecordRow) -> Iterator[str]:
        """Yield what a record says: why there is no value, what was noted, the reply."""
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
    """Yield a score with its details, or why there is none."""
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
    """Yield what a stage was asked: the turns of a chat, or what to draw."""
    if row is None:
        return
    yield f"seed {row['seed']}"
    if row["kind"] == "request":
        for turn in row["turns"]:
            for part in turn["content"]:
                yield f"{turn['role']}: {_segment(part)}"
    else:
        yield f"prompt: {row['text'] if row['payload'] is None else '(payload)'}"
        for part in row["context"]:
            yield f"context: {_segment(part)}"


def _segment(part: Row) -> str:
    text: str = part["text"]
    return text if part["type"] == "text" else f"(image {part['image']})"


def _show(part: Text | Image) -> str:
    return part.text if isinstance(part, Text) else f"(image {part.digest})"


def _reply(draft: Draft) -> Iterator[str]:
    """Yield the text and what is asked for; part by part where images came with it."""
    if not draft.images:
        yield f"reply: {draft.text}"
    for segment in draft.segments:
        if isinstance(segment, ImageRequest):
            yield f"asks for an image: {segment.prompt or '(payload)'}"
        elif draft.images:
            yield f"reply: {_show(segment)}"
