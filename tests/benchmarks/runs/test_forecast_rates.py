"""Rates from records, from bench files and from published figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from forecast_helpers import TWO_CPUS, forecast_of, measured, stage, write_manifest, writing
from scipy import stats

from benchmarks.runs.forecast.machine import Machine, described, same_gpu
from benchmarks.runs.forecast.published import PUBLISHED, published_rates
from benchmarks.runs.forecast.rates import MeasuredBatch, Origin, predicted
from benchmarks.runs.forecast.sources import Sources
from benchmarks.runs.forecast.table import forecast_notes
from generators.base import Placement
from generators.errors import UsageError
from pipelines.presets import T2IS

WRITE = stage("write", batch_size=4)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder of which no other test's runs are beside."""
    (tmp_path / "runs" / "one").mkdir(parents=True)
    return tmp_path / "runs" / "one"


TIMES = {"seconds": 30.0, "scheduling_seconds": 26.0, "load_seconds": {}}


def sources(root: Path, machine: Machine = TWO_CPUS, *files: Path) -> Sources:
    return Sources.at(root, machine, files=files)


def test_the_range_narrows_with_more_batches_and_stays_among_them() -> None:
    few = [MeasuredBatch(4, 4.0), MeasuredBatch(4, 8.0)]
    span = predicted(few, 1)
    assert (span.mean, span.low, span.high) == (1.5, 1.0, 2.0)
    many = predicted(few * 50, 100)
    assert many.mean == 1.5
    assert 1.3 < many.low < 1.5 < many.high < 1.7
    assert predicted([], 1) is None
    alone = predicted([MeasuredBatch(2, 3.0)], 5)
    assert (alone.low, alone.mean, alone.high) == (1.5, 1.5, 1.5)


def test_the_range_of_few_batches_is_by_students_t() -> None:
    batches = [MeasuredBatch(1, s) for s in (1.0, 3.0, 3.0, 3.0, 5.0)]
    span = predicted(batches, 10**9)
    half = stats.t.ppf(0.95, 4) * 2**0.5 / 5**0.5
    assert (span.low, span.high) == pytest.approx((3 - half, 3 + half), rel=2e-3)
    other = predicted(batches, 5)
    assert other.high - 3 == pytest.approx(min(2.0, half * 2**0.5), rel=2e-3)


def test_rates_are_read_from_the_run_itself(tmp_path: Path) -> None:
    timing = TIMES | {"load_seconds": {WRITE.folder: [5.0, 7.0]}}
    usage = {"input_tokens": 10, "output_tokens": 3}
    store = measured(tmp_path, WRITE, [(4, 2.0), (4, 6.0)], usage, timing=timing)
    rates = sources(tmp_path).rates(WRITE, 100)
    assert rates.origin is Origin.OWN
    assert (rates.seconds.mean, rates.load_s.mean) == (1.0, 6.0)
    assert (rates.load_s.low, rates.load_s.high) == (5.0, 7.0)
    assert (rates.usage.input_tokens, rates.usage.output_tokens) == (10, 3)
    size = sum(part.stat().st_size for part in store.parts(WRITE))
    assert rates.usage.disk_bytes == pytest.approx(size / 8)
    assert sources(tmp_path).overhead_s.mean == 4.0


def test_a_slow_first_batch_counts_as_loading(tmp_path: Path) -> None:
    timing = TIMES | {"load_seconds": {WRITE.folder: [5.0]}}
    measured(tmp_path, WRITE, [(4, 40.0), (4, 4.0), (4, 4.0)], timing=timing)
    rates = sources(tmp_path).rates(WRITE, 100)
    assert rates.seconds.mean == pytest.approx(1.0)
    assert rates.load_s.mean == pytest.approx(41.0)


