"""Files are written whole or not at all, and errors name the folder and the cause."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import plait
from cluster.lock import RunLock
from generators.base import Kind, StageSpec
from generators.errors import WriteError
from generators.files import safe_name, write_whole


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
    with pytest.raises(WriteError) as refused:
        write_whole(path, "new")
    assert str(refused.value) == f"cannot write to {tmp_path}: Input/output error"
    assert refused.value.errno == errno.EIO
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: steps.append("fsync") or fsync(fd))
    monkeypatch.setattr(
        Path, "replace", lambda a, b: steps.append("rename") or replace(a, b)
    )
    write_whole(tmp_path / "a", "x")
    assert steps == ["fsync", "rename", "fsync"]
    write_whole(tmp_path / "b", "x", durable=False)
    assert steps == ["fsync", "rename", "fsync", "rename"]


def test_a_folder_that_cannot_be_flushed_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems know no such thing."""
    fsync, asked = os.fsync, []

    def flush(handle: int) -> None:
        asked.append(handle)
        if len(asked) == 2:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", flush)
    write_whole(tmp_path / "a", "x")
    assert (tmp_path / "a").read_text() == "x"


def mounted(folder: Path, *options: str) -> bool:
    mount = ["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(folder)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which a test may fill or make read-only."""
    if not mounted(tmp_path, "size=64k"):
        pytest.skip("needs the right to mount a small file system")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def remount(disk: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(disk)], check=True)


def test_a_read_only_disk_is_named_and_not_the_lock(disk: Path) -> None:
    remount(disk, "ro")
    with pytest.raises(WriteError) as refused, RunLock(disk):
        pass
    assert str(refused.value) == f"cannot write to {disk}: Read-only file system"
    assert plait._status_of(refused.value) == 1


def test_a_disk_that_goes_read_only_under_a_run_does_not_hide_what_failed(
    disk: Path,
) -> None:
    """The lock cannot be removed either; that is not what the user should read."""

    def fail(folder: Path) -> None:
        with RunLock(disk):
            remount(disk, "ro")
            write_whole(folder / "x", b"x")

    with pytest.raises(WriteError) as refused:
        fail(disk / "stages")
    assert str(refused.value) == f"cannot write to {disk / 'stages'}: Read-only file system"
    assert (disk / "run.lock").exists()  # the next command finds its holder dead


def test_a_full_disk_is_named_and_leaves_no_empty_lock(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "large").open("wb", buffering=0) as large:
        while True:
            large.write(b"x" * 1024)
    with pytest.raises(WriteError) as refused, RunLock(disk):
        pass
    assert str(refused.value) == f"cannot write to {disk}: No space left on device"
    assert not (disk / "run.lock").exists()
    (disk / "large").unlink()
    with RunLock(disk):
        pass


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hf:org/a model@v1.0", "hf_org_a_model_v1.0"),
        ("../x y\n", ".._x_y_"),
        ("größer-1_a.b", "größer-1_a.b"),
        ("", ""),
    ],
)
def test_safe_names_keep_letters_digits_and_three_marks(text: str, name: str) -> None:
    assert safe_name(text) == name
    assert safe_name(text, "-") == "".join(
        a if a == b else "-" for a, b in zip(text, name, strict=True)
    )


def test_a_stage_keeps_the_folder_of_its_records() -> None:
    spec = StageSpec(name="hf:a/b c" + "d" * 70, kind=Kind.DRAFT, target="m:C")
    assert spec.folder == f"hf_a_b_c{'d' * 52}-{spec.digest[:12]}"
