"""Data brought to a local folder, and the rows of its files.

    found = locate("hf:ORG/NAME@REV", ("*.json",))    # a folder on this machine
    rows, digest = load_rows(found.file("rows.json"))

What all readers of data share: paths, snapshots of Hub data sets and unpacked archives;
JSON, lines of it, tables, Parquet and Arrow. A byte that is not UTF-8 becomes a lone
surrogate, so that it is the row which has it that breaks a rule, and no other.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from plait.benchmarks.tasks.reading.rules import RowError, Rule, TaskError, brief
from plait.generators.buckets import AnyPath
from plait.generators.files import LFS_POINTER

T = TypeVar("T")
HUB = "hf:"
_PARQUET_ROWS = 64
"""That are read at once."""
_MORE = "\0more"
"""Where cells beyond the header's stand; no column is called so."""
_BEGIN = re.compile(r"[ \t\n\r]*\[[ \t\n\r]*(\][ \t\n\r]*)?")
_BETWEEN = re.compile(r"[ \t\n\r]*([,\]])[ \t\n\r]*")
"""Marks of a JSON list before its first item, and after each."""


class Located(NamedTuple):
    """Data on this machine."""

    path: Path
    """A file or folder."""
    revision: str | None = None
    """Commit of a Hub data set."""

    @property
    def also(self) -> tuple[Path, ...]:
        """Folders that links of a Hub snapshot lead to."""
        return () if self.revision is None else (self.path.parents[1] / "blobs",)

    @property
    def folder(self) -> Path:
        """The folder, or that of the file."""
        return self.path if self.path.is_dir() else self.path.parent

    def file(self, *names: str) -> Path:
        """Return the file, or the first of these in the folder; TaskError for none."""
        for file in (self.path, *[self.path / name for name in names]):
            if file.is_file():
                return file
        raise TaskError(f"{self.path} holds no {' or '.join(names)}")

    def files(self, names: Sequence[str], hint: str = "") -> list[Path]:
        """Return all of these in the folder, or one as a file; TaskError for others."""
        files = [self.path]
        if self.path.is_dir():
            every = [self.path / name for name in names]
            files = [file for file in every if file.is_file()]
        if not files or any(file.name not in names for file in files):
            known = ", ".join(names)
            raise TaskError(f"{self.path} is none of {known} and holds none of them{hint}")
        return files


def locate(place: str, patterns: Sequence[str], hint: str = "") -> Located:
    """Return what a path or `hf:ORG/NAME@REV` means.

    Of a Hub data set the files that match `patterns` are fetched. Raises TaskError where
    there is no such data, with `hint`.
    """
    if place.startswith(HUB):
        folder = snapshot(place, patterns)
        return Located(folder, folder.name)
    path = Path(place).expanduser().absolute()
    if not path.exists():
        raise TaskError(f"no data at {place!r}{hint}")
    return Located(path)


def snapshot(data: str, patterns: Sequence[str]) -> Path:
    """Return the folder `.../snapshots/<commit>` of `hf:ORG/NAME[@REVISION]`.

    It holds the files that match `patterns`. Without a network the cached snapshot of the
    revision is used. Raises TaskError for an id that is not valid, and when neither the
    Hub nor the cache has the data.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    name, _, revision = data.removeprefix(HUB).partition("@")
    if name.count("/") != 1 or not all(name.split("/")):
        raise TaskError(f"{data!r} is not of the form hf:ORG/NAME@REVISION")
    try:
        path = snapshot_download(
            name,
            repo_type="dataset",
            revision=revision or None,
            allow_patterns=list(patterns),
        )
    except HFValidationError as error:
        raise TaskError(f"{data!r} is not the name of a data set: {error}") from None
    except Exception as error:
        # The Hub's client raises its own errors, those of its HTTP library, and OSErrors.
        raise TaskError(_explain(name, revision, error)) from error
    return Path(path)


def _explain(name: str, revision: str, error: Exception) -> str:
    """Say why a data set of the Hub cannot be had, and what to do."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    access = (
        "MMIE/MMIE asks for access on its Hub page first; then log in"
        if name == "MMIE/MMIE"
        else "If it is private or asks for access, log in"
    )
    return (
        f"data set {name!r} (revision {revision or 'main'}) is neither on the Hub for this "
        f"account nor in the local cache: {lines[0]}. {access} with `hf auth login` or set "
        "HF_TOKEN."
    )


