"""Paths in object stores, such as s3://bucket/run, which run directories may have.

    root = any_path("s3://bucket/run")
    (root / "manifest.json").read_text()

A BucketPath has those methods of `pathlib.Path` that run directories need, over obstore
(`pip install 'plait[buckets]'`), and conditional writes. Credentials, region and endpoint
are read from the environment, as obstore documents them (AWS_ACCESS_KEY_ID, AWS_REGION,
AWS_ENDPOINT_URL; GOOGLE_SERVICE_ACCOUNT; AZURE_STORAGE_ACCOUNT_NAME ...). What is written
appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from plait.generators.errors import PlaitError, UsageError
from plait.generators.extras import import_extra
from plait.generators.packs import PackPath, pack_path

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Version = Mapping[str, str]
"""Identifies what an object holds: its e_tag, and a version where the store has them."""
_URL = re.compile(r"(?P<bucket>(?:s3|gs|az)://[^/@?#]+)(?P<key>(?:/[^?#]*)?)")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")
_MOST_RETRIES = 8
"""About half a minute: a server that is restarted loses no batch, a wrong address is soon
named."""
_TAIL_BYTES = 1 << 16
"""The end of an object, which is read when it is opened: it holds all of a small part."""
_METADATA_SERVER = "169.254.169.254"
"""Where machines of a provider find the credentials of their role: asked where there are no
others."""


class BucketError(PlaitError, OSError):
    """An object store refuses a request or does not answer; names the object."""

    def __str__(self) -> str:
        return str(self.strerror)


class ObjectStat(NamedTuple):
    """What a store says of an object, under the names of `os.stat_result`."""

    st_size: int
    st_mtime: float
    """By the store's clock."""


