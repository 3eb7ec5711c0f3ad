"""Runs in a bucket from the command line, beside the same run in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_helpers import Done, plait
from object_store import IF_NONE_MATCH, object_store
from paths import CHECKOUT

import plait as api
from generators.buckets import BucketPath

STAGES = """
import io, os, time
from pathlib import Path
from PIL import Image as Picture
from generators.base import Result
from generators.document import Draft, Image, Score, Text

class Echo:
    kind, version, seeded = "draft", 1, False
    def __init__(self, **_): self.calls = 0
    def __call__(self, requests):
        self.calls += 1
        if (gate := os.environ.get("GATE")) and self.calls == 3:
            Path(gate).touch()
            time.sleep(10_000)
        return [Result(Draft((Text(self.echo(r)),))) for r in requests]
    def echo(self, request):
        return " ".join(s.text for s in request.turns[-1].content if isinstance(s, Text))

class Paint:
    kind = "render"
    def __init__(self, **_): ...
    def __call__(self, requests):
        return [Result(self.painted(r.prompt)) for r in requests]
    def painted(self, prompt):
        file = io.BytesIO()
        Picture.new("RGB", (16, 16), (len(prompt) % 256, 0, 0)).save(file, "PNG")
        return Image.of(file.getvalue())

class Length:
    kind, scale, direction = "score", "0-10000", "lower"
    def __init__(self, **_): ...
    def __call__(self, candidates):
        return [Result(Score(float(len(c.document.text)))) for c in candidates]
"""
RUN = (
    *("run", "--data", "sample", "--limit", "6", "--weights", "tiny"),
    *("--system", "mine:Echo+mine:Paint", "--system", "gt", "--scorer", "mine:Length"),
    *("--executor", "local", "--set", 'models."mine:Echo".batch_size=1'),
)
DEADLINE_S = 120.0
TABLES = ("leaderboard.json", "leaderboard.csv", "leaderboard.md", "leaderboard.tex")
SAME = (
    *TABLES,
    "differences.json",
    "failures.csv",
    "report/index.js",
    "report/data-000.js",
)


@pytest.fixture(autouse=True)
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(STAGES)
    monkeypatch.syspath_prepend(str(tmp_path))


def said(*words: str) -> Done:
    done = plait(*words)
    assert done.returncode == 0, done.stderr
    return done


def killed_in_the_middle(bucket: BucketPath, tmp_path: Path) -> None:
    """A driver of its own that has committed records; another is refused meanwhile."""
    gate = tmp_path / "gate"
    env = dict(os.environ, GATE=str(gate), PYTHONPATH=str(tmp_path))
    command = [sys.executable, str(CHECKOUT / "plait.py"), *RUN, "--out", str(bucket)]
    quiet = subprocess.DEVNULL
    driver = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=quiet, stderr=quiet)
    deadline = time.monotonic() + DEADLINE_S
    while not (gate.exists() and len(list(bucket.glob("stages/Echo-*/*"))) >= 2):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    refused = plait(*RUN, "--out", str(bucket))
    assert refused.returncode == 2
    assert f"process {driver.pid}" in refused.stderr
    driver.kill()
    driver.wait()
    assert (bucket / "run.lock").exists()


def test_a_run_that_was_killed_ends_as_one_in_a_folder(
    bucket: BucketPath, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    whole = said(*RUN, "--out", str(folder))
    killed_in_the_middle(bucket, tmp_path)
    resumed = said(*RUN, "--out", str(bucket))
    made = [
        int(done.stdout.split(" records made")[0].split()[-1]) for done in (whole, resumed)
    ]
    assert 0 < made[1] <= made[0] - 2
    assert said(*RUN, "--out", str(bucket)).stdout.count(" 0 records made") == 1
    names = sorted(path.name for path in bucket.iterdir())
    assert names == sorted(path.name for path in folder.iterdir() if path.name[0] != ".")
    for name in SAME:
        assert (bucket / name).read_bytes() == (folder / name).read_bytes(), name
    said("report", str(bucket), "--out", str(tmp_path / "copy"))
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {*names} - {"stages"}
    for name in SAME:
        assert (tmp_path / "copy" / name).read_bytes() == (folder / name).read_bytes(), name
    said("verify", str(bucket))
    said("diff", str(folder), str(bucket), "--out", str(tmp_path / "diff.json"))
    for answers in json.loads((tmp_path / "diff.json").read_text())["answers"]:
        assert answers["equal"] == answers["compared"] == 6


def test_a_store_without_conditional_writes_is_refused(
    bucket: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store(IF_NONE_MATCH) as (url, env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        refused = plait(*RUN, "--out", f"{url}/run")
        assert refused.returncode == 2
        assert env["AWS_ENDPOINT_URL"] in refused.stderr
        assert list(BucketPath(url, bucket.key.parent).iterdir()) == []


def test_credentials_and_endpoint_are_not_in_the_run(
    bucket: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(*RUN, "--out", str(bucket))
    text = (bucket / "manifest.json").read_text() + (bucket / "run.log").read_text()
    assert str(bucket) in text
    assert os.environ["AWS_ENDPOINT_URL"] not in text
    assert api.open_run(str(bucket)).manifest["config"]["out"] == str(bucket)
