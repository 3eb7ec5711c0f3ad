"""A forecast: rates from earlier runs, jobs that are left, and the engine on a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contents import document
from forecast_helpers import (
    TWO_CPUS,
    drafts,
    forecast_of,
    measured,
    stage,
    work,
    write_manifest,
    writing,
)
from picture_helpers import smooth
from report_helpers import board_of
from scipy import stats
from trial import (
    Measuring,
    Witness,
    filled,
    painter,
    plan_of,
    reviewed,
    run,
    sample,
    writer,
)

from plait.benchmarks.runs import planning
from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.experiment import Experiment, open_experiment
from plait.benchmarks.runs.forecast.forecast import (
    Forecast,
    StageForecast,
    conclude,
    keep_forecast,
)
from plait.benchmarks.runs.forecast.machines import Machine
from plait.benchmarks.runs.forecast.rates import Batches, Origin, Sources, StageRates
from plait.benchmarks.runs.forecast.simulation import (
    Simulated,
    StageWork,
    simulate,
    work_of,
)
from plait.benchmarks.runs.planning import ForecastOptions, RunPlan, over_budget
from plait.benchmarks.tasks.task_set import limit_queries
from plait.cluster.counts import count
from plait.cluster.executors.simulated import Speeds, World
from plait.cluster.manifest import other_work
from plait.cluster.placement import Node, Resources
from plait.cluster.plan import Plan
from plait.cluster.records import encode
from plait.cluster.run import RunResult
from plait.cluster.store import Store
from plait.cluster.watcher import RunProgress
from plait.generators.base import Failure, Kind, Placement, StageSpec
from plait.generators.document import Query
from plait.generators.errors import UsageError
from plait.generators.work import FigureRange

pytestmark = pytest.mark.contract

WRITE = stage("write", batch_size=4)
TIMES = {"seconds": 30.0, "scheduling_seconds": 26.0}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder for runs, beside which no other test's runs are."""
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


# ------------------------------------------------------------------------------- rates


def batches(*seconds: float, records: int = 1) -> Batches:
    return Batches(
        records=np.full(len(seconds), float(records)), seconds=np.array(seconds, float)
    )


def test_the_range_is_a_prediction_interval_within_what_was_measured() -> None:
    few = batches(1.0, 3.0, 3.0, 3.0, 5.0)
    half = stats.t.ppf(0.95, 4) * 2**0.5 / 5**0.5
    span = few.predict(10**9)
    assert (span.low, span.high) == pytest.approx((3 - half, 3 + half))
    assert few.predict(5).high - 3 == pytest.approx(min(2.0, half * 2**0.5))
    two = batches(4.0, 8.0, records=4).predict(1)
    assert (two.low, two.mean, two.high) == (1.0, 1.5, 2.0)
    alone = batches(3.0, records=2).predict(5)
    assert (alone.low, alone.mean, alone.high) == (1.5, 1.5, 1.5)
    assert batches().predict(1) is None


def test_rates_are_read_from_the_run_itself(runs: Path) -> None:
    timing = TIMES | {"load_seconds": {WRITE.folder: [5.0, 7.0]}}
    usage = {"input_tokens": 10, "output_tokens": 3}
    store = measured(runs / "a", WRITE, [(4, 2.0), (4, 6.0)], usage, timing=timing)
    # Failures are no rates, but take their share of the disk.
    failed = encode(WRITE.kind, drafts(replace(WRITE, name="f"), 1), [Failure("no")], 0.0)
    store.commit(WRITE, failed)
    sources = Sources.at(runs / "a", TWO_CPUS)
    rates = sources.rates(WRITE, 100)
    assert (rates.origin, rates.seconds.mean) == (Origin.OWN, 1.0)
    assert rates.load_s == FigureRange(6.0, 5.0, 7.0)
    tokens = [rates.usage[name] for name in ("input_tokens", "output_tokens")]
    assert tokens == [FigureRange.exact(10), FigureRange.exact(3)]
    size = sum(part.stat().st_size for part in store.parts(WRITE))
    assert rates.usage["disk_bytes"].mean == pytest.approx(size / 9)
    assert sources.overhead_s == FigureRange.exact(4.0)


def test_a_slow_first_batch_is_left_out(runs: Path) -> None:
    measured(runs / "a", WRITE, [(4, 40.0), (4, 4.0), (4, 4.0)], {"images": 1})
    rates = Sources.at(runs / "a", TWO_CPUS).rates(WRITE, 100)
    assert rates.seconds == FigureRange.exact(1.0)
    assert rates.usage["images"].mean == 1