@dataclass(frozen=True, order=True, slots=True)
class BucketPath:
    """The URL of an object, or of the objects below it; used as a `pathlib.Path`.

    Methods raise FileNotFoundError where there is no such object, BucketError otherwise.
    """

    bucket: str
    """Such as s3://bucket."""
    key: PurePosixPath
    _listed: ObjectStat | None = field(default=None, compare=False, repr=False)
    """As it was when its folder was listed."""

    def __str__(self) -> str:
        return f"{self.bucket}/{self.key}" if self.key.name else self.bucket

    def __truediv__(self, name: str | PurePosixPath) -> BucketPath:
        return BucketPath(self.bucket, self.key / name)

    @property
    def name(self) -> str:
        """The last part of the key; of a whole bucket, its name."""
        return self.key.name or self.bucket.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return self.key.stem

    @property
    def parent(self) -> BucketPath:
        """The path that this one is below."""
        return BucketPath(self.bucket, self.key.parent)

    def with_suffix(self, suffix: str) -> BucketPath:
        """Return the path with another suffix."""
        return BucketPath(self.bucket, self.key.with_suffix(suffix))

    @property
    def parents(self) -> tuple[BucketPath, ...]:
        """All paths that this one is below, the nearest first."""
        return tuple(BucketPath(self.bucket, key) for key in self.key.parents)

    def expanduser(self) -> BucketPath:
        """Itself, as it is absolute."""
        return self

    resolve = expanduser

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Nothing: folders of a bucket are names that objects have in common."""

    def rmdir(self) -> None:
        """Nothing, for the same reason."""

    # ------------------------------------------------------------------------ reading

    def exists(self) -> bool:
        """Return whether there is such an object."""
        try:
            self._head()
        except FileNotFoundError:
            return False
        return True

    is_file = exists

    def is_dir(self) -> bool:
        """Return whether there are objects below it."""
        return next(self.iterdir(), None) is not None

    def stat(self) -> ObjectStat:
        """Size and time of the object; as listed, where it comes from a listing."""
        return self._listed or self._head()

    def _head(self) -> ObjectStat:
        obstore = _obstore()

        with _errors(self):
            return _stat(obstore.head(*self._place))

    def read_bytes(self) -> bytes:
        """Return the object."""
        return self.read_version()[0]

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the object as text."""
        return self.read_bytes().decode(encoding)

    def read_version(self) -> tuple[bytes, Version]:
        """Return the object, and what `replace` takes to replace just this content."""
        obstore = _obstore()

        with _errors(self):
            reply = obstore.get(*self._place)
            return bytes(reply.bytes()), _version(reply.meta)

    def read_range(self, start: int, end: int) -> bytes:
        """Some bytes of the object."""
        obstore = _obstore()

        with _errors(self):
            return bytes(obstore.get_range(*self._place, start=start, end=end))

    def open(self) -> ObjectReader:
        """Return the object to be read from, as a binary file."""
        return ObjectReader(self)

    def iterdir(self) -> Iterator[BucketPath]:
        """The objects and folders directly below it; none where there are none."""
        obstore = _obstore()

        store, key = self._place
        with _errors(self):
            found = obstore.list_with_delimiter(store, key or None)
        for folder in found["common_prefixes"]:
            yield BucketPath(self.bucket, PurePosixPath(folder))
        for about in found["objects"]:
            yield BucketPath(self.bucket, PurePosixPath(about["path"]), _stat(about))

    def glob(self, pattern: str) -> Iterator[BucketPath]:
        """The objects and folders whose keys match, name by name, as `Path.glob`."""
        name, _, rest = pattern.partition("/")
        for path in self.iterdir():
            if fnmatchcase(path.name, name):
                yield from path.glob(rest) if rest else (path,)

    # ------------------------------------------------------------------------ writing

    def write_bytes(self, data: bytes) -> None:
        """Write the object whole, over one that is there."""
        self._put(data, "overwrite")

    def create(self, data: bytes) -> Version | None:
        """Write an object where none is; None, and nothing is written, where one is."""
        return self._put(data, "create")

    def replace(self, data: bytes, version: Version) -> Version | None:
        """Write over this very content; None, and nothing is written, over any other."""
        return self._put(data, dict(version))

    def _put(self, data: bytes, mode: Any) -> Version | None:
        obstore = _obstore()
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with _errors(self, writing=True):
            try:
                return _version(obstore.put(*self._place, data, mode=mode))
            except (AlreadyExistsError, PreconditionError):
                return None

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the object, after a look whether there is one unless it may be missing."""
        if not missing_ok:
            self._head()
        unlink_all([self])

    def rename(self, target: BucketPath) -> None:
        """Copy the object to another key, then remove it."""
        obstore = _obstore()

        with _errors(self):
            store, key = self._place
            obstore.rename(store, key, str(target.key))

    @property
    def _place(self) -> tuple[ObjectStore, str]:
        return _store(self.bucket), str(self.key) if self.key.name else ""


AnyPath = Path | BucketPath | PackPath
"""A path on a file system, in an object store or in a zip file, which is only read."""


def any_path(text: str | os.PathLike[str] | BucketPath | PackPath) -> AnyPath:
    """Return the path that `text` names; UsageError.

    In a bucket where it is a URL, and in a pack where it is a zip file or below one.
    """
    if isinstance(text, BucketPath | PackPath):
        return text
    if match := _URL.fullmatch(str(text)):
        return BucketPath(match["bucket"], PurePosixPath(match["key"].lstrip("/")))
    if _SCHEME.match(str(text)):
        raise UsageError(
            f"{text} is not a valid place for a run: name a folder, s3://BUCKET/NAME, "
            "gs://BUCKET/NAME or az://CONTAINER/NAME; credentials, region and endpoint are "
            "read from the environment"
        )
    return pack_path(text) or Path(text)


def _obstore() -> Any:
    return import_extra("obstore", "a path in a bucket (on every node)")


@lru_cache
def _store(bucket: str, most_retries: int = _MOST_RETRIES) -> ObjectStore:
    _obstore()
    from obstore.store import from_url

    timeout = timedelta(minutes=1)
    retries: Any = {"max_retries": most_retries, "retry_timeout": timeout}
    try:
        return from_url(bucket, retry_config=retries)
    except Exception as error:
        raise UsageError(f"{bucket} cannot be opened: {_first_line(error)}") from error


@contextlib.contextmanager
def _errors(path: BucketPath, *, writing: bool = False) -> Iterator[None]:
    """Raise errors of obstore as those of a file system."""
    _obstore()
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except FileNotFoundError as error:
        # Folders need not be there: what a write does not find is the bucket itself.
        if writing:
            about = f"{path.bucket} is not there: {_first_line(error)}"
            raise BucketError(errno.ENODEV, about) from error
        raise FileNotFoundError(
            errno.ENOENT, "there is no such object", str(path)
        ) from error
    except BaseError as error:
        refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        number = errno.EACCES if refused else errno.EIO
        about = f"{path}: {_first_line(error)}"
        if _METADATA_SERVER in str(error):
            about = (
                f"{path}: no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
                "(and AWS_SESSION_TOKEN, where there is one): AWS_PROFILE and the files in "
                "~/.aws are not read, and this machine has no role of its own"
            )
            number = errno.EACCES
        elif refused:
            about += " (credentials are read from the environment)"
        raise BucketError(number, about) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _stat(about: Mapping[str, Any]) -> ObjectStat:
    return ObjectStat(about["size"], about["last_modified"].timestamp())


def _version(about: Mapping[str, Any]) -> Version:
    # A store has an entity tag or a version of an object, or both.
    version = {}
    for name in ("e_tag", "version"):
        if about[name] is not None:
            version[name] = about[name]
    return version


class ObjectReader(io.RawIOBase):
    """An object as a file that Parquet can read from: each read is a request for a range.

    Its end is read when it is opened, and the last other read is kept, because records that
    follow each other are in one row group.
    """

    def __init__(self, path: BucketPath) -> None:
        self._path = path
        self._size = path.stat().st_size
        self._at = 0
        start = max(0, self._size - _TAIL_BYTES)
        self._tail = self._last = start, self._range(start, self._size)

    def _range(self, start: int, end: int) -> bytes:
        return self._path.read_range(start, end) if start < end else b""

    def readable(self) -> bool:
        """Return whether it can be read."""
        return True

    def seekable(self) -> bool:
        """Return whether it can be read from anywhere."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Have the next read begin at `offset`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, fewer at the end."""
        start = self._at
        end = self._size if size < 0 else min(self._size, start + size)
        for first, block in (self._tail, self._last):
            if first <= start and end <= first + len(block):
                break
        else:
            # Neither block that is at hand holds all of it.
            first = start
            block = self._range(start, end)
            self._last = first, block
        self._at = max(start, end)
        return block[start - first : end - first]


