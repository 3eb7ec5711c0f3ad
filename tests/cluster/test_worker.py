"""A worker without Ray: what it tells of a stage that raises, dawdles or runs out."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hoarder import memory_of_a_stage_that_is_followed
from trial import LIGHT, writer

from plait.cluster.energy import EnergyMeter
from plait.cluster.loading import load_class
from plait.cluster.records import Item
from plait.cluster.worker import Receipt, Worker
from plait.generators.base import Placement, Result
from plait.generators.document import Draft, Image, Request, Score, Text, Turn

ITEMS = [Item("k", "label", Request(()))]
DRAFT = Result(Draft((Text("seen"),)), {"tokens": 3.0})


class Acting:
    """A stage that does what it is given to do."""

    act: Callable[[], Any] = staticmethod(lambda: DRAFT)
    concurrent = False

    def __init__(self, **_: Any) -> None: ...

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        return [self.act() for _ in inputs]


def loaded(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[], Any] = lambda: DRAFT,
    placement: Placement = LIGHT,
    concurrent: bool = False,
) -> Worker:
    monkeypatch.setattr(Acting, "act", staticmethod(act))
    monkeypatch.setattr(Acting, "concurrent", concurrent)
    spec = replace(writer(placement), target=f"{__name__}:Acting")
    worker = Worker(spec, str(root))
    assert worker.load(shared=True) is None
    return worker


def raising(error: Exception) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


@pytest.mark.parametrize("concurrent", [False, True])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("CUDA error: an illegal memory access"), "broken"),
        (RuntimeError("CUDA out of memory. Tried to allocate"), "out of memory"),
        (ValueError("the reason"), "raised"),
        # Not a batch that overstays its limit, which would cost the worker its life.
        (TimeoutError("the file server is slow"), "raised"),
    ],
)
def test_errors_are_told_apart(
    tmp_path: Path, monkeypatch, concurrent: bool, error: Exception, status: str
) -> None:
    worker = loaded(tmp_path, monkeypatch, raising(error), concurrent=concurrent)
    receipt = worker.run(ITEMS)
    assert receipt.status == status
    assert str(error) in receipt.error
    assert [s.phase for s in receipt.spans if s.phase != "load"] == ["read", "compute"]


def test_a_batch_that_overstays_its_limit_is_said_so(tmp_path: Path, monkeypatch) -> None:
    over, place = threading.Event(), replace(LIGHT, batch_timeout_s=0.05)
    receipt = loaded(tmp_path, monkeypatch, over.wait, place).run(ITEMS)
    over.set()
    assert (receipt.status, receipt.error) == ("timeout", "took longer than 0.05 s")


def test_a_receipt_tells_when_a_batch_was_read_computed_and_written(
    tmp_path: Path, monkeypatch
) -> None:
    worker = loaded(tmp_path, monkeypatch, lambda: time.sleep(0.05) or DRAFT)
    receipt = worker.run(ITEMS)
    assert [s.phase for s in receipt.spans] == ["load", "read", "compute", "write"]
    ends = [(s.begin, s.end) for s in receipt.spans[1:]]
    assert ends == sorted(ends)
    assert ends[1][1] - ends[1][0] >= 50_000_000
    assert (receipt.joules, receipt.usage) == (None, {"tokens": 3.0})
    assert "load" not in [s.phase for s in worker.run(ITEMS).spans]


def test_a_batch_that_did_not_fit_is_let_go_before_memory_is_released(
    tmp_path: Path, monkeypatch
) -> None:
    class Tensor:
        pass

    held: list[weakref.ref[Tensor]] = []

    def act() -> Any:
        tensor = Tensor()
        held.append(weakref.ref(tensor))
        raise RuntimeError("CUDA out of memory")

    assert loaded(tmp_path, monkeypatch, act).run(ITEMS).status == "out of memory"
    assert held[0]() is None


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        ("text", "returned str"),
        (7, "returned int"),
        (Result(7), "returned int"),
        (Result(Score(1.0)), "returned Score"),
        (["text", 7], "holds int"),
        (Draft(7), "a Draft of int"),  # type: ignore[arg-type]
        ([Path("nowhere.png")], "nowhere.png"),
        (ValueError("of this one"), "of this one"),
    ],
)
def test_a_result_that_is_no_outcome_fails_its_record_alone(
    tmp_path: Path, monkeypatch, outcome: Any, named: str
) -> None:
    results = iter([DRAFT, outcome, DRAFT])
    worker = loaded(tmp_path, monkeypatch, lambda: next(results))
    receipt = worker.run([Item(key, "label", Request(())) for key in "abc"])
    rows = [receipt.rows[key] for key in "abc"]
    assert [row.outcome for row in rows] == ["done", "failed", "done"]
    assert named in str(rows[1].reason)
    if not isinstance(outcome, Exception):
        assert "(test_worker.py:" in str(rows[1].reason)


def test_an_error_of_many_records_is_printed_once(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    worker = loaded(tmp_path, monkeypatch, raising(ValueError("the same")))
    assert [worker.run(ITEMS).status for _ in range(3)] == ["raised"] * 3
    assert capsys.readouterr().err.count("Traceback") == 1


@pytest.mark.parametrize("concurrent", [False, True])
@pytest.mark.parametrize(
    "returned", [[], [DRAFT], [DRAFT] * 3, (DRAFT,), DRAFT, None, iter([DRAFT] * 2)]
)
def test_a_stage_that_returns_other_than_one_outcome_for_each_input_fails(
    tmp_path: Path, monkeypatch, returned: Any, concurrent: bool
) -> None:
    """Not `raised`, after which the batch would be bisected: alone, one is one for each."""
    worker = loaded(tmp_path, monkeypatch, concurrent=concurrent)
    monkeypatch.setattr(Acting, "__call__", lambda self, inputs: returned)
    receipt = worker.run([Item(key, "label", Request(())) for key in "ab"])
    assert receipt.status == "done"
    number = len(returned) if isinstance(returned, list | tuple) else "[A-Za-z_]+"
    for row in receipt.rows.values():
        assert (row.outcome, row.fault, row.final) == ("failed", "error", False)
        assert re.search(
            rf":Acting \(test_worker.py:\d+\) returned {number} for 2 inputs",
            str(row.reason),
        )
    assert len(receipt.rows) == 2


def test_a_picture_that_changed_since_the_plan_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch
) -> None:
    """Its digest is in the key, so the record would say something untrue."""
    file = tmp_path / "a.png"
    file.write_bytes(b"as planned")
    image = Image(Image.of(b"as planned").digest, place=str(file))
    item = Item("k", "label", Request((Turn("user", (image,)),)))
    hosted = loaded(tmp_path / "run", monkeypatch)
    assert hosted.run([item]).rows["k"].outcome == "done"
    file.write_bytes(b"changed since")
    row = hosted.run([item]).rows["k"]
    assert (row.outcome, row.final) == ("failed", False)
    assert "a.png" in str(row.reason)


@pytest.mark.parametrize("target", ["stages", "stages:Nobody"])
def test_a_target_that_names_no_class_is_reported(target: str) -> None:
    with pytest.raises(ValueError, match="stages"):
        load_class(target)


def test_a_stage_that_is_followed_leaves_nothing_behind(tmp_path: Path) -> None:
    # What earlier tests have left in this process would be counted too.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        run = alone.submit(memory_of_a_stage_that_is_followed, str(tmp_path))
        hosted, left, gone, status = run.result()
    assert (hosted > 150 << 20, left < 50 << 20) == (True, True), (hosted, left)
    assert (gone, status) == (True, "raised")


# ------------------------------------------------------------------------------- energy


class Nvml(ModuleType):
    """As `pynvml`: counters in millijoules, by device."""

    def __init__(self, counters: list[int]) -> None:
        super().__init__("pynvml")
        self.counters = counters
        self.fails: str | None = None

    def nvmlInit(self) -> None:
        if self.fails == "init":
            raise RuntimeError("Driver Not Loaded")

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.counters)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{'abcdef'[handle]}0000000".encode()

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if self.fails:
            raise RuntimeError("Not Supported")
        return self.counters[handle]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    fake = Nvml([1_000, 5_000, 70_000])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


@pytest.mark.parametrize(
    ("visible", "joules", "reason"),
    [
        (None, 112.0, None),
        ("1", 2.0, None),
        ("2,0", 110.0, None),
        ("GPU-b", 2.0, None),
        ("1,1", 2.0, None),
        ("1,-1,2", 2.0, None),
        ("", None, "no GPU"),
        ("-1", None, "no GPU"),
        ("7", None, "no GPU"),
        ("MIG-1234", None, "MIG"),
    ],
)
def test_only_what_visible_devices_have_used_since_counts(
    nvml: Nvml,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    joules: float | None,
    reason: str | None,
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    meter = EnergyMeter()
    nvml.counters[1] += 2_000
    nvml.counters[2] += 110_000
    assert meter.joules() == joules
    assert (meter.reason is None) if reason is None else (reason in str(meter.reason))


def test_what_the_driver_refuses_is_a_reason_and_no_error(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking, reset = EnergyMeter(), EnergyMeter()
    assert breaking.joules() == 0.0
    nvml.counters[2] = 0
    assert (reset.joules(), "reset" in str(reset.reason)) == (None, True)
    nvml.fails = "read"
    assert (breaking.joules(), breaking.reason) == (None, "Not Supported")
    nvml.fails = "init"
    assert EnergyMeter().reason == "Driver Not Loaded"
    missing: Any = None  # what the import system takes for "there is no such module"
    monkeypatch.setitem(sys.modules, "pynvml", missing)
    assert "nvidia-ml-py" in str(EnergyMeter().reason)


@pytest.mark.parametrize(("gpus", "metered"), [(0, False), (0.5, False), (2, True)])
def test_records_share_the_energy_of_a_worker_with_whole_gpus(
    tmp_path: Path, monkeypatch, nvml: Nvml, gpus: float, metered: bool
) -> None:
    """A counter is of a whole device: two workers that share one cannot tell."""

    def act() -> Any:
        nvml.counters[0] += 2_500
        return DRAFT

    worker = loaded(tmp_path, monkeypatch, act, replace(LIGHT, num_gpus=gpus))
    receipt: Receipt = worker.run([*ITEMS, Item("k2", "label", Request(()))])
    assert receipt.usage["tokens"] == 6.0
    assert receipt.usage.get("joules") == (pytest.approx(5.0) if metered else None)
    assert receipt.joules == (5.0 if metered else None)


@pytest.mark.processes
def test_a_worker_imports_no_scorers_settings_or_displays() -> None:
    code = (
        "import sys, plait.cluster.worker\n"
        "unneeded = {'plait.scorers', 'plait.cluster.plan', 'pydantic', 'rich', 'typer',\n"
        "            'httpx2', 'pandas', 'pyarrow.dataset', 'pyarrow.compute', 'torch'}\n"
        "sys.exit(str(unneeded & set(sys.modules)) if unneeded & set(sys.modules) else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
