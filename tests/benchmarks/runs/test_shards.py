"""`plait run --shard`: commands that make one run together, and end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli_helpers import invoke, manifest

import plait
from plait.cluster import lock
from plait.cluster.lock import RunInUse
from plait.generators.errors import UsageError

pytestmark = pytest.mark.contract

MINE = """
import os, time
from plait.generators.base import Result
from plait.generators.document import Draft, Score, Text

class Gated:  # answers a first batch, and others once there is a file `open`
    kind, version, seeded = "draft", 1, False
    batches = 0
    def __init__(self, **_): ...
    def __call__(self, requests):
        while Gated.batches and not os.path.exists("open"):
            time.sleep(0.02)
        Gated.batches += 1
        return [Result(Draft((Text(str(r.turns)[:300]),))) for r in requests]

class Length:
    kind, scale = "score", "0-10000"
    def __init__(self, **_): ...
    def __call__(self, candidates):
        return [Result(Score(float(len(c.document.text)))) for c in candidates]
"""
WORDS = ["--system", "gt", "--system", "mine:Gated@text", "--scorer", "mine:Length"]
WORDS += ["--weights", "tiny", "--executor", "local", "--limit", "16"]
WORDS += ["--set", 'models."mine:Gated".batch_size=2']


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's module is and commands are given."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # before folders of other tests
    monkeypatch.setattr(lock, "_PATIENCE_S", 0.0)
    return tmp_path


def start(shard: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "plait", "run", *WORDS, "--out", "run"]
    with Path(f"said-{shard[0]}").open("w") as said:
        return subprocess.Popen([*command, "--shard", shard], stdout=said, stderr=said)


def wait_for(pattern: str, number: int) -> None:
    until = time.monotonic() + 240
    while len(list(Path().glob(pattern))) < number:
        assert time.monotonic() < until, [p.read_text() for p in Path().glob("said-*")]
        time.sleep(0.05)


def records_of(root: Path) -> Counter[str]:
    keys: Counter[str] = Counter()
    for part in root.glob("stages/*/part-*.parquet"):
        keys.update(pq.read_table(part, columns=["key"]).column("key").to_pylist())
    return keys


def tables(root: Path) -> dict[str, bytes]:
    names = ("leaderboard.json", "leaderboard.csv", "differences.json", "failures.csv")
    return {name: (root / name).read_bytes() for name in names}


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_shards_at_once_one_of_them_killed_make_the_run(folder: Path) -> None:
    root = folder / "run"
    drivers = [start("1/2"), start("2/2")]
    try:
        wait_for("run/stages/Gated*/part-*", 2)
        for others in (["--shard", "1/2"], ["--shard", "1/3"], [], ["--limit", "17"]):
            with pytest.raises(RunInUse):
                invoke("run", *WORDS, "--out", "run", *others)
        drivers[1].send_signal(signal.SIGKILL)
        drivers[1].wait()
        Path("open").touch()
        assert [driver.wait(timeout=240) for driver in drivers] == [0, -signal.SIGKILL]
    finally:
        for driver in drivers:
            driver.kill()
    assert manifest(root)["status"] == "started"
    assert not (root / "leaderboard.json").exists()
    before = records_of(root)
    again = invoke("run", *WORDS, "--out", "run", "--shard", "2/2")
    assert again.exit_code == 0, again.output
    assert (manifest(root)["status"], manifest(root)["counts"]["missing"]) == (
        "finished",
        0,
    )
    assert not list(root.glob("*.lock"))
    whole = folder / "whole"
    assert invoke("run", *WORDS, "--out", "whole").exit_code == 0
    assert tables(root) == tables(whole)
    assert records_of(root) == records_of(whole)
    assert set(before) < set(records_of(root))
    made = [
        json.loads(p.read_text())["counts"]["done"] for p in root.glob("shards/*/*.json")
    ]
    assert sum(made) == manifest(root)["counts"]["done"] == 32
    again = invoke("run", *WORDS, "--out", "run")
    assert "nothing is missing" in again.output
    assert tables(root) == tables(whole)
    assert invoke("verify", "run").exit_code == 0


OPTIONS: dict[str, Any] = {
    "systems": ["gt", "mine:Gated@text"],
    "scorers": ["mine:Length"],
    "weights": "tiny",
    "executor": "local",
    "limit": 12,
    "out": "run",
}


def test_shards_one_after_another_from_python(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    Path("open").touch()
    names = ["1/2", "2/2"]
    plans = [plait.plan(**OPTIONS, shard=name) for name in names]
    assert sum(len(plan.plan) for plan in plans) == len(plait.plan(**OPTIONS).plan) == 24
    assert all(plan.to_run < plait.plan(**OPTIONS).to_run for plan in plans)
    ended = []
    for name in names:
        done = plait.run(**OPTIONS, shard=name)
        ended.append(Path("run/leaderboard.json").exists())
        assert len(done.queries) == 12
    assert ended == [False, True]
    at = os.stat("run/report.html").st_mtime_ns
    assert plait.run(**OPTIONS, shard="1/2").outcome.made == 0
    assert os.stat("run/report.html").st_mtime_ns == at, "there was nothing to report"
    both = ["gt", "mine:Gated@text", "gt:no-images"]
    for name in names:
        plait.run(**OPTIONS | {"systems": ["gt:no-images"]}, shard=name)
        assert manifest(Path("run"))["systems"] == both
    counts = manifest(Path("run"))["counts"]
    assert (counts["planned"], counts["missing"]) == (36, 0)


def test_a_shard_is_not_trimmed(folder: Path) -> None:
    with pytest.raises(UsageError):
        invoke("plan", *WORDS, "--shard", "1/2", "--trim", "--budget-hours", "1")