def matching(root: AnyPath, pattern: str) -> list[AnyPath]:
    """Return the paths below `root` that match a pattern, in order."""
    return sorted(root.glob(pattern), key=str)


def unlink_all(paths: Sequence[AnyPath]) -> None:
    """Remove files, or objects of one bucket by few requests; any may be gone."""
    for path in paths:
        if isinstance(path, Path):
            path.unlink(missing_ok=True)
    objects = [path for path in paths if isinstance(path, BucketPath)]
    if objects:
        obstore = _obstore()

        with _errors(objects[0]):
            obstore.delete(_store(objects[0].bucket), [str(path.key) for path in objects])


@contextlib.contextmanager
def local_copy(path: AnyPath) -> Iterator[Path]:
    """A file with the content of `path` for as long as it is needed; `path` in a folder."""
    if isinstance(path, Path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="plait-") as file:
        file.write(path.read_bytes())
        file.flush()
        yield Path(file.name)


def refuse_unconditional(folder: BucketPath) -> None:
    """UsageError where the store of `folder` ignores the conditions of writes.

    It is asked to create an object that is there, and to replace one content twice. A
    request whose reply is lost is sent again and fails: what counts is what is there.
    """
    probe = folder / f".probe-{uuid.uuid4().hex}"
    if _lacks_conditions(probe):
        raise _without_conditions(folder, "has no conditional writes (status 501)")
    probe.write_bytes(b"1")
    try:
        _, version = probe.read_version()
        if probe.create(b"2"):
            ignored = "ignores If-None-Match: it created one object twice"
        elif not probe.replace(b"3", version) and probe.read_bytes() != b"3":
            ignored = "ignores If-Match: it did not replace the content that it had given"
        elif probe.replace(b"4", version):
            ignored = "ignores If-Match: it replaced content that was not there any more"
        else:
            return
    finally:
        probe.unlink(missing_ok=True)
    raise _without_conditions(folder, ignored)


def _lacks_conditions(probe: BucketPath) -> bool:
    """Return whether the store answers a condition with status 501.

    It is asked without retries, which would wait for a store that never takes one.
    """
    obstore = _obstore()
    store = _store(probe.bucket, 0)
    try:
        obstore.put(store, str(probe.key), b"0", mode="create")
    except obstore.exceptions.BaseError as error:
        return "501 Not Implemented" in str(error)
    probe.unlink(missing_ok=True)
    return False


def _without_conditions(folder: BucketPath, what: str) -> UsageError:
    return UsageError(
        f"the object store at {_endpoint(folder.bucket)} {what}. Without conditional "
        f"writes two commands could work on {folder} at once. Use one that has them "
        "(Amazon S3, Google Cloud Storage, Azure Blob Storage, Cloudflare R2, MinIO), or a "
        "folder that all nodes see"
    )


def _endpoint(bucket: str) -> str:
    scheme = bucket.partition(":")[0]
    variables = {
        "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    }
    named = (os.environ.get(name) for name in variables.get(scheme, ()))
    return next(filter(None, named), f"the provider's own address for {bucket}")
