"""Paths in buckets against a real server: contents, listings, conditions, few requests."""

from __future__ import annotations

import contextlib
import errno
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from object_store import IF_MATCH, IF_NONE_MATCH, object_store

from plait.generators.buckets import (
    BucketError,
    BucketPath,
    any_path,
    local_copy,
    refuse_unconditional,
    unlink_all,
)
from plait.generators.errors import UsageError, WriteError
from plait.generators.files import AppendedFile, write_whole


@pytest.mark.parametrize(
    ("text", "name", "parent"),
    [
        ("s3://bucket/runs/x", "x", "s3://bucket/runs"),
        ("s3://bucket/runs/x/", "x", "s3://bucket/runs"),
        ("gs://bucket/x", "x", "gs://bucket"),
        ("az://container", "container", "az://container"),
    ],
)
def test_a_url_is_a_path(text: str, name: str, parent: str) -> None:
    path = any_path(text)
    assert isinstance(path, BucketPath)
    assert (path.name, str(path.parent)) == (name, parent)
    assert str(path) == text.rstrip("/")
    assert any_path(str(path)) == any_path(path) == pickle.loads(pickle.dumps(path)) == path
    assert path in (path / "stages" / "part.parquet").parents
    assert str((path / "part-1.parquet").with_suffix(".unreadable")).endswith(
        "part-1.unreadable"
    )


def test_a_folder_is_a_path_of_the_file_system() -> None:
    assert any_path("runs/s3") == Path("runs/s3")


@pytest.mark.parametrize(
    "text", ["http://host/x", "s3:///x", "s3://key:secret@bucket/x", "s3://bucket/x?y=z"]
)
def test_another_url_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        any_path(text)


def test_objects_are_written_listed_and_removed(
    bucket: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(bucket / "stages" / "a-1" / "part-1.parquet", b"12345")
    write_whole(bucket / "manifest.json", "{}")
    write_whole(bucket / "manifest.json", '{"é": 1}')
    assert (bucket / "manifest.json").read_text() == '{"é": 1}'
    assert [p.name for p in sorted(bucket.iterdir())] == ["manifest.json", "stages"]
    write_whole(bucket / "stages" / "b-2" / "part-2.parquet", b"")
    part, other = sorted(bucket.glob("stages/*/part-*.parquet"))
    assert part == bucket / "stages/a-1/part-1.parquet"
    with monkeypatch.context() as patch:
        patch.delattr(BucketPath, "_head")
        listed = part.stat()
    assert any_path(str(part)).stat() == listed
    assert listed.st_size == 5
    with local_copy(part) as copy:
        assert copy.read_bytes() == b"12345"
    part.rename(part.with_suffix(".unreadable"))
    assert not part.exists()
    assert (bucket / "stages").is_dir()
    with pytest.raises(FileNotFoundError):
        part.unlink()
    part.unlink(missing_ok=True)
    (bucket / "manifest.json").unlink()
    unlink_all([part, part.with_suffix(".unreadable"), other])
    assert list(bucket.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        part.read_bytes()


def test_one_of_two_writes_on_a_condition_takes_place(bucket: BucketPath) -> None:
    lock = bucket / "run.lock"
    first = lock.create(b"1")
    assert first is not None
    assert lock.create(b"2") is None
    second = lock.replace(b"3", first)
    assert second is not None
    assert lock.replace(b"4", first) is None
    assert lock.read_version() == (b"3", second)


@pytest.mark.parametrize("header", [IF_NONE_MATCH, IF_MATCH, f"501:{IF_NONE_MATCH}"])
def test_a_store_that_ignores_conditions_is_refused(
    header: str, bucket: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_unconditional(bucket)
    assert list(bucket.iterdir()) == []
    with object_store(header) as (url, env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(UsageError) as refused:
            refuse_unconditional(BucketPath(url, bucket.key))
    assert env["AWS_ENDPOINT_URL"] in str(refused.value)


def test_missing_credentials_are_named(
    bucket: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No address of which nobody has heard."""
    from obstore.exceptions import GenericError

    error = GenericError("Error performing PUT http://169.254.169.254/latest/api/token")
    monkeypatch.setattr("obstore.head", raising(error))
    with pytest.raises(BucketError, match="AWS_ACCESS_KEY_ID") as refused:
        bucket.exists()
    assert refused.value.errno == errno.EACCES
    assert "169.254" not in str(refused.value)


def raising(error: Exception) -> Callable[..., None]:
    def function(*_: object, **__: object) -> None:
        raise error

    return function


def test_errors_name_the_bucket(bucket: BucketPath) -> None:
    absent = BucketPath("s3://absent", bucket.key)
    with pytest.raises(WriteError, match=r"s3://absent\b") as refused:
        write_whole(absent, b"")
    assert refused.value.errno == errno.ENODEV  # and not ENOENT: it is no file that lacks
    with pytest.raises(BucketError, match=r"s3://absent\b"):
        absent.is_dir()


def test_a_file_in_a_bucket_is_read_by_ranges(
    bucket: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(256)) * 1024
    write_whole(bucket / "part", data)
    requests = list[int]()
    read_range = BucketPath.read_range

    def counted(path: BucketPath, start: int, end: int) -> bytes:
        requests.append(start)
        return read_range(path, start, end)

    monkeypatch.setattr(BucketPath, "read_range", counted)
    with pa.PythonFile((bucket / "part").open()) as file:
        assert file.size() == len(data)
        assert file.read_at(100, len(data) - 100) == data[-100:]
        assert len(requests) == 1  # its end, when it was opened
        for start in (10, 20, 10):
            assert file.read_at(90 - start, start) == data[start:90]
        assert len(requests) == 2  # of the three, one: the others are part of it


def test_text_grows_at_its_end(bucket: BucketPath, tmp_path: Path) -> None:
    """In a bucket until another process has written it: that one goes on."""
    for place in (tmp_path / "log", bucket / "log"):
        for _ in range(2):
            file = AppendedFile(place)
            file.append("one\n")
            file.append("two\n")
            file.save()
        assert place.read_text() == "one\ntwo\none\ntwo\n"
    other = AppendedFile(bucket / "log")
    other.append("three\n")
    other.save()
    for _ in range(2):
        file.append("lost\n")
        file.save()
    assert (bucket / "log").read_text().splitlines()[-1] == "three"


@pytest.mark.parametrize("method", ["create", "replace"])
def test_text_goes_on_after_a_lost_reply(
    bucket: BucketPath, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    file = AppendedFile(bucket / "log")
    file.append("one\n")
    file.save()
    real = getattr(BucketPath, method)

    def lost(*args: Any) -> None:
        real(*args)
        raise BucketError(errno.EIO, "timeout")

    if method == "create":
        file = AppendedFile(bucket / "other")
    monkeypatch.setattr(BucketPath, method, lost)
    with contextlib.suppress(BucketError):
        file.append("two\n")
        file.save()
    monkeypatch.undo()
    file.append("three\n")
    file.save()
    assert file.path.read_text().splitlines()[-2:] == ["two", "three"]
