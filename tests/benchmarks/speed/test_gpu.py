"""Stages are measured on a GPU: marks are its events, and memory is what it allocates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_gpu import fake_gpus

from benchmarks.speed.instruments import device
from benchmarks.speed.stage.command import main

pytestmark = pytest.mark.models


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(
    "what",
    [
        ("--system", "openjourney", "--part", "render"),
        ("--system", "qwen2-vl-7b", "--set", "max_new_tokens=4"),
        ("--scorer", "clipscore", "--set", "remembered=0"),
    ],
    ids=["pictures", "text", "scores"],
)
def test_a_stage_is_measured_on_gpus(
    what: tuple[str, ...], gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_GPU_COPY_BYTES", 2**20)
    monkeypatch.setattr(device, "_GPU_MATRIX", 32)
    out = tmp_path / "speed.json"
    size = ("--weights", "tiny", "--batches", "1,2", "--queries", "2", "--rounds", "1")
    with fake_gpus(gpus):
        assert main([*what, *size, "--out", str(out)]) == 0
    written = json.loads(out.read_text())
    about = written["about"]
    assert about["device"] == "a GPU of the tests"
    assert about["timer"] == ("CUDA events" if gpus == 1 else "perf_counter, all GPUs idle")
    assert [speed["way"] for speed in written["speeds"]] == ["batch 1", "batch 2"]
    for speed in written["speeds"]:
        assert not speed["failures"]
        peak = {"value": float(gpus), "unit": "GiB, CUDA allocator"}
        assert speed["figures"]["peak_memory"] == peak
