"""`make bench`: its commands are valid, and its pages are made from what they wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paths import CHECKOUT

from benchmarks.speed import measured
from benchmarks.speed.measured_pages import summary
from benchmarks.speed.orchestration_table import page_of

ABOUT = {
    "batches": 4,
    "batch_size": 8,
    "actors": 2,
    "repeats": 3,
    "hardware": {"cpus": 2, "gpus": []},
    "git": {"commit": "abc", "dirty": False},
    "python": "3.11.7",
    "packages": {"ray": "2.60.0"},
    "platform": "Linux",
}
ROW = {
    "method": "plait",
    "records_per_s": 120.5,
    "records_per_s_range": [100.0, 130.0],
    "ideal_over_wall": 0.934,
    "cpu_ms_per_record": 1.25,
    "startup_s": 2.5,
}


def test_orchestration_is_told_in_a_table() -> None:
    rows = [{**ROW, "sleep_ms": 0}, {**ROW, "sleep_ms": 50}]
    page = page_of({"about": ABOUT, "summary": rows})
    assert "plait bench orchestration --batches 4: a stage" in page
    assert "Linux, 2 CPUs, no GPU; commit abc, Python 3.11.7, ray 2.60.0." in page
    assert "| 0 ms | plait | 120 | 100-130 | - | 1.25 | 2.5 |" in page
    assert "| 50 ms | plait | 120 | 100-130 | 93.4% | 1.25 | 2.5 |" in page


def test_the_summary_repeats_the_first_table_of_other_pages(tmp_path: Path) -> None:
    page = "# Title\n\nWords.\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n\n| c |\n| --- |\n"
    (tmp_path / "pairings.md").write_text(page)
    written = summary(tmp_path, ["pairings", "absent"])
    shown = "## [pairings](pairings.md)\n\nTitle\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n"
    assert shown in written
    assert "| c |" not in written
    assert "absent" not in written
    assert "Measured apart" not in written


def test_the_summary_shows_costs_of_pairings_and_not_their_scores(tmp_path: Path) -> None:
    page = "# Pairings\n\n## truth:match\n\n| a |\n\n## Cost per document\n\n| s |\n| 1 |\n"
    (tmp_path / "pairings.md").write_text(page)
    written = summary(tmp_path, ["pairings"])
    assert "(pairings.md)\n\nCost per document\n\n| s |\n| 1 |\n" in written
    assert "truth:match" not in written


def test_the_summary_links_pages_of_other_commands(tmp_path: Path) -> None:
    for name in ("summary", "pairings", "forecast"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n")
    written = summary(tmp_path, ["pairings"])
    assert written.endswith("by commands that the pages name: [forecast](forecast.md).\n")


def test_the_summary_shows_what_each_measurement_wrote(tmp_path: Path) -> None:
    speeds = [
        {
            "way": "batch 1",
            "records": 4,
            "same_answers": 4,
            "figures": {
                "request_throughput": {"value": 2.0, "unit": "requests/s"},
                "time_to_first_token": {"mean": 9.0, "median": 8.0, "unit": "ms"},
            },
        },
        {
            "way": "batch 4",
            "records": 4,
            "ratio": 1.5,
            "same_answers": 3,
            "figures": {"request_throughput": {"value": 3.0, "unit": "-"}},
        },
    ]
    about = {"measured": "qwen2-vl (mini)", "device": "CPU, 2 threads"}
    content = json.dumps({"about": about, "speeds": speeds})
    (tmp_path / "qwen2-vl.json").write_text(content)
    (tmp_path / "qwen2-vl.md").write_text("# Qwen2-VL\n")
    page = summary(tmp_path, list(measured.JOBS))
    assert "## [qwen2-vl](qwen2-vl.md)" in page
    assert "qwen2-vl (mini); CPU, 2 threads" in page
    head = "| way | request_throughput (requests/s) | time_to_first_token (median, ms) |"
    assert f"{head} times batch 1 | same answers |" in page
    assert "| batch 1 | 2 | 8 | – | 4 of 4 |" in page
    assert "| batch 4 | 3 | – | 1.50 | 3 of 4 |" in page
    assert "clipscore" not in page


def test_a_missing_package_leaves_its_measurement_out(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    jobs = {"absent": measured.Measured(("stage", "no-such-model"), needs="no_such_module")}
    monkeypatch.setattr(measured, "JOBS", jobs)
    assert measured.main(["--out", str(tmp_path)]) == 0
    assert "absent is left out: no_such_module is not installed" in capsys.readouterr().out


@pytest.mark.models
@pytest.mark.slow
def test_what_fails_is_named_and_the_others_continue(
    tmp_path: Path, monkeypatch, capfd
) -> None:
    jobs = {
        "broken": measured.Measured(("stage", "nowhere")),
        "clipscore": measured.JOBS["clipscore"],
    }
    monkeypatch.setattr(measured, "JOBS", jobs)
    assert measured.main(["--out", str(tmp_path)]) == 1
    assert "with failures: broken" in capfd.readouterr().err
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["clipscore.json", "clipscore.md", "summary.md"]
    about = json.loads((tmp_path / "clipscore.json").read_text())["about"]
    assert about["git"].keys() == {"commit", "dirty"}
    assert about["packages"]["torch"]
    assert about["spec"]["weights"] == "mini"


def test_make_bench_runs_it() -> None:
    rule = (CHECKOUT / "Makefile").read_text().split("\nbench:")[1].split("\n\n")[0]
    assert "python -m benchmarks.speed.measured" in rule


def test_pages_name_no_folder_of_the_machine_they_were_made_on(
    tmp_path: Path, monkeypatch
) -> None:
    asked = []

    def start(command, **options):
        asked.append((command, options["cwd"]))
        return measured.subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(measured.subprocess, "run", start)
    measured.run("clipscore", measured.MEASURED)
    measured.run("clipscore", tmp_path)
    (inside, folder), (outside, _) = asked
    assert folder == measured.CHECKOUT
    assert inside[-1] == "benchmarks/results/measured/clipscore.md"
    assert not [word for word in inside[1:] if word.startswith("/")]
    assert outside[-1] == str(tmp_path / "clipscore.md")
