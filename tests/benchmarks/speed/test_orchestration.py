"""The benchmark programs measure what they say; no test asserts a time."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.speed import orchestration


def records(root: Path) -> dict[str, tuple[str, str]]:
    """Key -> (outcome, text) of everything written under `root`."""
    found: dict[str, tuple[str, str]] = {}
    for part in root.glob("stages/*/part-*.parquet"):
        table = pq.read_table(part, columns=["key", "outcome", "text"]).to_pylist()
        assert not found.keys() & {row["key"] for row in table}
        found |= {row["key"]: (row["outcome"], row["text"]) for row in table}
    return found


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_address")
def test_all_methods_write_the_same_records(tmp_path: Path) -> None:
    spec, samples = orchestration.spec_of(0), orchestration.samples_of(3)
    written = {}
    for method in orchestration.METHODS:
        root = tmp_path / method.replace(" ", "")
        orchestration.RUNNERS[method](spec, samples, root)
        written[method] = records(root)
    assert len(written["plait"]) == 3 * orchestration.BATCH_SIZE
    assert all(found == written["plait"] for found in written.values())


def test_a_measurement_counts_sleep_as_ideal() -> None:
    taken = orchestration.measure("loop", 10, 4)
    assert taken.records == 4 * orchestration.BATCH_SIZE
    assert taken.ideal_s == pytest.approx(0.04)
    assert taken.wall_s >= taken.ideal_s
    pooled = orchestration.Timing("plait", 10, 72, 1.0, 0.0, 0.0)
    assert pooled.ideal_s == pytest.approx(0.05)  # 9 batches over 2 actors: 5 rounds


def test_the_clock_counts_this_process_and_its_children() -> None:
    import subprocess
    import sys
    import time

    with orchestration.CpuClock(every_s=0.01) as clock:
        began = time.time()
        burn = "import time\nwhile time.process_time() < 0.3: pass"
        subprocess.run([sys.executable, "-c", burn], check=True)
        ended = time.time()
    assert 0.2 < clock.at(ended) - clock.at(began) < 5.0