def test_times_are_read_beside_on_the_same_hardware_and_usage_on_any(runs: Path) -> None:
    measured(runs / "a", replace(WRITE, version=7), [(4, 4.0)])
    hardware = {"cpus": 8, "gpus": ["NVIDIA A100-SXM4-80GB, 550"]}
    other = replace(WRITE, settings={"style": "long"})
    measured(runs / "b", other, [(4, 400.0)], {"input_tokens": 5}, hardware=hardware)
    (runs / "broken").mkdir()
    (runs / "broken" / "manifest.json").write_text("{")
    folder = runs / "damaged" / "stages" / WRITE.folder
    write_manifest(runs / "damaged", [WRITE])
    folder.mkdir(parents=True)
    (folder / "part-x.parquet").write_bytes(b"not Parquet")
    sources = Sources.at(runs / "new", TWO_CPUS)
    rates = sources.rates(WRITE, 4)
    assert (rates.origin, rates.seconds.mean) == (Origin.BESIDE, 1.0)
    rates = sources.rates(other, 4)
    assert (rates.seconds, rates.usage["input_tokens"].mean) == (None, 5)


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("8xH100", Machine(cpus=32, gpus=8, gpu="H100", described=True)),
        ("2x8xA100,64cpu", Machine(nodes=2, cpus=64, gpus=8, gpu="A100", described=True)),
        ("1xRTX 4090,8cpu", Machine(cpus=8, gpus=1, gpu="RTX 4090", described=True)),
        *((text, None) for text in ("", "8", "H100", "8x", "0x8xH100", "8xH100,cpu")),
    ],
)
def test_machines_are_described(text: str, machine: Machine | None) -> None:
    if machine is None:
        with pytest.raises(UsageError, match="--on"):
            Machine.of(text)
    else:
        assert Machine.of(text) == machine


def test_what_was_measured_beside_other_work_is_taken_last_and_said(runs: Path) -> None:
    measured(runs / "busy", WRITE, [(4, 8.0)], other_work={"cpus": 0.6})
    plan = writing(WRITE, 8)

    def forecast() -> Forecast:
        return forecast_of(plan, runs / "new")

    rates = forecast().stages[0].rates
    assert (rates.seconds, rates.other_work, rates.disturbed) == (
        at(2.0).seconds,
        0.6,
        True,
    )
    (note,) = (note for note in forecast().notes if WRITE.name in note)
    assert "60%" in note
    measured(runs / "old", WRITE, [(4, 6.0)])
    rates = forecast().stages[0].rates
    assert (rates.seconds, rates.other_work) == (at(1.5).seconds, None)
    assert any(WRITE.name in note for note in forecast().notes)
    measured(runs / "free", WRITE, [(4, 4.0)], other_work={"cpus": 0.05})
    rates = forecast().stages[0].rates
    assert (rates.seconds, rates.disturbed) == (at(1.0).seconds, False)
    assert not any(WRITE.name in note for note in forecast().notes)


def test_a_run_keeps_the_most_other_work_that_its_commands_found(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"cpus": 0.3}
    module = "plait.benchmarks.runs.forecast.forecast.other_work"
    monkeypatch.setattr(module, lambda: dict(found))
    measured(runs / "a", WRITE, [(1, 1.0)])
    made = forecast_of(writing(WRITE, 8), runs / "new")
    assert keep_forecast(made, runs / "new")["other_work"] == {"cpus": 0.3}
    write_manifest(runs / "new", [WRITE], forecast={}, other_work={"cpus": 0.5})
    assert keep_forecast(made, runs / "new")["other_work"] == {"cpus": 0.5}
    # Of records that were made before it was noted, nothing is known.
    write_manifest(runs / "new", [WRITE], forecast={})
    assert "other_work" not in keep_forecast(made, runs / "new")


def test_other_work_is_what_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    # user, nice, system, idle, waiting for a disk, interrupts, soft ones, stolen
    ticks = iter([[10, 0, 10, 100, 20, 0, 0, 0], [40, 0, 20, 150, 30, 0, 0, 0]])
    monkeypatch.setattr("plait.cluster.manifest._cpu_ticks", lambda: next(ticks))
    monkeypatch.setattr("plait.cluster.manifest._output", lambda *command: "0\n37\n[N/A]\n")
    assert other_work(0.0) == {"cpus": 0.4, "gpus": 0.37}
    monkeypatch.setattr("plait.cluster.manifest._cpu_ticks", list)
    monkeypatch.setattr("plait.cluster.manifest._output", lambda *command: None)
    assert other_work(0.0) == {}


