"""Stages are measured on a GPU: its events are the clock, its allocator the memory."""

from __future__ import annotations

import json

import pytest
import torch

from plait.benchmarks.speed.command import main

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.mark.parametrize(
    "what",
    [
        ("--system", "openjourney", "--part", "render"),
        ("--system", "qwen2-vl-7b", "--set", "max_new_tokens=4", "--no-upstream"),
        ("--scorer", "clipscore", "--set", "remembered=0"),
    ],
    ids=["images", "text", "scores"],
)
def test_a_stage_is_measured_on_gpus(what, tmp_path):
    out = tmp_path / "speed.json"
    size = ("--weights", "tiny", "--batches", "1,2", "--queries", "2", "--rounds", "1")
    assert main([*what, *size, "--out", str(out)]) == 0
    written = json.loads(out.read_text())
    assert written["about"]["device"] == torch.cuda.get_device_name()
    one = torch.cuda.device_count() == 1
    assert written["about"]["timer"].startswith("CUDA events" if one else "perf_counter")
    assert [speed["way"] for speed in written["speeds"]] == ["batch 1", "batch 2"]
    for speed in written["speeds"]:
        assert not speed["failures"]
        memory = speed["figures"]["peak_memory"]
        assert memory["unit"] == "GiB, CUDA allocator"
        assert 0 < memory["value"] < 10
