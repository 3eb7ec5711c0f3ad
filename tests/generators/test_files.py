"""Files are written whole or not at all, and errors name the folder and the cause."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import plait.cli
from plait.cluster.lock import RunLock
from plait.generators.base import Kind, StageSpec
from plait.generators.errors import WriteError
from plait.generators.files import safe_name, write_pieces, write_whole


def test_text_and_bytes_are_written_into_folders_that_are_made(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b.txt", "half a smiley \ud83d")
    write_whole(tmp_path / "a" / "c.bin", b"\x00\xff", durable=False)
    assert (tmp_path / "a" / "b.txt").read_text() == "half a smiley \\ud83d"
    assert (tmp_path / "a" / "c.bin").read_bytes() == b"\x00\xff"
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["b.txt", "c.bin"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "old")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), refuse)
    with pytest.raises(WriteError, match=str(tmp_path)) as refused:
        write_whole(path, "new")
    assert refused.value.errno == errno.EIO
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems cannot flush folders, which is no reason to fail."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def flush(handle: int) -> None:
        steps.append("fsync")
        if len(steps) == 3:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(
        Path, "replace", lambda a, b: steps.append("rename") or replace(a, b)
    )
    write_whole(tmp_path / "a", "x")
    write_whole(tmp_path / "b", "x", durable=False)
    assert steps == ["fsync", "rename", "fsync", "rename"]
    assert (tmp_path / "a").read_text() == "x"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which a test may fill or make read-only."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "large").open("wb", buffering=0) as large:
        while True:
            large.write(b"x" * 1024)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("spoil", "number"), [(make_read_only, errno.EROFS), (fill, errno.ENOSPC)]
)
def test_a_disk_that_takes_nothing_is_named_and_has_no_empty_lock(
    disk: Path, spoil, number: int
) -> None:
    spoil(disk)
    with pytest.raises(WriteError) as refused, RunLock(disk):
        pass
    cause = os.strerror(number)
    assert str(refused.value) == f"cannot write to {disk}: {cause}"
    assert plait.cli._status_of(refused.value) == 1
    assert not (disk / "run.lock").exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hf:org/a model@v1.0", "hf_org_a_model_v1.0"),
        ("../x y\n", ".._x_y_"),
        ("größer-1_a.b", "größer-1_a.b"),
        ("", ""),
    ],
)
def test_a_stage_keeps_the_folder_of_its_records(text: str, name: str) -> None:
    assert safe_name(text) == name
    spec = StageSpec(name=text + "d" * 70, kind=Kind.DRAFT, target="m:C")
    assert spec.folder == f"{(name + 'd' * 70)[:60]}-{spec.digest[:12]}"


def test_pieces_make_one_file_and_a_failure_leaves_the_old_one(
    tmp_path: Path,
) -> None:
    def pieces() -> Iterator[str]:
        yield "new"
        raise ValueError("no more")

    path = tmp_path / "a"
    write_pieces(path, ["ol", b"d", "\ud800"])
    assert path.read_bytes() == b"old\\ud800"
    with pytest.raises(ValueError, match="no more"):
        write_pieces(path, pieces())
    assert path.read_bytes() == b"old\\ud800"
    assert [*tmp_path.iterdir()] == [path]