# -------------------------------------------------------------------------------- work


def drawing(queries: int, most: int = 4) -> Plan:
    """An LVLM that asks for at most `most` images, a T2I model, and a scorer."""
    made = plan_of([sample(i) for i in range(queries)])
    return replace(made, systems=[replace(made.systems[0], max_images=most)])


def left(of: Plan, root: Path) -> dict[str, StageWork]:
    counts = count(of, Store(root))
    return {w.spec.name: w for w in work_of(of, counts, Sources.at(root, TWO_CPUS))}


def test_without_earlier_runs_half_of_the_images_allowed_are_expected(runs: Path) -> None:
    of = left(drawing(6), runs / "new")
    assert [(w.known, w.jobs, len(w.grounds)) for w in of.values()] == [
        (6, 6, 0),
        (0, 12, 1),
        (0, 6, 1),
    ]
    write, paint, measure = (w.spec for w in of.values())
    assert of[paint.name].flows == {write.digest: 12.0}
    assert of[measure.name].flows == {paint.digest: 6.0}


PICTURE = smooth()


@pytest.mark.parametrize(
    ("most", "references", "wanting", "tries", "images"),
    [
        (1, 3, 6, 1, 6.0),  # one each, as the protocol draws, whatever references hold
        (4, 3, 6, 1, 18.0),
        (2, 3, 6, 1, 12.0),
        (4, 3, 4, 1, 12.0),  # none where none are wanted
        (4, 0, 6, 1, 12.0),
        (4, 3, 6, 3, 36.0),  # half of the two redraws of each
        (0, 3, 6, 1, 0.0),
    ],
)
def test_images_are_expected_as_protocol_and_references_have_them(
    runs: Path, most: int, references: int, wanting: int, tries: int, images: float
) -> None:
    plan = drawing(6, most)
    if tries > 1:
        system = reviewed(plan.systems[0], tries=tries)
        plan = replace(plan, systems=[replace(system, max_images=most)])
    truth = document("words", *[PICTURE] * references)
    queries = [
        replace(q, reference=truth, wants_images=i < wanting)
        for i, q in enumerate(plan.queries)
        if isinstance(q, Query)
    ]
    of = left(replace(plan, queries=queries), runs / "new")
    found = of["painter0"].jobs if "painter0" in of else 0.0
    assert found == pytest.approx(images)


class AskedAgain(Measuring):
    """Asks once more after a reply that cannot be read."""

    @property
    def rounds(self) -> int:
        return 2


def test_judgements_are_expected_of_what_can_be_scored_without_second_replies(
    runs: Path,
) -> None:
    plan = drawing(6)
    asked = [
        replace(q, wants_images=i < 4)
        for i, q in enumerate(plan.queries)
        if isinstance(q, Query)
    ]
    picky = AskedAgain(images_only=True)
    of = left(replace(plan, queries=asked, scorers=[picky]), runs / "new")
    assert of["measure"].jobs == pytest.approx(4.0)


def test_earlier_runs_tell_how_many_images_and_judgements_follow(runs: Path) -> None:
    done = drawing(4)
    filled(done, runs / "before")
    counts = {"planned": 8, "missing": 0}
    images = {done.systems[0].name: 1.5}
    write_manifest(
        runs / "before", done.stages, counts=counts, pictures_per_document=images
    )
    of = left(drawing(6), runs / "new")
    assert of["painter0"].jobs == pytest.approx(9.0)
    assert of["measure"].jobs == pytest.approx(3.0)  # four judged of eight documents
    assert not any(w.grounds for w in of.values())
    # Nothing tells how many images a critic has drawn again: half of those it may.
    judged = replace(drawing(6), systems=[reviewed(drawing(6).systems[0], tries=2)])
    painting = left(judged, runs / "new")["painter0"]
    assert (painting.jobs, len(painting.grounds)) == (6 * 1.5 * 1.5, 1)
    # What the run has made since then is read too.
    filled(drawing(8), runs / "before")
    counts = {"planned": 16, "missing": 0}
    write_manifest(
        runs / "before", done.stages, counts=counts, pictures_per_document=images
    )
    assert left(drawing(6), runs / "new")["measure"].jobs == pytest.approx(3.0)


