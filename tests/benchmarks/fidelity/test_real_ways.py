"""Real ways: a tiny model at two batch sizes and precisions, and behind a server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from endpoint_helpers import MODEL, Answer, completion, echo, error, serving

from benchmarks.fidelity.config import load_config
from benchmarks.fidelity.measure import measured
from benchmarks.fidelity.report import FidelityReport, measures_of


def report(system: str, *ways: dict[str, Any], **options: Any) -> FidelityReport:
    given = {"system": system, "ways": ways, "clip": "off", "repeats": 1, **options}
    return measured(load_config(None, given))


def figures(made: FidelityReport, way: int = 1) -> dict[str, float | None]:
    return measures_of(made.ways, made.scores)[made.ways[way].label]


@pytest.mark.models
def test_a_tiny_lvlm_says_the_same_in_batches_and_other_things_in_bfloat16(
    tmp_path: Path,
) -> None:
    from vlm_helpers import save_tiny

    folder = save_tiny(tmp_path / "qwen2-vl")
    made = report(
        f"hf:{folder}",
        {"name": "batch 1", "batch_size": 1},
        {"name": "batch 4", "batch_size": 4},
        {"name": "bf16", "batch_size": 4, "dtype": "bfloat16"},
        settings={"dtype": "float32", "max_new_tokens": 24},
        limit=4,
    )
    assert figures(made)["text.equal"] == 1
    assert (figures(made, 2)["text.equal"] or 0) < 1
    assert not made.failed
    assert [r for r in made.remarks if "Warning" in r] == []


@pytest.mark.models
def test_a_tiny_painter_differs_by_rounding_only_in_batches(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a cat\na dog\n")
    made = report(
        "sdxl-turbo",
        {"name": "batch 1", "batch_size": 1},
        {"name": "batch 2", "batch_size": 2},
        {"name": "guided", "batch_size": 2, "guidance": 5.0},
        weights="tiny",
        prompts=prompts,
        scorers=("clipscore",),
    )
    assert (figures(made)["picture.largest_difference"] or 0) <= 1
    assert (figures(made, 2)["picture.largest_difference"] or 0) > 1
    # The words that a picture was drawn from are what CLIP compares it with.
    assert made.scores[0].mean.n == 2
    assert "Warning: made with tiny random weights" in made.remarks[0]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0123456789")
    with serving() as found:
        yield found


WAY = {"system": f"openai:{MODEL}", "max_attempts": 1, "give_up_s": 1}


def served(server: Any, **settings: Any) -> dict[str, Any]:
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    return {"name": "served", **WAY, "base_url": url, **settings}


def test_a_served_way_is_asked_side_by_side_and_compared(server: Any) -> None:
    """The server says the question back; in process, the answer is about it."""

    def slowly(body: dict[str, Any]) -> Answer:
        time.sleep(0.2)
        return echo(body)

    server.script = slowly
    made = report(
        "fidelity_helpers:Planted",
        {"name": "in process"},
        served(server, concurrency=8),
        data="fidelity_helpers:numbers",
    )
    assert server.most_in_flight > 1
    one = figures(made)
    assert one["outcome.equal"] == 1
    assert one["text.equal"] == 0
    assert one["text.first_difference"] == 0
    assert "sk-secret" not in str(made.as_json())


def test_a_server_that_refuses_or_is_gone_is_a_loss_with_its_reason(server: Any) -> None:
    def refusing(body: dict[str, Any]) -> Answer:
        if "query 3" in str(body):
            return Answer(error("no such thing"), 400)
        return Answer(completion("fine"))

    server.script = refusing
    gone = {"name": "gone", **WAY, "base_url": "http://127.0.0.1:9/v1"}
    made = report(
        "fidelity_helpers:Planted",
        {"name": "in process"},
        served(server),
        gone,
        data="fidelity_helpers:numbers",
    )
    assert made.ways[1].lost == 1
    lost = next(pair.lost for pair in made.ways[1].pairs if pair.lost)
    assert lost.startswith("this way failed: ")
    assert "no such thing" in lost
    assert "EndpointError" in made.ways[2].answers.problem
    assert made.failed
