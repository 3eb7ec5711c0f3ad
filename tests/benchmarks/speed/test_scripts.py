"""The scripts measure what they say: the same answers, records and commands."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import ray
from paths import CHECKOUT
from typer.testing import CliRunner

from plait.benchmarks.speed import command, measurement
from plait.benchmarks.speed.scripts import (
    engine_cost,
    large_index,
    many_gpus,
    orchestration,
    score_service,
    series,
    small_jobs,
)
from plait.benchmarks.speed.scripts.common import CpuClock
from plait.benchmarks.speed.scripts.engine_cost import COMMITS, TABLES, Measurement, Work
from plait.benchmarks.speed.scripts.process_watch import Measured, Used, run_watched
from plait.benchmarks.tasks.task_set import load
from plait.cli import app
from plait.cluster.stage_queue import StageQueue
from plait.generators.document import Text
from plait.generators.errors import UsageError
from plait.pipelines.systems import Models

pytestmark = [pytest.mark.processes, pytest.mark.models]


def rows_of(path):
    return {row["variant"]: row for row in json.loads(path.read_text())["rows"]}


def test_other_files_are_refused_before_measuring():
    scripts = (engine_cost, large_index, many_gpus, orchestration, small_jobs)
    for script in (*scripts, score_service):
        with pytest.raises(UsageError, match=r"'x\.csv' must end in \.json or \.md"):
            script.main(["--out", "x.csv"])


def test_scores_over_http_are_those_of_the_loop(tmp_path, monkeypatch):
    monkeypatch.setattr(score_service, "CLIENTS", (1, 4))
    out = tmp_path / "service.json"
    words = ["--items", "24", "--rounds", "1", "--scorer", "instant", "--out", str(out)]
    score_service.main(words)
    rows = {row["how"]: row for row in json.loads(out.read_text())["rows"]}
    assert list(rows) == ["loop", "1 client", "4 clients", "1 client, 64 items a request"]
    assert rows["loop"]["items a batch"] == "-"
    for how, row in rows.items():
        assert float(row["items/s"].replace(",", "")) > 0
        assert float(row["p50 ms"]) > 0
        assert row["p99 ms"] == "-", "too few requests"
        assert how == "loop" or 1 <= float(row["items a batch"]) <= 8
    assert rows["1 client"]["items a batch"] == "1.0"


def test_other_values_than_those_of_the_loop_are_an_error():
    for values in ([1.0, 2.1], [1.0, None]):
        with pytest.raises(RuntimeError, match="item 1 has the value"):
            score_service._check("x", "4 clients", [1.0, 2.0], values)
    rounds = [score_service.Taken([1.0] * 4, seconds, [0.1]) for seconds in (4, 1, 2)]
    assert score_service.median_of(rounds).rate == 2
    many = score_service.Taken([1.0] * 200, 10.0, [i / 1000 for i in range(101)], 3.0)
    row = score_service.row_of("x", "4 clients", many, rounds[0])
    assert row[2:] == ["20", "20.00", "50.0", "99.0", "3.0"]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_address")
def test_all_methods_of_orchestration_write_the_same_records(tmp_path):
    import pyarrow.parquet as pq

    spec, samples = orchestration.spec_of(0), orchestration.samples_of(3)
    written = []
    for method, run in orchestration.METHODS.items():
        run(spec, samples, tmp_path / method)
        parts = (tmp_path / method).glob("stages/*/part-*.parquet")
        tables = [pq.read_table(p, columns=["key", "outcome", "text"]) for p in parts]
        written.append(sorted(map(str, (r for t in tables for r in t.to_pylist()))))
    assert len(written[0]) == 3 * orchestration.BATCH_SIZE
    assert all(rows == written[0] for rows in written)
    assert ray.is_initialized()


def test_a_measurement_counts_sleep_as_ideal():
    taken = orchestration.measure("loop", 10, 4)
    assert taken.ideal * 4 * orchestration.BATCH_SIZE / taken.rate == pytest.approx(0.04)
    assert 0 < taken.ideal <= 1


def test_the_clock_counts_this_process_and_its_children():
    burn = "import time\nwhile time.process_time() < 0.3: pass\ninput()"
    command, until = [sys.executable, "-c", burn], time.monotonic() + 60
    with (
        CpuClock(every_s=0.01) as clock,
        subprocess.Popen(command, stdin=subprocess.PIPE) as child,
    ):
        while clock.at(time.time()) < 0.2:
            assert time.monotonic() < until
            time.sleep(0.01)
        child.communicate(b"\n")
    assert 0.2 <= clock.at(time.time()) < 5.0


PARENT = """
import pathlib, subprocess, sys, time
burn = "import time\\nwhile time.process_time() < {}: pass\\n"
pathlib.Path("out/stages/a").mkdir(parents=True)
for name in ("stages/a/part-1", "stages/a/part-2", "part-3"):
    pathlib.Path(f"out/{name}.parquet").touch()
