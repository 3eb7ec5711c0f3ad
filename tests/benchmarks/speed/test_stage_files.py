"""The files of a measurement, as a new user makes them."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from endpoint_helpers import Answer, completion, serving
from speed_helpers import surroundings

from benchmarks.speed.instruments.exchanges import STREAMED
from benchmarks.speed.instruments.speeds import Speed, Timings
from benchmarks.speed.reporting.figures import SERVER
from benchmarks.speed.reporting.formats import Measurement
from benchmarks.speed.reporting.output import Report
from benchmarks.speed.stage import command

COLUMNS = (
    "scenario,model_cls,num_params_B,flops_G,time_plain_s,mem_plain_GB,"
    "time_compile_s,mem_compile_GB,fullgraph,mode,github_sha"
)
ABOUT = {
    "git": {"commit": "abc123", "dirty": True},
    "packages": {"torch": "2.10"},
    "python": "3.11.7",
    "platform": "Linux",
    "device": "H100",
    "hardware": {"cpus": 16, "gpus": []},
    "inputs": 4,
    "rounds": 3,
    "timer": "CUDA events",
    "bandwidth": 2e12,
    "matrix_rates": {"bfloat16": 7e14},
    "weights": "dummy",
    "command": ["sdxl", "--part", "render"],
}


def measurement(**changes: object) -> Measurement:
    timings = Timings(requests=[1.0, 3.0], warm_up=1.0)
    one = Speed(
        way="batch 1",
        seconds=[2.0],
        records=4,
        peak_memory_gib=12.5,
        timings=timings,
        flops=6 * 10**12,
        parameters=2_600_000_000,
        largest_module="UNet2DConditionModel",
    )
    four = Speed("batch <4>", [1.0], 4, timings=Timings(requests=[0.5]))
    around = surroundings(**changes)
    return Measurement("sdxl-dummy", "sdxl", Report([one, four], 1e9, around), ABOUT)


def test_the_csv_has_diffusers_columns() -> None:
    text = measurement().csv()
    assert text.splitlines()[0] == COLUMNS
    first, second = csv.DictReader(text.splitlines())
    assert first == {
        "scenario": "sdxl, batch 1",
        "model_cls": "UNet2DConditionModel",
        "num_params_B": "2.6",
        "flops_G": "6000",
        "time_plain_s": "2",
        "mem_plain_GB": "12.5",
        "time_compile_s": "",
        "mem_compile_GB": "",
        "fullgraph": "",
        "mode": "",
        "github_sha": "abc123",
    }
    assert (second["flops_G"], second["num_params_B"]) == ("", ""), "absent, not 0"
    compiled, _ = csv.DictReader(measurement(compiled=True).csv().splitlines())
    assert (compiled["time_plain_s"], compiled["time_compile_s"]) == ("", "2")
    assert (compiled["mem_plain_GB"], compiled["mem_compile_GB"]) == ("", "12.5")
    assert (compiled["fullgraph"], compiled["mode"]) == ("False", "default")


def test_memory_of_a_cpu_is_named_and_not_in_the_column_of_cuda() -> None:
    made = measurement(memory_kind="resident set of the process (RSS)")
    first, _ = csv.DictReader(made.csv().splitlines())
    assert first["mem_plain_GB"] == ""
    assert "| peak_memory | GiB, resident set of the process (RSS) | 12.5 |" in (
        made.markdown()
    )


def test_the_page_says_how_the_figures_were_taken() -> None:
    page = measurement().markdown()
    assert "`plait bench stage sdxl --part render`" in page
    assert "3 timed rounds after 1 that warms up, ways interleaved" in page
    assert "timed by CUDA events" in page
    assert "commit abc123 with changes, Python 3.11.7, torch 2.10" in page
    assert "the weights are random (dummy)" in page
    assert "| request_latency median | ms | 2000 | 500 |" in page
    assert "* image_throughput: no picture was drawn" in page
    assert "| image_throughput" not in page


def test_the_plot_is_svg_and_escapes_names() -> None:
    root = ElementTree.fromstring(measurement().svg())
    texts = [element.text for element in root.iter() if element.text]
    assert "batch <4>" in texts
    bars = [e for e in root.iter() if e.get("class") == "bar"]
    assert len(bars) == 4
    slow, fast = (float(bar.get("width", 0)) for bar in bars[2:])
    assert slow / fast == pytest.approx(4, rel=0.01)


@pytest.mark.models
def test_a_folder_gets_all_forms_and_a_file_its_own(tmp_path: Path, capsys) -> None:
    words = ["anole", "--part", "render", "--weights", "tiny", "--batches", "2"]
    words += ["--queries", "2", "--rounds", "1", "--price-per-hour", "3"]
    outs = ["--out", str(tmp_path / "all"), "--out", str(tmp_path / "one.md")]
    assert command.main([*words, *outs]) == 0
    names = sorted(path.name for path in (tmp_path / "all").iterdir())
    assert names == [f"anole-render-tiny.{end}" for end in ("csv", "json", "md", "svg")]
    page = (tmp_path / "one.md").read_text()
    assert page == (tmp_path / "all" / "anole-render-tiny.md").read_text()
    written = json.loads((tmp_path / "all" / "anole-render-tiny.json").read_text())
    (speed,) = written["speeds"]
    figures, absent = speed["figures"], speed["absent"]
    assert figures["image_throughput"]["unit"] == "images/s"
    count = len(figures) and figures["request_latency"]["n"]
    assert figures["request_throughput"]["value"] == pytest.approx(
        count / speed["seconds"][0]
    )
    assert figures["model_flops"]["value"] > 0
    assert figures["model_flops_utilization"]["value"] > 0
    assert figures["cost_per_1000_images"]["value"] == pytest.approx(
        3 / 3600 * speed["seconds"][0] / count * 1000
    )
    assert absent["denoise_step_latency"] == "no diffusion pipeline ran"
    assert not figures.keys() & absent.keys()
    printed = capsys.readouterr().out
    assert "request_latency p99" in printed
    assert "not measured: time_to_first_token: the stage writes no text" in printed


@pytest.mark.models
@pytest.mark.parametrize("name", ["anole", "qwen2-vl-7b"])
def test_text_stages_have_token_times(name: str, tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    words = [name, "--weights", "tiny", "--batches", "1,2", "--queries", "2"]
    words += ["--rounds", "1", "--no-upstream", "--out", str(out)]
    assert command.main(words) == 0
    for speed in json.loads(out.read_text())["speeds"]:
        figures, usage = speed["figures"], speed["usage"]
        first, between = (
            figures[n] for n in ("time_to_first_token", "inter_token_latency")
        )
        assert first["n"] == 2, "one per request"
        if name != "anole":  # whose closing token of a picture is not counted as written
            assert first["n"] + between["n"] == usage["output_tokens"]
        assert 0 < first["mean"] < figures["request_latency"]["mean"]
        spent = first["mean"] + between["mean"] * between["n"] / 2
        assert spent < 1000 * sum(speed["seconds"])


def test_a_server_is_timed_by_request_and_hides_its_device(tmp_path: Path, capsys) -> None:
    out = tmp_path / "server.json"
    with serving() as server:
        hold = 0.05
        server.script = lambda body: Answer(completion("a square"), hold_s=hold)
        words = ["openai:parrot", "--batches", "1,4", "--queries", "4", "--rounds", "2"]
        words += ["--set", f"base_url={server.url}", "--out", str(out)]
        assert command.main(words) == 0
    one, four = json.loads(out.read_text())["speeds"]
    for speed in (one, four):
        figures, absent = speed["figures"], speed["absent"]
        assert figures["request_latency"]["n"] == 8
        assert figures["request_latency"]["min"] >= hold * 1000
        assert figures["output_token_throughput"]["value"] > 0
        assert absent["time_to_first_token"] == STREAMED
        assert absent["peak_memory"] == absent["model_flops"] == SERVER
        assert absent["load_time"] == SERVER
        assert speed["peak_memory_gib"] is None
        assert speed["fraction_of_bandwidth"] is None
    assert sum(one["seconds"]) > 2 * 4 * hold
    about = json.loads(out.read_text())["about"]
    assert "server" in about["measured"]
    assert about["weights"] is None
    shown = capsys.readouterr().out
    assert "on a server, asked from" in shown
    # The default kind of weights is of models that this process loads.
    assert "random" not in shown
    assert "GB/s" not in shown


def test_one_name_is_needed() -> None:
    assert command.main(["anole", "--scorer", "clipscore"]) == 2
    assert command.main([]) == 2