def test_records_that_are_there_are_not_made_again(runs: Path) -> None:
    filled(drawing(4), runs / "run", Kind.DRAFT)
    of = left(drawing(4), runs / "run")
    assert "writer" not in of
    assert (of["painter0"].known, of["painter0"].jobs) == (4, 4)
    filled(drawing(4), runs / "run")
    assert left(drawing(4), runs / "run") == {}


# -------------------------------------------------------------------------- simulation

GPU = {"num_gpus": 1.0}
FIRST, SECOND = (stage(n, Kind.RENDER, **GPU) for n in ("first", "second"))
DRAW, WIDE = stage("draw", Kind.RENDER), stage("wide", num_gpus=8.0)
ONE = stage("one")
PIPELINE = (work(ONE, 10), work(DRAW, 0, (ONE, 10)))
TWO_WRITE = [stage(f"w{i}", batch_size=8, **GPU) for i in range(2)]
LARGE = (
    *(work(w, 40_000) for w in TWO_WRITE),
    *(
        work(stage(f"a{i}", Kind.RENDER, **GPU), 0, *((w, 2e4) for w in TWO_WRITE))
        for i in range(2)
    ),
)


def simulated(stages: Sequence[StageWork], machine: Machine, *speed: float) -> Simulated:
    return simulate(stages, {w.spec.digest: at(*speed) for w in stages}, machine.resources)


def at(seconds: float = 1.0, load_s: float = 0.0) -> StageRates:
    return StageRates(seconds=FigureRange.exact(seconds), load_s=FigureRange.exact(load_s))


@pytest.mark.parametrize(
    ("stages", "machine", "speed", "seconds", "gpu_seconds"),
    [
        (PIPELINE, Machine(cpus=1), (1.0, 0.0), 20, 0),  # one after the other
        (PIPELINE, Machine(cpus=2), (1.0, 0.0), 11, 0),  # the last image follows
        (PIPELINE, Machine(cpus=1), (1.0, 5.0), 30, 0),
        (PIPELINE, Machine(cpus=2), (1.0, 5.0), 21, 0),
        (
            (work(FIRST, 10), work(SECOND, 10)),
            Machine(cpus=8, gpus=1),
            (1, 2),
            24,
            24,
        ),
        ((work(FIRST, 10), work(SECOND, 5)), Machine(cpus=8, gpus=2), (1, 2), 11.4, 23),
        ((work(FIRST, 100),), Machine(cpus=8, gpus=4), (1.0,), 25, 100),
        ((work(FIRST, 16),), Machine(cpus=8, gpus=4), (1.0, 20.0), 36, 36),
        (LARGE, Machine(nodes=2, cpus=64, gpus=8), (1.0, 60.0), 10_000, 160_000),
        # One job stands for 2,500 records, seven hours: longer than a batch may take.
        ((work(FIRST, 1e6),), Machine(cpus=8, gpus=4), (10.0,), 2.5e6, 1e7),
    ],
)
def test_a_run_takes_what_the_engine_makes_of_rates(
    stages: Sequence[StageWork],
    machine: Machine,
    speed: tuple[float, ...],
    seconds: float,
    gpu_seconds: float,
) -> None:
    result = simulated(stages, machine, *speed)
    assert result.seconds == pytest.approx(seconds, rel=0.05, abs=0.5)
    assert result.gpu_seconds == pytest.approx(gpu_seconds, rel=0.05, abs=1.5)


def test_an_endpoint_answers_several_requests_at_a_time() -> None:
    asked = stage("asked", endpoint="https://x/v1", concurrency=4)
    result = simulated((work(asked, 8),), Machine(cpus=2))
    assert result.seconds == pytest.approx(2.0, abs=0.1)


def test_a_stage_that_fits_nowhere_is_named_and_what_follows_goes_on() -> None:
    stages = (work(WIDE, 5), work(DRAW, 3, (WIDE, 5)))
    result = simulated(stages, Machine(cpus=1, gpus=1))
    assert (list(result.unplaced), result.workers[WIDE.digest]) == (["wide"], 0)
    assert result.seconds == pytest.approx(8.0, abs=0.1)


def test_a_simulated_run_looks_at_no_directory_of_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "plait").write_text("a user's own")
    assert simulated((work(ONE, 1),), Machine(cpus=1)).seconds > 0


