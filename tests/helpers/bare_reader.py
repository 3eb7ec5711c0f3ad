"""Commands in a process with neither models' libraries, user modules nor a network.

python tests/helpers/bare_reader.py ASKED.json ANSWER.json

`golden_outputs.py --moved` writes what is asked and reads the answer. Libraries and modules
are not found, as where they are not installed; who asks for one is remembered.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from plait.generators.extras import MODULES

CHECKOUT = Path(__file__).resolve().parents[2]
ABSENT = {
    *{module for modules in MODULES.values() for module in modules} - {"pandas"},
    *("torchaudio", "openai", "datasets"),
    *("golden_stages", "comparing_helpers", "api_helpers", "judging_helpers"),
}
"""What a reader's machine does not have; the last four hold the recorded runs' models.

pyarrow looks for pandas by itself, and does without."""
_ADDS_OR_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = (
    *("os.mkdir", "os.rmdir", "os.remove", "os.rename", "os.link", "os.symlink"),
    *("os.truncate", "os.utime", "os.chmod", "os.chown", "os.setxattr"),
)
"""Audit events of what changes a folder, each with paths as its first arguments."""
_TRACEBACK = re.compile(r"Traceback \(most .*?^(?=\w)(.*?)\Z", re.DOTALL | re.MULTILINE)
_OURS = re.compile(rf'File "{re.escape(str(CHECKOUT))}/((?!\.venv|tests)\S+)", line (\d+)')
_asked_for: dict[str, str] = {}
"""By absent module, the line of plait that asked for it first."""
_locked: set[str] = set()
"""Folders in which nothing can be written."""


class _Finder(PathFinder):
    """Finds what Python finds, without what is absent."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in ABSENT:
            _asked_for.setdefault(name, _who_asks())
            return None
        return super().find_spec(name, path, target)


def _who_asks() -> str:
    """The innermost line of plait that is being run, and those that led to it."""
    frame, lines = sys._getframe(2), []
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(str(CHECKOUT)) and "/tests/" not in file:
            place = f"{Path(file).relative_to(CHECKOUT)}:{frame.f_lineno}"
            if not place.startswith(".venv"):
                lines.append(place)
        frame = frame.f_back
    return " < ".join(lines)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what needs a network, and what would be written into a locked folder."""
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        raise OSError(errno.ENETUNREACH, f"no network: {arguments}")
    if not _locked:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = flags & _ADDS_OR_CHANGES if isinstance(flags, int) else mode
        paths = [path] if writes else []
    elif event in _CHANGES:
        paths = [path for path in arguments if isinstance(path, str | os.PathLike)]
    else:
        return
    for path in paths:
        if _is_locked(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _may_access(path: Any, mode: int, **more: Any) -> bool:
    """What `os.access` says to all but root, whom no permission binds."""
    return _access(path, mode, **more) and not (mode & os.W_OK and _is_locked(path))


_access = os.access


def _is_locked(path: Any) -> bool:
    place = os.path.abspath(path) if isinstance(path, str | os.PathLike) else ""
    return any(place == root or place.startswith(root + os.sep) for root in _locked)


@contextmanager
def same_tokens() -> Iterator[None]:
    """Within it, what is drawn at random to name items for raters is counted instead."""
    numbers = count(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_hex", lambda size: f"{next(numbers):0{2 * size}x}")
        yield


@same_tokens()
def main(asked: Path, answer: Path) -> None:
    """Do the commands that `asked` holds, by label, and write what they say to `answer`.

    `locked` are folders in which nothing can be written meanwhile, `rubrics` the digests of
    texts that are taken for the released ones. The table of the `run`
    is written to the file `table`; the error that there is instead is said.
    """
    from cli_helpers import plait

    content = json.loads(asked.read_text())
    here = Path.cwd()
    sys.path = [p for p in sys.path if Path(p).resolve() != Path(__file__).parent]
    _locked.update(content["locked"])
    said = {}
    try:
        from plait import api
        from plait.scorers.judging import mmie

        mmie.DIGESTS = content["rubrics"]
        _write_table(api.open_run(content["run"]).table.arrow, Path(content["table"]))
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        said["open_run"] = _TRACEBACK.sub(_error, text)
    for label, words in content["commands"].items():
        done = plait(*words, folder=here, **content["env"])
        text = _TRACEBACK.sub(_error, f"{done.stdout}{done.stderr}")
        said[label] = f"exit status {done.returncode}\n{text}"
    _locked.clear()
    answer.write_text(json.dumps({"said": said, "asked_for": _asked_for}))


def _error(found: re.Match[str]) -> str:
    """The error alone, and the lines of plait that it went through."""
    lines = [f"{file}:{line}" for file, line in _OURS.findall(found[0])]
    return f"{found[1].strip()} ({' < '.join(reversed(lines))})\n"


def _write_table(table: Any, path: Path) -> None:
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def hide_packages() -> None:
    """From now on, find no module that is absent."""
    sys.meta_path[:] = [_Finder if f is PathFinder else f for f in sys.meta_path]


if __name__ == "__main__":
    hide_packages()
    sys.addaudithook(_audit)
    os.access = _may_access
    main(Path(sys.argv[1]), Path(sys.argv[2]))
