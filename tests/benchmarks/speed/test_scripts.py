"""The scripts measure what they say: the same answers, records and commands."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import ray
from endpoint_helpers import Answer, completion, serving
from paths import CHECKOUT

from benchmarks.speed import command, measurement
from benchmarks.speed.scripts import decoding, orchestration, series, small_jobs
from benchmarks.speed.scripts.common import CpuClock
from benchmarks.tasks.task_set import load
from generators.document import Text
from generators.errors import UsageError

SMALL = ("--requests", "3", "--tokens", "4", "--rounds", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script's own model, smaller."""
    folder = tmp_path_factory.mktemp("model")
    with pytest.MonkeyPatch.context() as patch:
        text = {**decoding.TEXT_SIZE, "intermediate_size": 64, "num_hidden_layers": 1}
        patch.setattr(decoding, "TEXT_SIZE", text)
        patch.setattr(decoding, "VISION_SIZE", {**decoding.VISION_SIZE, "depth": 1})
        decoding.save_model(folder)
    return folder


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    return {row["variant"]: row for row in json.loads(path.read_text())["rows"]}


@pytest.mark.models
def test_all_ways_of_decoding_answer_alike(model: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "decoding.json", tmp_path / "decoding.md"
    words = [*SMALL, "--rounds", "2", "--model", str(model)]
    assert decoding.main([*words, "--out", str(out), "--out", str(page)]) == 0
    rows = rows_of(out)
    assert list(rows) == ["generate, batch 3", "streams, batch 3"]
    assert {(row["same"], row["failed"]) for row in rows.values()} == {("6/6", "0")}
    assert "python -m benchmarks.speed.scripts.decoding --requests 3" in page.read_text()


@pytest.mark.models
def test_a_server_is_asked_the_same_requests(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "decoding.json"
    with serving() as server:
        server.script = lambda body: Answer(completion("something else"), hold_s=0.1)
        words = ["--model", str(model), "--base-url", server.url, "--out", str(out)]
        assert decoding.main([*SMALL, *words]) == 0
        assert server.most_in_flight > 1
    assert len(server.bodies) == 3 + 3, "to warm up, and in the round"
    assert all(body["temperature"] == 0 for body in server.bodies)
    assert all(body["max_tokens"] == 4 for body in server.bodies)
    content = server.bodies[-1]["messages"][-1]["content"]
    assert [part for part in content if part["type"] != "text"], "images"
    rows = rows_of(out)
    assert (rows["server"]["same"], rows["server"]["x server"]) == ("0/3", "1.00")
    assert rows["streams, batch 3"]["x server"] != "-"


def test_rates_and_ratios_are_medians_and_failures_equal_nothing() -> None:
    rounds = [
        [(8.0, ["a", None]), (8.0, ["a", None])],
        [(4.0, ["a", "b"]), (8.0, ["x", None])],
        [(2.0, ["a", "b"]), (8.0, ["a", "b"])],
    ]
    table = decoding.table_of(["server", "streams"], rounds, "title")
    first, second = ([cell.text for cell in row] for row in table.rows)
    assert first == ["server", "4", "2", "8", "1.00", "1.00", "5/6", "1"]
    assert second == ["streams", "8", "8", "8", "2.00", "2.00", "3/6", "2"]


def test_requests_are_those_of_their_seed() -> None:
    one, again, other = (decoding.requests_of(4, seed) for seed in (1, 1, 2))
    assert one == again
    digests = [{i.digest for r in requests for i in r.images} for requests in (one, other)]
    assert len(digests[0]) == 4
    assert not digests[0] & digests[1], "nothing is remembered from an earlier round"
    assert [len(r.images) for r in one] == [2, 1, 1, 2]


def test_only_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    empty = tmp_path / "typo"
    for words in (
        ["--model", str(tmp_path)],
        ["--model", str(empty), "--base-url", "http://127.0.0.1:1/v1"],
    ):
        with pytest.raises(UsageError, match=r"no config\.json"):
            decoding.main(words)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_other_files_are_refused_before_measuring() -> None:
    for script in (decoding, orchestration, small_jobs):
        with pytest.raises(UsageError, match=r"'x\.csv' must end in \.json or \.md"):
            script.main(["--out", "x.csv"])


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_address")
def test_all_methods_of_orchestration_write_the_same_records(tmp_path: Path) -> None:
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


def test_a_measurement_counts_sleep_as_ideal() -> None:
    taken = orchestration.measure("loop", 10, 4)
    assert taken.ideal * 4 * orchestration.BATCH_SIZE / taken.rate == pytest.approx(0.04)
    assert 0 < taken.ideal <= 1


def test_the_clock_counts_this_process_and_its_children() -> None:
    with CpuClock(every_s=0.01) as clock:
        began = time.time()
        burn = "import time\nwhile time.process_time() < 0.3: pass"
        subprocess.run([sys.executable, "-c", burn], check=True)
        ended = time.time()
    assert 0.2 < clock.at(ended) - clock.at(began) < 5.0


def answers(text: str = "a cat", grey: int = 7, score: float = 0.5) -> small_jobs.Answers:
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
def test_answers_are_equal_within_the_tolerances_and_not_beyond(other, equal) -> None:
    for pair in ((answers(), other), (other, answers())):
        agreed = small_jobs.agreement(*pair)
        assert [agreed[kind] for kind in ("texts", "images", "scores")] == [
            (count, 1) for count in equal
        ]


def test_queries_beyond_the_sample_set_are_worded_anew(tmp_path: Path) -> None:
    samples = load(str(small_jobs.write_queries(tmp_path / "q", 85))).samples
    texts = {"".join(p.text for p in s.question if isinstance(p, Text)) for s in samples}
    assert len({s.id for s in samples}) == len(texts) == len(samples) == 85


def test_ratios_are_taken_round_by_round_to_the_script() -> None:
    times = {"careful": [(10, 2), (20, 4), (30, 4)], "plait": [(4, 4), (12, 4), (9, 4)]}
    table = small_jobs.table_of(times, {"texts": (1, 2)}, 40)
    careful, plait = ([cell.text for cell in row] for row in table.rows)
    assert careful == ["40", "careful", "20.0", "10.0-30.0", "4.0", "1.00", "1.00", "-"]
    assert plait[2:] == ["9.0", "4.0-12.0", "4.0", "0.40", "1.00", "1 of 2 texts"]


@pytest.mark.slow
def test_the_careful_script_and_a_run_answer_alike(tmp_path: Path) -> None:
    out = tmp_path / "small.json"
    assert small_jobs.main(["--queries", "2", "--rounds", "1", "--out", str(out)]) == 0
    equal = rows_of(out)["plait"]["equal"]
    pairs = len(small_jobs.LVLMS) * len(small_jobs.T2I_MODELS) * 2
    assert equal == f"8 of 8 texts, {pairs} of {pairs} images, {pairs} of {pairs} scores"


def test_a_series_names_what_failed_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = {"broken": "-m no_such_module", "loadgen": "--scenario", "fine": "FINE"}
    asked: list[list[str]] = []

    def start(command: list[str], **options: object) -> subprocess.CompletedProcess:
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
    with pytest.raises(SystemExit):
        series.main(["gpu", "--only", "nowhere", "--out", str(tmp_path)])


def test_commands_of_pages_name_no_folder_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def start(command: list[str], **options: object) -> subprocess.CompletedProcess:
        asked.append(command)
        assert options["cwd"] == CHECKOUT
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(series.subprocess, "run", start)
    series.run("clipscore", series.CPU["clipscore"], series.MEASURED)
    series.run("clipscore", series.CPU["clipscore"], tmp_path)
    inside, outside = asked
    assert inside[-1] == "--out=benchmarks/results/measured/clipscore.md"
    assert outside[-1] == f"--out={tmp_path / 'clipscore.md'}"


@pytest.mark.parametrize("words", [*series.CPU.values(), *series.GPU.values()])
def test_commands_of_a_series_are_valid(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options are read before anything is measured."""
    program, *arguments = words.split()
    if program == "-m":
        module = importlib.import_module(arguments[0])
        with pytest.raises(UsageError, match="must end in"):
            module.main([*arguments[1:], "--out", "x.csv"])
        return
    taken = Mock(side_effect=UsageError("asked"))
    monkeypatch.setattr(measurement, "taken", taken)
    with pytest.raises(UsageError, match="asked"):
        command.main(arguments[2:])
    request, _ = taken.call_args.args
    assert (request.system is None) != (request.scorer is None)


def test_make_bench_runs_the_series() -> None:
    rule = (CHECKOUT / "Makefile").read_text().split("\nbench:")[1].split("\n\n")[0]
    assert "python -m benchmarks.speed.scripts.series cpu" in rule