def unpack(archive: Path, cache: Path) -> Path:
    """Return a folder under `cache` whose `images/` holds the images of `archive`.

    Archives with and without a leading `images/` are accepted. Only regular files are
    written, no links and no devices. Raises TaskError for an archive that is damaged or
    names files outside its folder, and where `cache` cannot be written.
    """
    # An archive that has changed is unpacked into another folder.
    stat = archive.stat()
    about = f"{os.path.realpath(archive)}\n{stat.st_size}\n{stat.st_mtime_ns}"
    target = cache / "unpacked" / hashlib.sha256(os.fsencode(about)).hexdigest()[:16]
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
            # Renamed when complete, so that it is complete or absent.
            folder = Path(temporary) / "complete"
            (folder / "images").mkdir(parents=True)
            _extract(archive, folder)
            try:
                folder.rename(target)
            except OSError:
                # Where it is there now, another process was faster.
                if not target.is_dir():
                    raise
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TaskError(f"{archive} cannot be unpacked: {error}") from error
    except OSError as error:
        raise TaskError(
            f"{archive} cannot be unpacked into {target.parent}: {error}. Unpack it beside "
            "the rows, or set XDG_CACHE_HOME to a folder with room."
        ) from error
    return target


def _extract(archive: Path, folder: Path) -> None:
    """Write the regular files of an archive below `folder`; TarError for a name outside."""
    with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            source = tar.extractfile(member) if member.isfile() else None
            if source is not None:
                path = _inside(folder, member.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    shutil.copyfileobj(source, file)
        # To the very end, where the checksum is.
        while stream.read(1 << 20):
            pass


def _inside(folder: Path, name: str) -> Path:
    """Return where a member is written, below `images/`; TarError for any place outside."""
    parts = []
    for part in name.replace("\\", "/").split("/"):
        if part not in ("", "."):
            parts.append(part)
    if name.startswith("/") or ".." in parts or not parts or "\0" in name:
        raise tarfile.TarError(f"it names a file outside its folder: {name!r}")
    if parts[0] != "images":
        parts.insert(0, "images")
    return folder.joinpath(*parts)


def digest_of(paths: Iterable[Path]) -> str:
    """Return the SHA-256 over the contents of files, in the order given."""
    state = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            state.update(hashlib.file_digest(file, "sha256").digest())
    return state.hexdigest()


# ------------------------------------------------------------------------- rows of files


def load_json(path: Path, kind: type[T], what: str) -> tuple[T, str]:
    """Return what the JSON file at `path` holds, of `kind`, and the file's SHA-256."""
    text, digest = _text_of(path)
    with _decoding(path):
        content = json.loads(text)
    if not isinstance(content, kind):
        raise TaskError(f"{path} must hold {what}, not {brief(content)}")
    return content, digest


def load_listed(path: Path, key: str) -> list[Any]:
    """Return the list that the object in a JSON file has under `key`."""
    values = load_json(path, dict, f"an object with {key}")[0].get(key)
    if not isinstance(values, list):
        raise TaskError(f"{path}: {key} must be a list, not {brief(values)}")
    return values


def load_rows(path: Path) -> tuple[Rows, str]:
    """Return the rows of the list that a JSON file holds, and the file's SHA-256."""
    text, digest = _text_of(path)
    return Rows(path, text), digest


def load_lines(path: Path) -> list[Any]:
    """Return the values of a file of JSON lines; TaskError where no line is JSON.

    A line that is none is the RowError that says so, which `Row.of` raises: its row alone
    is refused.
    """
    values = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            values.append(value_of_line(line, number))
    if values and all(isinstance(value, RowError) for value in values):
        raise TaskError(f"{path}, {values[0].detail}")
    return values


def value_of_line(line: str, number: int) -> Any:
    """Return what a line holds, or the error in its place, which spoils its row alone."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return RowError(Rule.WRONG_TYPE, f"line {number} is not JSON: {error}")


def load_any_rows(path: AnyPath) -> list[Any]:
    """Return the rows of a JSON list, of a JSON object (one), or of lines of JSON.

    A line that is not JSON is a row that is a string.
    """
    text = read_text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        content = [_json_or_text(line) for line in text.split("\n") if line.strip()]
        if not any(isinstance(row, dict) for row in content):
            raise TaskError(f"{path} is neither JSON nor lines of it: {error}") from None
    return content if isinstance(content, list) else [content]


def _json_or_text(line: str) -> Any:
    """Return what a line holds, or the line itself where it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def read_text(path: AnyPath) -> str:
    """Return the text of a file of data; TaskError where it cannot be read.

    A mark of byte order is left out, and every line ends with a line feed. Split it at
    these alone: `str.splitlines` also ends lines at characters that JSON and tables may
    hold, such as U+2028.
    """
    text = _decode(path, _bytes_of(path))
    return text.replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True, slots=True)
