"""A scorer used as a reward is the scorer used as a metric: values and digests of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import plait
from golden_runs import AUTHOR, BRIEF, COUNT, GRADER, PENCIL, mmie_data
from serving_helpers import Served, content_parts, scorers_model, served_model

from plait.benchmarks.runs.answers import QueryAnswer
from plait.benchmarks.runs.run_data import RunData
from plait.generators.document import Content, Image, Query, Text

SYSTEMS = ("gt", f"{AUTHOR}+{PENCIL}")
SCORERS = ("bleu", BRIEF, COUNT, GRADER)


def run_of(folder: Path, scorers: tuple[str, ...], *more: str) -> RunData:
    named = [word for name in SYSTEMS for word in ("--system", name)]
    named += [word for name in scorers for word in ("--scorer", name)]
    words = ["--data", mmie_data(folder), "--out", str(folder / "run"), *named, *more]
    done = plait("run", *words, "--weights", "tiny")
    assert done.returncode in (0, 1), done.stderr  # 1: what fails on purpose
    return RunData.at(folder / "run")


def parts_of(run: RunData, content: Content) -> list[dict[str, Any]]:
    shown: list[Any] = []
    for part in content:
        shown.append(part.text if isinstance(part, Text) else Image.of(run.read(part)))
    return content_parts(*shown)


def item_of(run: RunData, answer: QueryAnswer) -> dict[str, Any]:
    """The answer and all that scorers may read of its query, as a request has them."""
    query = answer.query.sample
    assert isinstance(query, Query)
    assert answer.document is not None
    messages = [
        {"role": turn.role, "content": parts_of(run, turn.content)} for turn in query.turns
    ]
    item = {
        "messages": messages,
        "answer": parts_of(run, answer.document.plain.segments),
        "id": query.id,
        "category": query.category,
        "field": query.field,
        "criteria": query.criteria,
        "metadata": dict(query.metadata),
        "wants_images": query.wants_images,
    }
    if query.reference is not None:
        item["reference"] = parts_of(run, query.reference.segments)
    return item


def check(run: RunData, served: Served, scorer: str, abs: float = 0.0) -> set[str]:
    """Compare the run's judgements with those over HTTP; the outcomes that there are."""
    answers = [*run.answers(outcome="done")]
    items = [item_of(run, answer) for answer in answers]
    status, reply = served.post("/score", {"scorer": scorer, "items": items})
    assert status == 200, reply
    (facts,) = (s for s in run.about.scorers if s["name"] == scorer)
    digests = [run.about.stages[folder]["digest"] for folder in facts["stages"]]
    outcomes = set()
    for answer, result in zip(answers, reply["results"], strict=True):
        verdict = answer.scores[scorer]
        assert [result["digest"]] == digests
        assert result["outcome"] == verdict.outcome
        assert (result["reason"], result["fault"]) == (verdict.reason, verdict.fault)
        if abs and verdict.value is not None:
            assert result["value"] == pytest.approx(verdict.value, abs=abs, rel=0)
        else:
            assert (result["value"], result["parts"]) == (verdict.value, verdict.parts)
        outcomes.add(verdict.outcome)
    return outcomes


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return run_of(tmp_path_factory.mktemp("scores"), SCORERS, "--seed", "3")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with served_model(scorers_model(*SCORERS, seed=3)) as server:
        yield server


@pytest.mark.contract
@pytest.mark.parametrize("scorer", SCORERS)
def test_a_score_over_http_is_that_of_the_runs_table(
    run: RunData, served: Served, scorer: str
) -> None:
    outcomes = check(run, served, scorer)
    assert "scored" in outcomes
    assert scorer != BRIEF or "unscored" in outcomes
    values = run.scores.arrow.to_pylist()
    table = [row["value"] for row in values if row["scorer"] == scorer]
    assert {*filter(None, table)}, "there are values to compare"


@pytest.mark.models
@pytest.mark.usefixtures("worker_threads")
def test_so_it_is_of_a_model_whatever_stands_beside_it_in_a_batch(tmp_path: Path) -> None:
    run = run_of(tmp_path, ("clipscore",))
    with served_model(scorers_model("clipscore"), batch_wait_s=0.05) as server:
        # Batched matrix products may round differently.
        assert "scored" in check(run, server, "clipscore", abs=1e-5)