exec(burn.format(0.3))
subprocess.run([sys.executable, "-c", burn.format(1.0), "default_worker.py"])
print("said")
"""


def test_a_command_is_watched_by_role(tmp_path):
    command = [sys.executable, "-c", PARENT]
    measured, watch, said = run_watched(command, cwd=tmp_path, parts=tmp_path / "out")
    assert said == "said\n"
    assert 0.2 <= measured.total.cpu_s["driver"] < measured.total.cpu_s["worker"]
    assert measured.total.cpu_s["Ray"] == measured.total.cpu_s["other"] == 0
    assert (measured.files, measured.files_of_stage) == (3, 2)
    assert 1 < measured.driver_mib < measured.all_mib
    assert watch.used("driver", measured.began - 1) == 0
    assert watch.driver_mib(measured.began - 1) == 0 < watch.driver_mib(math.inf)
    with pytest.raises(RuntimeError, match="ended with 3"):
        run_watched([sys.executable, "-c", "exit(3)"], cwd=tmp_path, parts=tmp_path)


def measurement_of(variant, phase, number, seconds):
    cpu_s = {"driver": seconds, "worker": seconds, "Ray": 0.0, "other": 0.0}
    measured = Measured(Used(10 * seconds, cpu_s), 1.0, 2.0, 3, 2, 0.0, 0.0, 0.0, [])
    return Measurement(8, variant, phase, number, measured)


def test_the_engine_is_compared_round_by_round_with_the_pool_at_the_same_phase(tmp_path):
    seconds = {"plait": (4, 9, 4), "pool": (1, 3, 4)}
    taken = [
        measurement_of(variant, phase, number, times * value)
        for variant, values in seconds.items()
        for number, value in enumerate(values)
        for phase, times in (("run", 1), (COMMITS, 2))
    ]
    table = engine_cost.table_of(taken, Work(tmp_path, 1000, 2, 1, "ray"))
    head = [column.heading for column in table.columns]
    rows = [dict(zip(head, (c.text for c in row), strict=True)) for row in table.rows]
    assert [(row["variant"], row["phase"]) for row in rows] == [
        (variant, phase) for variant in seconds for phase in ("run", COMMITS)
    ]
    assert [row["x wall"] for row in rows] == ["3.00", "3.00", "1.00", "1.00"]
    assert rows[1]["driver ms/record"] == "2.000"  # 8 s, 4,000 records


@pytest.mark.ray
@pytest.mark.slow
def test_the_engine_and_the_pool_do_the_same_work(tmp_path):
    words = ["--queries", "9", "--systems", "2", "--scorers", "2", "--batches", "4"]
    out = tmp_path / "cost.json"
    words += ["--repeats", "1", "--folder", str(tmp_path), "--out", str(out)]
    assert engine_cost.main(words) == 0
    found = json.loads(out.read_text())
    phases = {(one["variant"], one["phase"]) for one in found["measurements"]}
    each = {"run", COMMITS, TABLES, "resume"}
    assert phases == {
        (variant, phase)
        for variant in engine_cost.VARIANTS
        for phase in each | ({"plan"} if variant == "plait" else set())
    }
    board = json.loads((tmp_path / "plait-4-0" / "leaderboard.json").read_text())
    assert [(row["done"], row["scored"]) for row in board] == [(9, 18)] * 2
    for variant in ("pool", "pool-2"):
        work, out = Work(tmp_path, 9, 2, 2, "ray"), tmp_path / f"{variant}-4-0"
        again = engine_cost.command_of(work, 4, variant, "resume", out)
        said = subprocess.run(again, cwd=tmp_path, capture_output=True, check=True).stdout
        assert json.loads(said)["answers"] == 18


def test_made_records_are_all_in_the_index(tmp_path):
    out = tmp_path / "index.json"
    for kind in ("score", "draft"):
        words = ["--records", "2500", "--part-rows", "1000", "--kind", kind]
        assert large_index.main([*words, "--out", str(out)]) == 0
        (found,) = json.loads(out.read_text())["measurements"]
        assert found["opened"]["records"] == 2500
        assert found["bytes"] > 25 * 2500
    keys = large_index.keys_of(3, 5)
    assert keys.validate(full=True) is None
    assert len(set(keys.to_pylist())) == 5
    assert {len(key) for key in keys.to_pylist()} == {large_index.KEY_DIGITS}


def answers(text="a cat", grey=7, score=0.5):
    image = np.full((4, 4, 3), grey, np.uint8)
    return {
        ("texts", "lvlm", "q"): text,
        ("images", "lvlm", "t2i", "q"): image,
        ("scores", "lvlm", "t2i", "q"): score,
    }


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (answers(grey=9, score=0.509), [1, 1, 1]),
        (answers(grey=250), [1, 0, 1]),
        (answers("a dog", 10, 0.52), [0, 0, 0]),
        ({}, [0, 0, 0]),
    ],
)
def test_answers_are_equal_within_the_tolerances_and_not_beyond(other, equal):
    for pair in ((answers(), other), (other, answers())):
        agreed = small_jobs.agreement(*pair)
        assert [agreed[kind] for kind in ("texts", "images", "scores")] == [
            (count, 1) for count in equal
        ]


def test_queries_beyond_the_sample_set_are_worded_anew(tmp_path):
    samples = load(str(small_jobs.write_queries(tmp_path / "q", 85))).samples
    texts = {"".join(p.text for p in s.question if isinstance(p, Text)) for s in samples}
    assert len({s.id for s in samples}) == len(texts) == len(samples) == 85


def test_ratios_are_taken_round_by_round_to_the_script():
    times = {"careful": [(10, 2), (20, 4), (30, 4)], "plait": [(4, 4), (12, 4), (9, 4)]}
    table = small_jobs.table_of(times, {"texts": (1, 2)}, 40)
    careful, plait = ([cell.text for cell in row] for row in table.rows)
    assert careful == ["40", "careful", "20.0", "10.0-30.0", "4.0", "1.00", "1.00", "-"]
    assert plait[2:] == ["9.0", "4.0-12.0", "4.0", "0.40", "1.00", "1 of 2 texts"]


SHORT = {
    "qwen2-vl-7b": {"max_new_tokens": 8},
    "llava-34b": {"max_new_tokens": 8},
    "openjourney": {"steps": 2},
}
"""Settings by model: LVLMs, then a T2I model."""


def in_process(command):
    """Run a command of the script here, without Ray."""
    if "--careful" in command:
        assert small_jobs.main(command[3:]) == 0
    else:
        short = [
            f"--set=models.{n}.{k}={v}" for n, s in SHORT.items() for k, v in s.items()
        ]
        done = CliRunner().invoke(app, [*command[3:], "--executor", "local", *short])
        assert done.exit_code == 0, done.output
    return 1.0, 1.0


@pytest.mark.models
def test_the_careful_script_and_a_run_answer_alike(tmp_path, monkeypatch):
    *lvlms, t2i = SHORT
    monkeypatch.setattr(small_jobs, "LVLMS", lvlms)
    monkeypatch.setattr(small_jobs, "T2I_MODELS", [t2i])
    monkeypatch.setattr(small_jobs, "TINY", Models(weights="tiny", overrides=SHORT))
    monkeypatch.setattr(small_jobs, "time_command", in_process)
    out = tmp_path / "small.json"
    assert small_jobs.main(["--queries", "2", "--rounds", "1", "--out", str(out)]) == 0
    equal = rows_of(out)["plait"]["equal"]
    assert equal == "4 of 4 texts, 4 of 4 images, 4 of 4 scores"


def test_many_gpus_are_simulated_and_every_record_is_made(tmp_path):
    outs = [str(tmp_path / name) for name in ("a.json", "a.md", "a.svg")]
    words = ["--gpus", "16", "--queries", "12", "--out", outs[0], "--out", outs[1]]
    assert many_gpus.main([*words, "--plot", outs[2]]) == 0
    rows = json.loads(Path(outs[0]).read_text())["rows"]
    assert [row["nodes"] for row in rows] == ["stay", "come and go"]
    # Of 12 queries 10 want images; 4 LVLMs with 4 T2I models, 4 natives. Without images,
    # four systems of one LVLM give the same answer, which is judged once. CLIP encodes each
    # image and each text.
    drafts, images, judged = 8 * 12, 16 * 10 + 3 * 12 + 10 + 10, 20 * 10 + 2 * (4 + 4)
    encoded = 20 * 10 + 8 * 10
    assert {row["records"].replace(",", "") for row in rows} == {
        str(drafts + images + encoded + 2 * judged)
    }
    assert all(float(row["makespan / ideal"]) > 1 for row in rows)
    assert "virtual" in Path(outs[1]).read_text()
    assert "<svg" in Path(outs[2]).read_text()


@pytest.mark.parametrize("times", [0, 2])
def test_records_that_are_lost_or_doubled_are_an_error(times, monkeypatch):
    once = StageQueue.count

    def count(queue, outcome):
        for _ in range(times):
            once(queue, outcome)

    monkeypatch.setattr(StageQueue, "count", count)
    words = ["--gpus", "8", "--queries", "3", "--nodes", "stay"]
    with pytest.raises(RuntimeError, match="lost, doubled or failed"):
        many_gpus.main(words)


def test_a_series_names_what_failed_and_goes_on(tmp_path, monkeypatch, capfd):
    jobs = {"broken": "-m no_such_module", "loadgen": "--scenario", "fine": "FINE"}
    asked: list[list[str]] = []

    def start(command, **options):
        asked.append(command)
        if "FINE" in command:
            (tmp_path / "fine.md").write_text(
                "# T\n\nwords\n\n| a |\n| --- |\n| 1 |\n\n| b |\n"
            )
        return subprocess.CompletedProcess(command, int("no_such_module" in command))

    monkeypatch.setattr(series, "CPU", jobs)
    monkeypatch.setattr(series.subprocess, "run", start)
    monkeypatch.setattr(series.importlib.util, "find_spec", lambda name: None)
    (tmp_path / "forecast.md").write_text("# forecast\n")
    assert series.main(["cpu", "--out", str(tmp_path)]) == 1
    assert "broken" in capfd.readouterr().err
    assert len(asked) == 2, "without LoadGen its measurement is left out"
    page = (tmp_path / "summary.md").read_text()
    assert "## [fine](fine.md)\n\nT\n\n| a |\n| --- |\n| 1 |\n" in page
    assert "| b |" not in page
    assert "[forecast](forecast.md)" in page
    asked.clear()
    jobs |= {"fine-1": "FINE", "fine-4": "FINE"}
    series.main(["cpu", "--only", "fine-*", "--only", "fine", "--out", str(tmp_path)])
    assert len(asked) == 3
    with pytest.raises(SystemExit):
        series.main(["gpu", "--only", "nowhere", "--out", str(tmp_path)])


def test_commands_of_pages_name_no_folder_of_this_machine(tmp_path, monkeypatch):
    asked: list[list[str]] = []

    def start(command, **options):
        asked.append(command)
        assert options["cwd"] == CHECKOUT
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(series.subprocess, "run", start)
    # A folder that is not there, since what stands in it goes before a measurement.
    series.run("clipscore", series.CPU["clipscore"], series.MEASURED / "none")
    series.run("clipscore", series.CPU["clipscore"], tmp_path)
    inside, outside = asked
    assert inside[-1] == "--out=benchmarks/speed/measured/none/clipscore.md"
    assert outside[-1] == f"--out={tmp_path / 'clipscore.md'}"


def test_the_page_of_a_gpu_has_a_row_for_every_figure_measured_or_not(tmp_path):
    measured = json.loads((series.MEASURED / "h100" / "sdxl.json").read_text())
    alone, two = measured["speeds"]
    beside = {**alone, "way": "upstream batch 1", "ratio": None}
    cached = {**two, "usage": {"images": 2, "steps": 100, "skipped_steps": 60}}
    del (
        cached["figures"]["energy_per_request"],
        cached["figures"]["model_flops_utilization"],
    )
    measured["speeds"] = [beside, {**alone, "ratio": 1.25}, cached]
    (tmp_path / "sdxl-1.json").write_text(json.dumps(measured))
    assert series.main(["gpu", "--page", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "anchor.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if "|" in line]
    own = [row[1:8] for row in rows if row[0] == "sdxl-1"]
    assert own[0][:3] == ["upstream batch 1", "3.561", "-"]
    assert own[1] == ["batch 1", "3.561", "1.25", "1630", "25.9%", "11.5", "-"]
    read = two["figures"]["memory_bandwidth_utilization"]["value"]
    memory = f"{two['peak_memory_gib']:.1f}"
    assert own[2][3:] == ["-", f"{read:.1%}", memory, "60.0%"]
    missing = {row[0] for row in rows if row[1] == series.NOT_MEASURED}
    assert missing == series.GPU.keys() - {"sdxl-1"}
    assert "NVIDIA H100" in page


def test_a_figure_that_fails_is_not_measured_any_more(tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(series.subprocess, "run", lambda *given, **named: failed)
    (tmp_path / "flux-1.json").write_text("{}")
    words = ["gpu", "--only", "flux-1", "--only", "clipscore", "--out", str(tmp_path)]
    assert series.main(words) == 1
    page = (tmp_path / "anchor.md").read_text()
    assert page.count(series.NOT_MEASURED) == len(series.GPU)


@pytest.mark.parametrize("words", [*series.CPU.values(), *series.GPU.values()])
def test_commands_of_a_series_are_valid(words, monkeypatch):
    """Options are read before anything is measured."""
    program, *arguments = words.split()
    if program == "-m" and arguments[0] != "plait":
        module = importlib.import_module(arguments[0])
        with pytest.raises(UsageError, match="must end in"):
            module.main([*arguments[1:], "--out", "x.csv"])
        return
    taken = Mock(side_effect=UsageError("asked"))
    monkeypatch.setattr(measurement, "take_measurement", taken)
    with pytest.raises(UsageError, match="asked"):
        command.main(arguments[3:])
    request, _ = taken.call_args.args
    assert (request.system is None) != (request.scorer is None)