HALF = Placement(num_cpus=2, batch_size=1)
"""Half of a node: two workers at a time."""
NODE = Node("n", Resources(cpus=4, memory=8 * 2**30))


@dataclass(frozen=True)
class Rates(Speeds):
    """Stages that differ in the seconds they take for a record."""

    by_stage: Mapping[str, float] = field(default_factory=dict)

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        times = {"load": 2.0, "host": 2.0, "run_all": records * self.by_stage[spec.name]}
        return times.get(method, 0.0)


class Counting(Witness):
    """Counts the workers of each stage that are ready at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = Counter[str]()

    def turn(self, progress: RunProgress) -> None:
        self.most |= Counter({stage.name: stage.workers for stage in progress.stages})


def test_the_forecast_is_what_a_run_of_the_plan_takes(tmp_path: Path) -> None:
    queries, seconds = 10, (3.0, 3.0, 15.0)
    write, draw = (replace(s, stage=s.name) for s in (writer(HALF), painter(0, HALF)))
    plan = plan_of(
        [sample(i) for i in range(queries)], write=write, paint=[draw], measure=HALF
    )
    names = [stage.name for stage in plan.stages]
    world, seen = (
        World([NODE], Rates(by_stage=dict(zip(names, seconds, strict=True)))),
        Counting(),
    )
    with world.driver() as driver:
        run(plan, tmp_path, seen, executor=nullcontext(driver))
    write, draw, measure = plan.stages
    stages = (
        work(write, queries),
        work(draw, 0, (write, queries)),
        replace(
            work(measure, 0, (draw, queries)),
            feeders=frozenset(plan.feeders[measure.digest]),
        ),
    )
    speeds = {s.digest: at(each, 2.0) for s, each in zip(plan.stages, seconds, strict=True)}
    result = simulate(stages, speeds, [NODE])
    assert [result.workers[s.digest] for s in plan.stages] == [seen.most[n] for n in names]
    assert result.seconds == pytest.approx(world.now, rel=0.02, abs=1.0)


# --------------------------------------------------------------------------- forecasts


def test_a_forecast_adds_start_load_and_work(runs: Path) -> None:
    timing = TIMES | {"load_seconds": {WRITE.folder: [5.0]}}
    usage = {"input_tokens": 10, "output_tokens": 3}
    measured(runs / "a", WRITE, [(4, 2.0), (4, 6.0)], usage, timing=timing)
    forecast = forecast_of(writing(WRITE, 12), runs / "new")
    assert not forecast.missing
    assert forecast.seconds.mean == pytest.approx(4.0 + 5.0 + 12.0, abs=0.1)
    assert forecast.seconds.low < forecast.seconds.mean < forecast.seconds.high
    assert forecast.total("input_tokens") == (FigureRange.exact(120), True)
    assert forecast.hours == forecast.seconds * (1 / 3600)


def test_a_forecast_of_nothing_known_says_so(runs: Path) -> None:
    assert forecast_of(writing(WRITE, 0), runs / "none").seconds.high == 0
    forecast = forecast_of(writing(WRITE, 12), runs / "new")
    assert forecast.as_json["lower_bound"]
    assert WRITE.name in forecast.missing[0]


def test_gpu_hours_are_of_the_gpus_that_workers_hold(runs: Path) -> None:
    draw = stage("draw", num_gpus=2.0, workers=1)
    timing = TIMES | {"load_seconds": {draw.folder: [5.0]}}
    hardware = {"cpus": 16, "gpus": ["NVIDIA H100, 550"] * 2}
    measured(runs / "a", draw, [(1, 3.0)] * 4, timing=timing, hardware=hardware)
    machine = Machine(nodes=3, cpus=16, gpus=2, gpu="NVIDIA H100")
    forecast = forecast_of(writing(draw, 12), runs / "new", machine)
    assert forecast.hours == forecast.gpu_hours
    assert forecast.gpu_hours.mean == pytest.approx(2 * (5 + 12 * 3) / 3600, rel=0.02)


def test_prices_of_the_config_make_money(runs: Path) -> None:
    place = Placement(endpoint="https://x/v1", concurrency=4, batch_size=1)
    asked = replace(WRITE, placement=place)
    prices = {"price_per_million_input": 2.0, "price_per_million_output": 10.0}
    paid = replace(asked, options=prices | {"max_cost": 0.1}, settings={"paid": True})
    usage = {"input_tokens": 1000, "output_tokens": 100}
    measured(runs / "a", paid, [(1, 1.0)] * 4, usage)
    measured(runs / "b", asked, [(1, 1.0)] * 4)
    forecast = forecast_of(writing(paid, 100), runs / "new", max_cost=0.2)
    money, known = forecast.total("money")
    assert (money.mean, known) == (pytest.approx(0.3), True)
    assert len([note for note in forecast.notes if "max_cost" in note]) == 2
    assert forecast_of(writing(asked, 9), runs / "new").total("money")[1] is False
    assert "0.3 USD" in forecast.headline
    euros = forecast_of(writing(paid, 100), runs / "new", currency="EUR")
    assert "0.3 EUR" in euros.headline
    assert "cost (EUR)" in [column.heading for column in euros.table.columns]


@pytest.mark.parametrize(
    ("seconds", "told"), [(2.0, False), (59.0, False), (60.0, True), (90.0, True)]
)
def test_a_run_of_a_minute_is_compared_with_its_forecast(
    tmp_path: Path, seconds: float, told: bool
) -> None:
    made = replace(forecast(0), seconds=FigureRange.exact(40.0))
    (tmp_path / "manifest.json").write_text('{"plait": 1, "config": {}}')
    result = RunResult(counts={}, failed=0, made=4, seconds=seconds)
    line = conclude(tmp_path, made, result, board_of({"a": [1.0]}))
    assert bool(line) is told


# ----------------------------------------------------------------------------- budgets


def forecast(queries: float, *, known: bool = True, gpus: float = 1.0) -> Forecast:
    """A GPU-hour for every query, a fixed one for loading, half of it in wall time."""
    seconds = FigureRange.exact(3600.0) if known else None
    rates = StageRates(seconds=seconds, load_s=FigureRange.exact(3600.0), origin=Origin.OWN)
    spec, hours = stage("draw", num_gpus=gpus), 1.0 + queries
    return Forecast(
        machine=TWO_CPUS,
        stages=[StageForecast(spec=spec, known=queries, rates=rates, workers=2)],
        seconds=FigureRange(hours * 1800, hours * 1700, hours * 1900),
        gpu_hours=FigureRange(hours, hours * 0.9, hours * 1.1),
    )


@pytest.mark.parametrize(
    ("made", "hours", "fits"),
    [
        (forecast(9), 10.0, True),
        (forecast(9), 9.5, False),
        (forecast(9, gpus=0.0), 5.0, True),  # of wall time
        (forecast(9, gpus=0.0), 4.9, False),
        (forecast(9, known=False), 1000.0, False),
    ],
)
def test_a_budget_is_of_gpu_hours_and_nothing_is_guessed(
    made: Forecast, hours: float, fits: bool
) -> None:
    assert bool(over_budget(made, hours)) is not fits


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """One whose forecasts are those of `forecast`."""

    def of(plan: Plan, *_: Any, **__: Any) -> Forecast:
        return forecast(len(plan.queries))

    monkeypatch.setattr(planning.Forecast, "of", of)
    flags: dict[str, Any] = {"data": "sample", "systems": ("gt",), "weights": "tiny"}
    return open_experiment(load_config(None, flags | {"out": tmp_path / "run"}))


@pytest.mark.parametrize(
    ("hours", "recorded", "kept"),
    [(13.5, 0, 12), (1000.0, 0, None), (1.5, 0, 0), (0.5, 20, 0), (23.5, 20, 22)],
)
def test_trimming_takes_what_limit_would_take(
    experiment: Experiment,
    monkeypatch: pytest.MonkeyPatch,
    hours: float,
    recorded: int,
    kept: int | None,
) -> None:
    monkeypatch.setattr(Experiment, "recorded_queries", property(lambda _: recorded))
    told: list[tuple[int, int]] = []
    planned = RunPlan.of(
        experiment,
        ForecastOptions(budget_hours=hours, trim=True),
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert told[0][0] == len(experiment.queries)
    assert told == sorted(told)
    assert all(done <= total for done, total in told)
    every = experiment.queries
    assert bool(planned.over_budget) is (kept == 0)
    assert (f"to {kept} of {len(every)} " in planned.trimmed) is bool(kept)
    expected = limit_queries(every, kept, experiment.config.seed) if kept else every
    assert list(planned.experiment.queries) == list(expected)


@pytest.mark.parametrize(
    "options", [{"budget_hours": h} for h in (0.0, -1.0, float("nan"))] + [{"trim": True}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--budget-hours"):
        ForecastOptions(**options)
