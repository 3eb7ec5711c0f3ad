"""The script that says how far exact levers move images."""

from __future__ import annotations

import pytest
from fake_gpu import fake_gpus

from plait.benchmarks.speed.scripts.exactness import LEVERS, PLAIN, rows_of

pytestmark = pytest.mark.models


@pytest.mark.parametrize("name", ["openjourney", "qwen-image"])
def test_a_lever_is_exact_or_refused_by_name(name):
    with fake_gpus(graphs=True) as traffic:
        found = rows_of(name, "tiny", "float32", steps=3)
    rows = {lever: rest for _, lever, *rest in found}
    assert set(rows) == {PLAIN, *LEVERS}
    assert traffic.replays
    said = {lever: rows[lever][-1] for lever in LEVERS}
    is_unet = name == "openjourney"
    assert said["encodings"] == said["cuda_graphs"] == "yes"
    assert (said["fuse_qkv"] == "yes") == is_unet
    assert (said["channels_last"] == "yes") == is_unet
