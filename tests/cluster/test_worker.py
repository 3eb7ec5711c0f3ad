"""A worker without Ray: what it tells of a stage that raises, dawdles or runs out."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from trial import LIGHT, writer

from cluster import stage_errors
from cluster.local import load_class
from cluster.records import Item
from cluster.stage_call import meter_of
from cluster.worker import Receipt, Worker
from generators.base import Result
from generators.document import Draft, Image, Request, Text, Turn

ITEMS = [Item("k", "label", Request(()))]


class Acting:
    """A stage that does what it is given to do."""

    def __init__(self, act: Callable[[], Any], concurrent: bool = False) -> None:
        self.act, self.concurrent = act, concurrent

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        return [self.act() for _ in inputs]


def receipt_of(root: Path, stage: Acting, timeout_s: float = 60.0) -> Receipt:
    hosted = Worker(writer(replace(LIGHT, batch_timeout_s=timeout_s)), str(root))
    hosted._stage = stage
    return hosted.run(ITEMS)


def raising(error: Exception) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


@pytest.mark.parametrize("concurrent", [False, True])
def test_a_timeout_that_a_stage_raises_is_an_error_of_that_record(
    tmp_path: Path, concurrent: bool
) -> None:
    """Not a batch that overstays its limit, which would cost the worker its life."""
    stage = Acting(raising(TimeoutError("the file server is slow")), concurrent)
    receipt = receipt_of(tmp_path, stage)
    assert receipt.status == "raised"
    assert "the file server is slow" in receipt.error


def test_a_batch_that_overstays_its_limit_is_said_so(tmp_path: Path) -> None:
    over = threading.Event()
    receipt = receipt_of(tmp_path, Acting(over.wait), timeout_s=0.05)
    over.set()
    assert (receipt.status, receipt.error) == ("timeout", "took longer than 0.05 s")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("CUDA error: an illegal memory access"), "broken"),
        (RuntimeError("CUDA out of memory. Tried to allocate"), "out of memory"),
        (ValueError("no"), "raised"),
    ],
)
def test_errors_are_told_apart(tmp_path: Path, error: Exception, status: str) -> None:
    assert receipt_of(tmp_path, Acting(raising(error))).status == status


def test_a_receipt_tells_when_a_batch_was_read_computed_and_written(tmp_path: Path) -> None:
    draft = Result(Draft(()), {"tokens": 3.0})
    receipt = receipt_of(tmp_path, Acting(lambda: time.sleep(0.05) or draft))
    spans = {span.phase: span for span in receipt.spans}
    assert list(spans) == ["read", "compute", "write"]
    assert spans["read"].end <= spans["compute"].begin
    assert spans["compute"].end <= spans["write"].begin
    assert spans["compute"].end - spans["compute"].begin >= 50_000_000
    assert (receipt.joules, "joules" in receipt.usage) == (None, False)


def test_a_batch_that_raises_has_spans_too(tmp_path: Path) -> None:
    receipt = receipt_of(tmp_path, Acting(raising(ValueError("no"))))
    assert [span.phase for span in receipt.spans] == ["read", "compute"]


def test_records_share_the_energy_of_their_batch(tmp_path: Path) -> None:
    class Meter:
        """Advances by 5 J with every reading."""

        reading = 0.0

        def joules(self) -> float:
            self.reading += 5.0
            return self.reading

    hosted = Worker(writer(), str(tmp_path))
    hosted._stage = Acting(lambda: Result(Draft(()), {"tokens": 3.0}))
    hosted._meter = Meter()  # type: ignore[assignment]
    items = [*ITEMS, Item("k2", "label", Request(()))]
    receipt = hosted.run(items)
    assert receipt.usage == {"tokens": 6.0, "joules": pytest.approx(5.0)}
    assert receipt.joules == 15.0


@pytest.mark.parametrize(("gpus", "metered"), [(0, False), (0.5, False), (2, True)])
def test_only_workers_with_whole_gpus_are_metered(
    monkeypatch: pytest.MonkeyPatch, gpus: float, metered: bool
) -> None:
    """A counter is of a whole device: two workers that share one cannot tell."""
    monkeypatch.setattr("cluster.stage_call.EnergyMeter", lambda: Mock(reason=None))
    assert (meter_of(replace(LIGHT, num_gpus=gpus)) is not None) == metered


def test_a_batch_that_did_not_fit_is_let_go_before_memory_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tensor:
        pass

    held: list[weakref.ref[Tensor]] = []
    alive: list[bool] = []

    def act() -> Any:
        tensor = Tensor()
        held.append(weakref.ref(tensor))
        raise RuntimeError("CUDA out of memory")

    def release() -> None:
        gc.collect()
        alive.append(held[0]() is not None)

    monkeypatch.setattr(stage_errors, "release_memory", release)
    receipt = receipt_of(tmp_path, Acting(act))
    assert "test_worker.py" in receipt.error
    assert alive == [False]


def test_a_result_that_is_no_outcome_is_an_error(tmp_path: Path) -> None:
    receipt = receipt_of(tmp_path, Acting(lambda: "text"))
    assert receipt.status == "raised"
    assert "a stage returned str, not an outcome" in receipt.error


def test_a_picture_that_changed_since_the_plan_is_not_taken_for_the_old_one(
    tmp_path: Path,
) -> None:
    """Its digest is in the key, so the record would say something untrue."""
    file = tmp_path / "a.png"
    file.write_bytes(b"as planned")
    image = Image(Image.of(b"as planned").digest, place=str(file))
    item = Item("k", "label", Request((Turn("user", (image,)),)))
    hosted = Worker(writer(), str(tmp_path / "run"))
    hosted._stage = Acting(lambda: Result(Draft((Text("seen"),))))
    assert hosted.run([item]).rows["k"].outcome == "done"
    file.write_bytes(b"changed since")
    row = hosted.run([item]).rows["k"]
    assert (row.outcome, row.final) == ("failed", False)
    assert "a.png has changed since the run was planned" in str(row.reason)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("stages", r"stage 'stages' is not of the form 'module:Class'"),
        ("stages:Nobody", r"module 'stages' has no class 'Nobody'"),
    ],
)
def test_a_target_that_names_no_class_is_reported(target: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_class(target)
    assert load_class("cluster.worker:Worker") is Worker
