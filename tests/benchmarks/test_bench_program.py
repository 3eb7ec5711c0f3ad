"""What the commands of `plait bench` refuse before measuring, and the files they write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plait.benchmarks.bench_program import check_outs, numbers_of, status_of
from plait.generators.errors import UsageError


@pytest.mark.parametrize("name", ["a.csv", "a", "a.json.gz"])
def test_other_endings_are_refused(name: str) -> None:
    check_outs((Path("a.json"), Path("a.md")))
    with pytest.raises(UsageError, match=rf"--out '{name}' must end in .json or .md"):
        check_outs((Path("a.md"), Path(name)))


@pytest.mark.processes
@pytest.mark.parametrize("code", [None, 0, 2, True, "what went wrong", ""])
def test_a_status_is_that_of_a_process_which_ends_so(code: object) -> None:
    end = [sys.executable, "-S", "-c", f"raise SystemExit({code!r})"]
    process = subprocess.run(end, stderr=subprocess.DEVNULL, check=False)
    assert status_of(SystemExit(code)) == process.returncode


@pytest.mark.parametrize("text", ["", "0", "1,", "1,x", "-1", "1.5"])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(
        UsageError, match=rf"--batches '{text}' must be numbers such as 1,2"
    ):
        numbers_of(text, "--batches", "1,2")