class TextLines:
    """The lines of a file as `read_text` has them, with their ends.

    They are read as they are needed, and again when they are iterated over again. TaskError
    where they cannot be.
    """

    path: Path

    def __iter__(self) -> Iterator[str]:
        """Yield each line."""
        try:
            with self.path.open("rb") as binary:
                refuse_other_text(self.path, binary.peek(len(LFS_POINTER)))
                yield from io.TextIOWrapper(binary, "utf-8-sig", "surrogateescape")
        except OSError as error:
            raise _unreadable(self.path, error) from None


class FilesAsFound:
    """Files before they are read, to notice when others write to them meanwhile."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._states = {path: _state_of(path) for path in paths}

    def refuse_changes(self) -> None:
        """TaskError where a file is no longer the one that it was."""
        for path, state in self._states.items():
            if _state_of(path) != state:
                raise TaskError(
                    f"{path} has changed while it was read: run the command again when "
                    "nothing writes to it"
                )


def _state_of(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is written to or replaced; TaskError for no file."""
    try:
        stat = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _unreadable(path: AnyPath, error: OSError) -> TaskError:
    return TaskError(f"{path} cannot be read: {error.strerror or error}")


def _bytes_of(path: AnyPath) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None


def _decode(path: AnyPath, data: bytes) -> str:
    """Return bytes as text, those that are no UTF-8 as surrogates; TaskError for UTF-16."""
    refuse_other_text(path, data)
    return data.decode("utf-8-sig", "surrogateescape")


def refuse_other_text(path: AnyPath, data: bytes) -> None:
    """Raise TaskError where the bytes with which a file begins are no text in UTF-8."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data[:4]:
        raise TaskError(f"{path} is UTF-16 or no text; save it as UTF-8")
    _refuse_pointer(path, data)


def _refuse_pointer(path: AnyPath, data: bytes) -> None:
    if data.startswith(LFS_POINTER):
        raise TaskError(f"{path} is a Git LFS pointer: run git lfs pull")


def _text_of(path: Path) -> tuple[str, str]:
    """Return the text of a file and the SHA-256 of its bytes; TaskError."""
    data = _bytes_of(path)
    return _decode(path, data), hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Within it, text of `path` that is not JSON raises TaskError."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path} is not JSON: {error}") from None


@dataclass(frozen=True)
class Rows:
    """The rows of a JSON file, decoded one by one, each time they are iterated over.

    As objects they take several times the memory of their text. Raises TaskError where
    the file is not JSON or holds no list.
    """

    path: Path
    text: str = field(repr=False)

    def __iter__(self) -> Iterator[Any]:
        """Yield each row."""
        for _, row in self._with_places():
            yield row

    def lines(self) -> Iterator[int]:
        """Yield the line, from 1, at which each row begins."""
        line = 1
        before = 0
        for at, _ in self._with_places():
            line += self.text.count("\n", before, at)
            before = at
            yield line

    def _with_places(self) -> Iterator[tuple[int, Any]]:
        """Yield each row with its place in the text."""
        begin = _BEGIN.match(self.text)
        if begin is None:
            # It raises the error that says what the file holds instead.
            load_json(self.path, list, "a list of rows")
            return
        decode = json.JSONDecoder().raw_decode
        at = begin.end()
        # Of an empty list the closing bracket follows at once.
        ended = begin[1] is not None
        with _decoding(self.path):
            while not ended:
                row, end = decode(self.text, at)
                yield at, row
                mark = _BETWEEN.match(self.text, end)
                if mark is None:
                    raise json.JSONDecodeError("Expecting ',' delimiter", self.text, end)
                at = mark.end()
                ended = mark[1] == "]"
            if at < len(self.text):
                raise json.JSONDecodeError("Extra data", self.text, at)


@contextlib.contextmanager
def cells_of_any_length() -> Iterator[None]:
    """Lift the limit of the module `csv` within."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def load_table(
    path: Path, columns: Iterable[str], delimiter: str = ","
) -> Iterator[dict[str, str]]:
    """Yield the rows of a table by column; missing cells are empty.

    Cells may be of any length. Raises TaskError when it cannot be read, lacks one of
    `columns`, or has a row of more cells than the header.
    """
    # In published tables of tabs every cell is quoted; where one is not, its quotation mark
    # would take in the rows that follow.
    is_strict = delimiter == "\t"
    try:
        with path.open("rb") as binary, cells_of_any_length():
            refuse_other_text(path, binary.peek(len(LFS_POINTER)))
            file = io.TextIOWrapper(binary, "utf-8-sig", "surrogateescape", newline="")
            table = csv.DictReader(
                file, delimiter=delimiter, restkey=_MORE, restval="", strict=is_strict
            )
            names = table.fieldnames or ()
            lacking = [name for name in columns if name not in names]
            if lacking:
                raise TaskError(
                    f"{path} lacks the columns {', '.join(lacking)} of the published file; "
                    f"it has {', '.join(names) or 'none'}"
                )
            for row in table:
                if _MORE in row:
                    raise csv.Error(f"line {table.line_num} has more cells than the header")
                yield row
    except (OSError, csv.Error) as error:
        raise TaskError(f"{path} cannot be read as a table: {error}") from None


