"""`run.log`: what workers write to stderr, and which of them were lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from paths import SOURCE
from trial import Witness

from plait.cluster.manifest import LOADS
from plait.cluster.watcher import LOG, STDERR_FOLDER, RunLog, WorkerFailure


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


@pytest.mark.processes
def test_what_a_worker_prints_is_masked_before_it_is_written(tmp_path: Path) -> None:
    """A killed driver leaves its workers' files as they are."""
    program = (
        "import os, sys, pathlib; from plait.cluster.watcher import redirect_stderr\n"
        "for stage in ('first', 'second'):\n"
        "    redirect_stderr(pathlib.Path(sys.argv[1]), stage, 'host')\n"
        "    print(stage, os.environ['SOME_API_KEY'], file=sys.stderr)\n"
        "    os.write(2, b'of a native library\\n')\n"
    )
    env = os.environ | {"SOME_API_KEY": "hunter2-hunter2", "PYTHONPATH": str(SOURCE)}
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
        log.worker_ready("writer-1", 1.5, False)
    assert (witness.notices, witness.failures) == (["take care"], [failure])
    assert (log.ready[LOADS], witness.loaded) == ({"writer-1": [1.5]}, ["writer-1"])
    assert lines(tmp_path)[1:3] == [
        "plait: take care",
        "plait: worker of writer on host died: why (2 records in flight)",
    ]
    first = log.all_failures(None)
    assert first == {"total": 1, "listed": [asdict(failure)]}
    assert log.all_failures(first) == {"total": 2, "listed": [asdict(failure)] * 2}
