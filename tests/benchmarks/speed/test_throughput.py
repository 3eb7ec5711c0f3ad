"""The throughput program measures what it says; no test asserts a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from paths import CHECKOUT
from safetensors.numpy import save

from benchmarks.speed import suite
from benchmarks.speed.instruments.device import weight_traffic
from benchmarks.speed.reporting.output import Report
from benchmarks.speed.stage import command as throughput
from benchmarks.speed.stage.measure import Speed, loaded_stage, measure, ways_of
from benchmarks.speed.stage.workload import of_scorer, of_system, whole
from generators.base import Failure, Result
from generators.document import Draft, ImageRequest, Payload, Score, Text
from generators.errors import UsageError
from generators.pictures import Drawing
from pipelines.systems import Models

ROOT = CHECKOUT
TINY = Models(weights="tiny")


def test_every_way_computes_the_whole_workload_every_round() -> None:
    batches: list[list[int]] = []

    def stage(inputs):
        batches.append(list(inputs))
        return [Failure("no") if i == 4 else Result(i, {"tokens": i}) for i in inputs]

    spec = of_system("anole", "draft", TINY, 1).spec
    ways = ways_of(spec, stage, [2, 5], upstream=False)
    speeds = measure(ways, [0, 1, 2, 3, 4], rounds=2)
    # One round to warm up, two timed, one to count the weights; for both ways.
    assert batches.count([0, 1]) == batches.count([2, 3]) == batches.count([4]) == 4
    assert batches.count([0, 1, 2, 3, 4]) == 4
    assert [s.way for s in speeds] == ["batch 2", "batch 5"]
    for speed in speeds:
        assert len(speed.seconds) == 2
        assert speed.records == 4
        assert speed.usage == {"tokens": 6}
        assert speed.failures == {"no": 1}
        assert speed.answers == [0, 1, 2, 3, None]


def test_what_does_not_fit_is_left_out_and_other_errors_are_not(capsys) -> None:
    def full(inputs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried ...")

    def fine(inputs):
        return [Result(1)]

    assert [s.way for s in measure({"big": full, "small": fine}, [0], 1)] == ["small"]
    assert "big does not fit: CUDA out of memory" in capsys.readouterr().err

    def broken(inputs):
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        measure({"broken": broken}, [0], 1)


def test_rates_ratios_and_fractions_by_hand() -> None:
    two_images = {"images": 2}
    first = Speed("upstream", [4.0, 2.0, 9.0], 8, two_images, 0.5, 600, answers=["a", "b"])
    second = Speed("batch 2", [1.0], 8, two_images, 0.5, 300, answers=["a", "x"])
    report = Report([first, second], bandwidth=1200.0)
    assert (report.ratio(first), report.ratio(second)) == (None, 4.0)
    assert report.fraction(first) == pytest.approx(600 / 1200 / 4)
    assert report.agreement(second) == 1
    head, one, two = (line.split() for line in report.table().splitlines())
    assert "images/min" in head
    assert one[:4] == ["upstream", "4.000", "2.00", "30.0"]
    assert two[0:5] == ["batch", "2", "1.000", "8.00", "120.0"]


def test_answers_are_compared_to_float_tolerance() -> None:
    def draft(value: float, text: str = "a") -> Draft:
        states = save({"states": np.full((2, 3), value, dtype=np.float32)})
        return Draft((Text(text), ImageRequest(payload=Payload.of(states))))

    def agreement(one: object, other: object) -> int:
        speeds = [Speed(w, [1.0], 1, answers=[a]) for w, a in (("a", one), ("b", other))]
        return Report(speeds, 1.0).agreement(speeds[1])

    assert agreement(draft(1.0), draft(1.00001)) == 1
    assert agreement(draft(1.0), draft(1.01)) == 0
    assert agreement(draft(1.0), draft(1.0, "b")) == 0
    assert agreement(draft(1.0), Draft(draft(1.0).segments[:1])) == 0
    grey = np.full((2, 2, 3), 7, dtype=np.uint8)
    assert agreement(Drawing(grey), Drawing(grey - 1)) == 1
    assert agreement(Drawing(grey), Drawing(grey - 2)) == 0
    assert agreement(Score(0.5), Score(0.50001)) == 1
    assert agreement(Score(0.5), Score(0.51)) == 0


def test_weights_are_counted_as_often_as_they_are_read() -> None:
    inner, embedding = torch.nn.Linear(4, 6), torch.nn.Embedding(100, 4)
    with weight_traffic() as traffic:
        for _ in range(3):
            inner(embedding(torch.tensor([1])))
    assert traffic.bytes == 3 * (4 * 6 + 6) * 4
    inner(torch.zeros(1, 4))
    assert traffic.bytes == 3 * (4 * 6 + 6) * 4, "the count has ended"


@pytest.mark.models
def test_a_stage_is_measured_at_every_batch_size(tmp_path: Path, capsys) -> None:
    out = tmp_path / "speeds.json"
    words = ["--system", "sdxl-turbo", "--weights", "tiny", "--batches", "1,3"]
    more = ["--queries", "3", "--rounds", "1", "--out", str(out)]
    assert throughput.main([*words, *more]) == 0
    written = json.loads(out.read_text())
    assert [s["way"] for s in written["speeds"]] == ["batch 1", "batch 3"]
    for speed in written["speeds"]:
        assert speed["usage"]["images"] == speed["records"] == 3
        assert speed["failures"] == {}
        assert speed["weight_bytes"] > 0
        assert speed["seconds_per_input"] == pytest.approx(speed["seconds"][0] / 3)
    assert [s["batch_size"] for s in written["speeds"]] == [1, 3]
    spec = of_system("sdxl-turbo", "render", TINY, 1).spec
    assert written["about"]["spec"] == {
        "name": spec.name,
        "kind": "render",
        "identity": "stabilityai/sdxl-turbo",
        "weights": "tiny",
        "settings": dict(spec.settings),
    }
    assert written["about"]["command"] == [*words, *more]
    assert "sdxl-turbo (stabilityai/sdxl-turbo, tiny)" in capsys.readouterr().out


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "part"),
    [("anole", "draft"), ("gill", "draft"), ("minigpt5", "draft"), ("emu2", "condition")],
)
def test_upstream_loops_say_the_same_as_the_batched_stage(name: str, part: str) -> None:
    """In float32, from the same random numbers: equal text and equal payloads."""
    workload = of_system(name, part, TINY, 5)
    stage = loaded_stage(workload.spec, [5])
    speeds = measure(ways_of(workload.spec, stage, [5], True), workload.inputs, 1)
    assert [s.way for s in speeds] == ["upstream", "batch 5"]
    assert sum(s.usage["output_tokens"] for s in speeds) > 0
    assert Report(speeds, 1.0).agreement(speeds[1]) == 5


@pytest.mark.models
def test_a_later_stage_is_measured_on_what_the_earlier_ones_give() -> None:
    workload = of_system("anole", "render", TINY, 4)
    assert workload.spec.name == "anole-render"
    assert len(workload.inputs) >= 2
    assert all(i.payload is not None and i.payload.data for i in workload.inputs)


@pytest.mark.models
def test_whole_systems_are_measured_stage_by_stage(tmp_path: Path) -> None:
    """Documents are those of the walk; usage is that of all stages together."""
    system, samples = whole("anole", TINY, 4)
    together, apart = system(samples), [system([s])[0] for s in samples]
    assert [o.value.text for o in together] == [o.value.text for o in apart]
    for outcome in together:
        assert outcome.usage["images"] == len(outcome.value.images)
        assert outcome.usage["output_tokens"] > 0
    assert any(o.value.images for o in together)


def test_scorers_are_measured_on_the_ground_truth() -> None:
    workload = of_scorer("clipscore", "tiny", {}, 3)
    assert len(workload.inputs) == 3
    assert all(i.document.images[0].data for i in workload.inputs)


def test_wrong_use_is_named() -> None:
    with pytest.raises(UsageError, match=r"part of system 'anole' 'condition'.*draft, ren"):
        of_system("anole", "condition", TINY, 1)
    compiled = Models(weights="tiny", overrides={"sdxl-turbo": {"compile": True}})
    spec = of_system("sdxl-turbo", "render", compiled, 1).spec
    with pytest.raises(UsageError, match="compiled stage has one batch size"):
        loaded_stage(spec, [1, 2])


@pytest.mark.models
@pytest.mark.slow
def test_it_runs_where_ray_and_arrow_are_not_installed() -> None:
    code = (
        "import sys; sys.modules['ray'] = sys.modules['pyarrow'] = None\n"
        "from benchmarks.speed.stage.command import main\n"
        "sys.exit(main('--system anole --weights tiny --batches 1 --queries 1 "
        "--rounds 1 --no-upstream'.split()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "batch 1" in done.stdout


@pytest.mark.models
@pytest.mark.slow
def test_the_suite_names_what_failed_and_goes_on(
    tmp_path: Path, capfd, monkeypatch
) -> None:
    broken = ("--system", "nowhere")
    monkeypatch.setattr(
        suite,
        "MEASUREMENTS",
        {"broken": broken, "clipscore": suite.MEASUREMENTS["clipscore"]},
    )
    assert suite.main(["--weights", "tiny", "--out", str(tmp_path / "results")]) == 1
    assert "with failures: broken" in capfd.readouterr().err
    assert [p.name for p in (tmp_path / "results").iterdir()] == ["clipscore.json"]


@pytest.mark.models
@pytest.mark.parametrize("name", ["judge:mmie-score", "judge:qwen2-vl-7b"])
def test_judges_are_measured_on_the_ground_truth(name: str) -> None:
    workload = of_scorer(name, "tiny", {}, 2)
    assert len(workload.inputs) == 2
    assert all(request.images[0].data for request in workload.inputs)
    several = of_scorer(name, "tiny", {}, 2, answers=3).inputs
    assert len({str(request) for request in several}) == 6
    assert several[0] == workload.inputs[0]
    assert several[3] == workload.inputs[1], "query by query"
