"""`run.log`: what workers write to stderr, and which of them were lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from paths import CHECKOUT
from trial import LIGHT, Witness, plan_of, run, sample, writer

from cluster.plan import EngineOptions, Evaluation
from cluster.run import execute
from cluster.store import Store, StoreError
from cluster.watcher import LOG, STDERR_FOLDER, RunLog, WorkerFailure


def lines(root: Path) -> list[str]:
    """The log's lines without their times."""
    logged = (root / LOG).read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in logged)
    return [line.partition(" ")[2] for line in logged]


def written(root: Path, name: str, text: str) -> Path:
    """What a worker has written so far."""
    folder = root / STDERR_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a") as file:
        file.write(text)
    return folder / name


def test_files_of_workers_are_gathered_in_whole_lines(tmp_path: Path) -> None:
    with RunLog(tmp_path, Witness()) as log:
        written(tmp_path, "writer host 1", "first\nsec")
        log._gather()
        written(tmp_path, "writer host 1", "ond\n\x1b[2J\x07third\twithout an end")
        log._gather()
        assert lines(tmp_path)[1:] == ["writer host 1: first", "writer host 1: second"]
    assert lines(tmp_path)[3:] == [
        "writer host 1: \\x1b[2J\\x07third\twithout an end",
        "plait: run ended",
    ]
    assert not (tmp_path / STDERR_FOLDER).exists()


def test_a_key_that_a_worker_has_printed_is_not_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2-hunter2")
    with RunLog(tmp_path, Witness()):
        written(tmp_path, "writer host 1", "key: hunter2-hunter2\n")
    assert "writer host 1: key: ***" in lines(tmp_path)


def test_what_a_worker_prints_is_masked_before_it_is_written(tmp_path: Path) -> None:
    """A killed driver leaves its workers' files as they are."""
    program = (
        "import os, sys, pathlib; from cluster.watcher import redirect_stderr\n"
        "for stage in ('first', 'second'):\n"
        "    redirect_stderr(pathlib.Path(sys.argv[1]), stage, 'host')\n"
        "    print(stage, os.environ['SOME_API_KEY'], file=sys.stderr)\n"
        "    os.write(2, b'of a native library\\n')\n"
    )
    env = os.environ | {"SOME_API_KEY": "hunter2-hunter2", "PYTHONPATH": str(CHECKOUT)}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=env, check=True)
    files = sorted((tmp_path / STDERR_FOLDER).iterdir())
    written = [file.read_text() for file in files]
    assert written == [f"{s} ***\nof a native library\n" for s in ("first", "second")]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_what_a_killed_driver_left_is_gathered_by_the_next(tmp_path: Path) -> None:
    written(tmp_path, "writer host 1", "last words\n")
    with RunLog(tmp_path, Witness()):
        pass
    assert "writer host 1: last words" in lines(tmp_path)


def test_notices_and_failures_are_written_down_and_passed_on(tmp_path: Path) -> None:
    witness = Witness()
    failure = WorkerFailure("2026-01-01T00:00:00Z", "writer", "host", "died", "why", 2)
    with RunLog(tmp_path, witness) as log:
        log.notice("take care")
        log.worker_failed(failure)
    assert (witness.notices, witness.failures) == (["take care"], [failure])
    assert lines(tmp_path)[1:3] == [
        "plait: take care",
        "plait: worker of writer on host died: why (2 records in flight)",
    ]
    first = log.all_failures(None)
    assert first == {"total": 1, "listed": [failure.as_json()]}
    assert log.all_failures(first) == {"total": 2, "listed": [failure.as_json()] * 2}


def unreadable(evaluations: Iterator[Evaluation], store: Store) -> Iterator[Evaluation]:
    raise StoreError("Input/output error")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_address")
def test_a_run_logs_what_its_workers_write_and_tells_of_those_it_loses(
    tmp_path: Path,
) -> None:
    texts = ["", "!raise", "!kill", "!hang", "!complain"]
    samples = [sample(i, text) for i, text in enumerate(texts)]
    place = replace(LIGHT, batch_size=1, batch_timeout_s=1.0)
    witness, plan = Witness(), plan_of(samples, write=writer(place))
    with pytest.raises(StoreError):
        execute(plan, tmp_path, EngineOptions(), {}, witness, unreadable)
    assert json.loads((tmp_path / "manifest.json").read_text())["status"] == "interrupted"

    kinds = {failure.kind for failure in witness.failures}
    assert kinds == {"died", "timed out"}
    assert {f.stage for f in witness.failures} == {"writer"}
    about = json.loads((tmp_path / "manifest.json").read_text())["worker_failures"]
    assert about["total"] == len(witness.failures) >= 6  # three for each of the two
    run(plan_of(samples[:1], write=writer(place)), tmp_path, Witness())
    again = json.loads((tmp_path / "manifest.json").read_text())["worker_failures"]
    assert again == about  # of all commands
    assert {f["kind"] for f in about["listed"]} == kinds
    assert "took longer than 1 s" in {f["reason"] for f in about["listed"]}

    log = (tmp_path / LOG).read_text()
    assert "complaint about 'query 4 !complain'" in log
    assert "complaint of a native library" in log
    assert "Traceback (most recent call last)" in log
    assert "RuntimeError: cannot draft 'query 1 !raise'" in log
    assert log.count(" timed out: took longer than 1 s") >= 3