def test_failures_are_no_rates(tmp_path: Path) -> None:
    from cluster.records import Item, encode
    from generators.base import Failure
    from generators.document import Request

    store = measured(tmp_path, WRITE, [(4, 4.0)], {"input_tokens": 10})
    failed = [Item("f", "query f", Request(()))]
    store.commit(WRITE, encode(WRITE.kind, failed, [Failure("no")], 0.0))
    rates = sources(tmp_path).rates(WRITE, 4)
    assert rates.seconds.mean == 1.0
    assert rates.usage.input_tokens == 10
    # Each of the five takes its share of the disk.
    size = sum(part.stat().st_size for part in store.parts(WRITE))
    assert rates.usage.disk_bytes == pytest.approx(size / 5)


def test_rates_are_read_from_runs_beside_on_the_same_hardware(tmp_path: Path) -> None:
    measured(tmp_path / "a", WRITE, [(4, 4.0)])
    measured(tmp_path / "b", WRITE, [(4, 400.0)], hardware={"cpus": 64, "gpus": []})
    rates = sources(tmp_path / "new").rates(WRITE, 4)
    assert (rates.origin, rates.seconds.mean) == (Origin.BESIDE, 1.0)
    assert "4 records of a" in rates.detail


def test_other_hardware_tells_tokens_but_no_time(tmp_path: Path) -> None:
    hardware = {"cpus": 8, "gpus": ["NVIDIA A100-SXM4-80GB, 550"]}
    measured(tmp_path / "a", WRITE, [(4, 4.0)], {"input_tokens": 5}, hardware=hardware)
    rates = sources(tmp_path / "new").rates(WRITE, 4)
    assert rates.seconds is None
    assert rates.usage.input_tokens == 5
    assert rates.elsewhere == "measured on 1 x NVIDIA A100-SXM4-80GB, 8 CPUs"


def test_an_earlier_version_of_the_same_stage_tells_its_rates(tmp_path: Path) -> None:
    measured(tmp_path / "a", replace(WRITE, version=7), [(4, 4.0)])
    assert sources(tmp_path / "new").rates(WRITE, 4).seconds.mean == 1.0
    other = replace(WRITE, settings={"style": "long"})
    assert sources(tmp_path / "new").rates(other, 4).seconds is None


def test_a_run_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    measured(tmp_path / "a", WRITE, [(4, 4.0)])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    write_manifest(tmp_path / "gone", [WRITE])
    folder = tmp_path / "damaged" / "stages" / WRITE.folder
    write_manifest(tmp_path / "damaged", [WRITE])
    folder.mkdir(parents=True)
    (folder / "part-x.parquet").write_bytes(b"not Parquet")
    assert sources(tmp_path / "new").rates(WRITE, 4).seconds.mean == 1.0


# ---------------------------------------------------------------------- bench stage


def bench_file(path: Path, **about: object) -> Path:
    spec = {"name": "write", "kind": "draft", "identity": "", "weights": None}
    content = {
        "about": {"device": "CPU, 1 threads", "hardware": {"cpus": 2}}
        | {"spec": spec | {"settings": {}}}
        | about,
        "speeds": [
            {"way": "upstream", "seconds": [99.0], "records": 8, "usage": {}},
            {"way": "batch 1", "seconds": [16.0, 16.0], "records": 8, "usage": {}}
            | {"figures": {"load_time": {"value": 2.5, "unit": "s"}}},
            {"way": "batch 4", "seconds": [4.0, 12.0], "records": 8}
            | {"usage": {"output_tokens": 24}},
        ],
    }
    path.write_text(json.dumps(content))
    return path


def test_a_bench_file_tells_the_rate_at_the_nearest_batch_size(tmp_path: Path) -> None:
    file = bench_file(tmp_path / "bench.json")
    rates = sources(tmp_path / "new", TWO_CPUS, file).rates(WRITE, 8)
    assert (rates.origin, rates.seconds.mean) == (Origin.BENCH, 1.0)
    assert (rates.seconds.low, rates.seconds.high) == (0.5, 1.5)
    assert rates.usage.output_tokens == 3
    assert rates.load_s.mean == 2.5
    assert "batch 4" in rates.detail