def parquet_files(root: Path, split: str) -> list[Path]:
    """Return the files of a split at `root`, a file or a folder.

    All where no name begins with the split; TaskError where there are none.
    """
    files = [root] if root.is_file() else sorted(root.rglob("*.parquet"))
    if not files:
        raise TaskError(f"{root} holds no Parquet files")
    of_split = [file for file in files if file.name.startswith(split)]
    return of_split or files


def parquet_rows(paths: Iterable[Path]) -> Iterator[Any]:
    """Yield all rows of the files as plain values; TaskError for an unreadable one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in paths:
        try:
            with path.open("rb") as file:
                _refuse_pointer(path, file.read(len(LFS_POINTER)))
            for batch in pq.ParquetFile(path).iter_batches(_PARQUET_ROWS):
                yield from _plain_rows(batch)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise TaskError(f"{path} cannot be read: {error}") from None


def arrow_rows(paths: Iterable[Path]) -> Iterator[Any]:
    """Yield all rows of Arrow files, as `datasets` saves them, as plain values.

    TaskError for an unreadable one.
    """
    import pyarrow as pa

    for path in paths:
        try:
            with pa.memory_map(str(path)) as file, _arrow_reader(file) as reader:
                for batch in reader:
                    for start in range(0, batch.num_rows, _PARQUET_ROWS):
                        yield from _plain_rows(batch.slice(start, _PARQUET_ROWS))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise TaskError(f"{path} cannot be read: {error}") from None


def _arrow_reader(file: Any) -> Any:
    """Return a reader of batches: `save_to_disk` writes streams, other programs files."""
    import pyarrow as pa

    try:
        return pa.ipc.open_stream(file)
    except pa.ArrowInvalid:
        file.seek(0)
        opened = pa.ipc.open_file(file)
        batches = map(opened.get_batch, range(opened.num_record_batches))
        return pa.RecordBatchReader.from_batches(opened.schema, batches)


def column_names(path: Path) -> tuple[str, ...]:
    """Return the names of the columns of a Parquet or Arrow file; TaskError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            _refuse_pointer(path, file.read(len(LFS_POINTER)))
        if path.suffix.lower() == ".parquet":
            return tuple(pq.read_schema(path).names)
        with pa.memory_map(str(path)) as mapped, _arrow_reader(mapped) as reader:
            return tuple(reader.schema.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None


def _plain_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch as plain values."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        # One text that is no UTF-8 fails the whole batch, which is then read by cells.
        for row in range(batch.num_rows):
            values = {}
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                values[name] = _plain(column[row])
            yield values


def _plain(scalar: Any) -> Any:
    """Return an Arrow scalar as `as_py` does, bytes that are no UTF-8 as surrogates."""
    import pyarrow as pa

    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.DictionaryScalar):
        return _plain(scalar.value)
    if isinstance(scalar, pa.StructScalar):
        return {name: _plain(value) for name, value in scalar.items()}
    if isinstance(scalar, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return [_plain(value) for value in scalar.values]
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes().decode("utf-8", "surrogateescape")
