"""Runs in a bucket from the command line, beside the same run in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_helpers import Done, plait
from object_store import IF_NONE_MATCH, object_store
from paths import SOURCE

import plait as api
from plait.generators.buckets import BucketPath
from plait.generators.images import decode

pytestmark = pytest.mark.contract

STAGES = """
import io, os, time
from pathlib import Path
from PIL import Image as Picture
from plait.generators.base import Result
from plait.generators.document import Draft, Image, Score, Text

class Echo:  # with a folder GATE, each process waits there with its second batch
    kind, version, seeded = "draft", 1, False
    calls = 0
    def __init__(self, **_): ...
    def __call__(self, requests):
        Echo.calls += 1
        if (gate := os.environ.get("GATE")) and Echo.calls > 1:
            Path(gate, str(os.getpid())).touch()
            while not Path(gate, "open").exists():
                time.sleep(0.05)
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
QUERIES = 10
RUN = (
    *("run", "--data", "sample", "--limit", str(QUERIES), "--weights", "tiny"),
    *("--system", "mine:Echo+mine:Paint", "--system", "gt", "--scorer", "mine:Length"),
    *("--executor", "local", "--set", 'models."mine:Echo".batch_size=1'),
)
SAME = (
    *("leaderboard.json", "leaderboard.csv", "leaderboard.md", "leaderboard.tex"),
    *("differences.json", "failures.csv", "report/index.js", "report/data-000.js"),
)


@pytest.fixture(scope="module", autouse=True)
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the stages are."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(STAGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder


@pytest.fixture(scope="module")
def folder(mine: Path) -> tuple[Path, int]:
    """The run in a folder, and how many records it made."""
    return mine / "run", made(said(*RUN, "--out", str(mine / "run")))


def said(*words: str) -> Done:
    done = plait(*words)
    assert done.returncode == 0, done.stderr
    return done


def made(done: Done) -> int:
    return int(done.stdout.split(" records made")[0].split()[-1])


Driver = subprocess.Popen[bytes]


@contextmanager
def drivers(
    bucket: BucketPath, mine: Path, gate: Path, *more: tuple[str, ...]
) -> Iterator[list[Driver]]:
    """Commands in processes of their own, which have records of the bucket and wait."""
    env = dict(
        os.environ, GATE=str(gate), PYTHONPATH=os.pathsep.join([str(SOURCE), str(mine)])
    )
    command = [sys.executable, "-m", "plait", *RUN, "--out", str(bucket)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    begun = [subprocess.Popen([*command, *m], env=env, cwd=mine, **quiet) for m in more]
    try:
        for one in begun:
            until((gate / str(one.pid)).exists, begun)
        until(lambda: len([*bucket.glob("stages/Echo-*/*")]) >= len(begun), begun)
        yield begun
    finally:
        for one in begun:
            one.kill()
            one.wait()


def until(happened: Callable[[], bool], begun: list[Driver]) -> None:
    """However slow the machine is: the test has a limit of its own."""
    while not happened():
        assert {one.poll() for one in begun} == {None}
        time.sleep(0.05)


def kill(driver: Driver) -> None:
    driver.kill()
    driver.wait()


def refused(*words: str) -> str:
    done = plait(*words)
    assert done.returncode == 2
    return done.stderr


def names_in(root: Path | BucketPath) -> set[str]:
    """Without hidden ones, such as what a driver that was killed has left."""
    return {path.name for path in root.iterdir() if path.name[0] != "."}


def assert_same(root: Path | BucketPath, folder: Path) -> None:
    for name in SAME:
        assert (root / name).read_bytes() == (folder / name).read_bytes(), name


def test_a_run_that_was_killed_ends_as_one_in_a_folder(
    bucket: BucketPath, mine: Path, folder: tuple[Path, int], tmp_path: Path
) -> None:
    with drivers(bucket, mine, tmp_path, ()) as (driver,):
        assert f"process {driver.pid}" in refused(*RUN, "--out", str(bucket))
        kill(driver)
    assert (bucket / "run.lock").exists()
    whole, records = folder
    assert 0 < made(said(*RUN, "--out", str(bucket))) < records
    assert made(said(*RUN, "--out", str(bucket))) == 0
    assert names_in(bucket) == names_in(whole)
    assert_same(bucket, whole)


def test_shards_in_a_bucket_make_together_what_one_driver_makes(
    bucket: BucketPath, mine: Path, folder: tuple[Path, int], tmp_path: Path
) -> None:
    gate, out = tmp_path / "gate", ("--out", str(bucket))
    gate.mkdir()
    shards = [("--shard", f"{number}/2") for number in (1, 2)]
    with drivers(bucket, mine, gate, *shards) as (first, second):
        for others in ((), ("--shard", "1/3"), ("--shard", "1/2")):
            assert "process" in refused(*RUN, *out, *others)
        wait = ("--wait", "300")
        states = json.loads(said("ctl", str(bucket), "--json", *wait).stdout)
        assert [s["process"]["pid"] for s in states] == [first.pid, second.pid]
        paused = said("ctl", str(bucket), "pause", "--shard", "2/2", *wait).stdout
        assert "2-of-2" in paused
        assert "1-of-2" not in paused
        kill(second)
        (gate / "open").touch()
        assert first.wait() == 0
    assert "has died" in plait("ctl", str(bucket), "--wait", "0").stderr
    whole, records = folder
    assert "leaderboard.json" not in names_in(bucket)
    assert [p.name for p in bucket.glob("*.lock")] == ["shard-2-of-2.lock"]
    again = said(*RUN, *out, *shards[1])
    assert 0 < made(again) < records
    assert not [*bucket.glob("*.lock")]
    assert "'finished'" in plait("ctl", str(bucket)).stderr
    assert names_in(bucket) == names_in(whole) - {"spans.jsonl", "parts.log"} | {"shards"}
    assert_same(bucket, whole)
    assert made(said(*RUN, *out)) == 0
    copy = tmp_path / "copy"
    said("report", str(bucket), "--out", str(copy))
    assert names_in(copy) == names_in(bucket) - {"stages", "shards", "results"}
    assert_same(copy, whole)
    said("verify", str(bucket))
    opened = api.open_run(str(bucket))
    documents = [a.document for a in opened.answers() if a.document is not None]
    assert [decode(image) for document in documents for image in document.images]
    (query, *_) = opened.queries
    shown = [said("show", str(root), query).stdout for root in (whole, bucket)]
    assert shown[1].replace(str(bucket), str(whole)) == shown[0]
    said("diff", str(whole), str(bucket), "--out", str(tmp_path / "diff.json"))
    for answers in json.loads((tmp_path / "diff.json").read_text())["answers"]:
        assert answers["equal"] == answers["compared"] == QUERIES


def test_a_store_without_conditional_writes_is_refused(
    bucket: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store(IF_NONE_MATCH) as (url, env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        assert env["AWS_ENDPOINT_URL"] in refused(*RUN, "--out", f"{url}/run")
        assert list(BucketPath(url, bucket.key.parent).iterdir()) == []


def test_credentials_and_endpoint_are_not_in_the_run(
    bucket: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(*RUN, "--out", str(bucket))
    text = (bucket / "manifest.json").read_text() + (bucket / "run.log").read_text()
    assert str(bucket) in text
    assert os.environ["AWS_ENDPOINT_URL"] not in text
    assert api.open_run(str(bucket)).manifest["config"]["out"] == str(bucket)