def test_a_bench_file_of_another_device_is_not_used(tmp_path: Path) -> None:
    file = bench_file(tmp_path / "bench.json", device="NVIDIA H100 80GB HBM3")
    rates = sources(tmp_path / "new", TWO_CPUS, file).rates(WRITE, 8)
    assert rates.seconds is None
    assert rates.elsewhere == "measured on NVIDIA H100 80GB HBM3"


def test_a_bench_file_of_a_gpu_holds_for_that_gpu_alone(tmp_path: Path) -> None:
    draw = replace(WRITE, placement=replace(WRITE.placement, num_gpus=1.0))
    file = bench_file(tmp_path / "bench.json", device="NVIDIA H100 80GB HBM3")
    ours = Machine(cpus=2, gpus=1, gpu="NVIDIA H100 80GB HBM3")
    assert sources(tmp_path / "new", ours, file).rates(draw, 8).seconds.mean == 1.0
    other = Machine(cpus=2, gpus=1, gpu="NVIDIA A100-SXM4-80GB")
    assert sources(tmp_path / "new", other, file).rates(draw, 8).seconds is None
    on_cpu = bench_file(tmp_path / "cpu.json")
    assert sources(tmp_path / "new", ours, on_cpu).rates(draw, 8).seconds is None


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "x.json"
    wrong.write_text('{"about": {}}')
    with pytest.raises(UsageError, match=r"not a valid file of rates"):
        sources(tmp_path, TWO_CPUS, wrong)
    with pytest.raises(UsageError, match=r"No such file"):
        sources(tmp_path, TWO_CPUS, tmp_path / "gone.json")


# ------------------------------------------------------------------------ published


def test_published_figures_have_sources_and_settings() -> None:
    for figure in PUBLISHED:
        assert figure.source
        assert figure.seconds > 0
        assert figure.model in {settings.model for settings in T2IS.values()}


def test_published_figures_are_used_as_they_are_on_their_gpu() -> None:
    spec = T2IS["sd3"].spec("sd3", "dummy")
    rates = published_rates(spec, described("8xNVIDIA A100-SXM4-80GB"))
    assert rates.seconds.mean == 4.762
    assert rates.detail == "huggingface.co/blog/sd3"


def test_published_figures_are_scaled_by_steps_and_pixels_and_say_so() -> None:
    settings = T2IS["flux"].model_copy(update={"steps": 14, "height": 512, "width": 512})
    rates = published_rates(settings.spec("flux", "dummy"), described("1xH100"))
    assert rates.seconds.low == pytest.approx(6.57 / 8)
    assert rates.seconds.high == pytest.approx(6.71 / 8)
    assert "scaled from 28 steps at 1024 x 1024" in rates.detail


def test_published_figures_never_hold_for_other_gpus_weights_or_servers() -> None:
    spec = T2IS["sd3"].spec("sd3", "dummy")
    assert published_rates(spec, described("8xH100")) is None
    assert published_rates(spec, TWO_CPUS) is None
    assert published_rates(T2IS["sd3"].spec("sd3", "tiny"), described("1xA100")) is None
    assert published_rates(replace(spec, stage="x"), described("1xA100")) is None


def test_a_plan_for_another_gpu_says_where_a_figure_is_published(tmp_path: Path) -> None:
    spec = T2IS["sd3"].spec("sd3", "dummy")
    rates = sources(tmp_path, described("8xH100")).rates(spec, 10)
    assert (rates.origin, rates.elsewhere) == (Origin.UNKNOWN, "published for A100")


# ------------------------------------------------------------------------- machines


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("8xH100", Machine(cpus=32, gpus=8, gpu="H100", described=True)),
        ("2x8xA100,64cpu", Machine(nodes=2, cpus=64, gpus=8, gpu="A100", described=True)),
        ("1xRTX 4090,8cpu", Machine(cpus=8, gpus=1, gpu="RTX 4090", described=True)),
    ],
)
def test_machines_are_described(text: str, machine: Machine) -> None:
    assert described(text) == machine


@pytest.mark.parametrize("text", ["", "8", "H100", "8x", "0x8xH100", "8xH100,cpu"])
def test_other_descriptions_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"8xH100"):
        described(text)


def test_gpus_are_alike_by_model() -> None:
    assert same_gpu("A100", "NVIDIA A100-SXM4-80GB")
    assert not same_gpu("L4", "NVIDIA L40S")
    assert not same_gpu("H100", "NVIDIA H200")
    assert not same_gpu("", "NVIDIA H200")
    assert not same_gpu("NVIDIA RTX A6000", "NVIDIA GeForce RTX 4090")


# ------------------------------------------------------------------------- forecasts


def test_a_forecast_adds_start_load_and_work(tmp_path: Path) -> None:
    timing = TIMES | {"load_seconds": {WRITE.folder: [5.0]}}
    usage = {"input_tokens": 10, "output_tokens": 3}
    measured(tmp_path / "a", WRITE, [(4, 2.0), (4, 6.0)], usage, timing=timing)
    forecast = forecast_of(writing(WRITE, 12), tmp_path / "new")
    assert forecast.complete
    assert forecast.seconds.mean == pytest.approx(4.0 + 5.0 + 12.0, abs=0.01)
    assert forecast.seconds.low < forecast.seconds.mean < forecast.seconds.high
    assert forecast.total("input_tokens") == (120, True)
    assert forecast.hours.mean == pytest.approx(21.0 / 3600, rel=0.01)


def test_gpu_hours_are_of_the_gpus_that_workers_hold_not_of_all_nodes(
    tmp_path: Path,
) -> None:
    draw = stage("draw", num_gpus=2.0, workers=1)
    timing = TIMES | {"load_seconds": {draw.folder: [5.0]}}
    hardware = {"cpus": 16, "gpus": ["NVIDIA H100, 550"] * 2}
    measured(tmp_path / "a", draw, [(1, 3.0)] * 4, timing=timing, hardware=hardware)
    machine = Machine(nodes=3, cpus=16, gpus=2, gpu="NVIDIA H100")
    forecast = forecast_of(writing(draw, 12), tmp_path / "new", machine)
    assert forecast.on_gpus
    assert forecast.gpu_hours.mean == pytest.approx(2 * (5 + 12 * 3) / 3600, rel=0.02)
    assert forecast.hours == forecast.gpu_hours


def test_what_is_done_is_not_forecast(tmp_path: Path) -> None:
    assert forecast_of(writing(WRITE, 0), tmp_path).seconds.high == 0
    assert not forecast_of(writing(WRITE, 0), tmp_path).stages


def test_an_unknown_rate_is_named_and_the_total_is_a_lower_bound(tmp_path: Path) -> None:
    forecast = forecast_of(writing(WRITE, 12), tmp_path / "new")
    assert not forecast.complete
    notes = " ".join(forecast_notes(forecast))
    assert notes.startswith("none yet")
    assert "seconds per record and load time of write" in notes
    assert forecast.as_json()["lower_bound"]


def test_prices_of_the_config_make_money(tmp_path: Path) -> None:
    prices = {"price_per_million_input": 2.0, "price_per_million_output": 10.0}
    paid = replace(
        WRITE,
        options=prices,
        placement=Placement(endpoint="https://x/v1", concurrency=4, batch_size=1),
    )
    usage = {"input_tokens": 1000, "output_tokens": 100}
    measured(tmp_path / "a", paid, [(1, 1.0)] * 4, usage)
    forecast = forecast_of(writing(paid, 100), tmp_path / "new", max_cost=0.2)
    assert forecast.total("money") == (pytest.approx(0.3), True)
    assert any("more than engine.max_cost 0.2" in note for note in forecast.notes)


def test_an_endpoint_without_prices_costs_an_unknown_amount(tmp_path: Path) -> None:
    placement = Placement(endpoint="https://x/v1", concurrency=4, batch_size=1)
    asked = replace(WRITE, placement=placement)
    measured(tmp_path / "a", asked, [(1, 1.0)] * 4)
    assert forecast_of(writing(asked, 9), tmp_path / "new").total("money") == (0, False)
