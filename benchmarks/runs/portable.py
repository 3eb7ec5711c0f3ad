"""What a run that is sent to others may say of the machine that made it.

    portable = Portable.of(root, manifest)
    portable.about(manifest)    # without keys and without absolute paths

A path is left with what it has below a folder that is known, such as the run's, else with
its last part: enough to tell files apart, and nothing of where they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeVar

from plait.generators.buckets import AnyPath
from plait.generators.secrets import key_mask, without_keys

T = TypeVar("T")
Change = Callable[[str], str]
_BEGIN = r"(?<![\w.~/\\<>)\]}*%?&#@+-])"
"""Where a path may begin: not inside a word, a fraction, a URL or a closing tag."""
_START = r"(?:(?:s3|gs|az)://|[A-Za-z]:[\\/]+|\\\\+|(?!(?<=:)//)/+)"
"""How an absolute path begins: of a bucket, a drive, a share, or of POSIX."""
_URL = r"(?!(?:s3|gs|az)://)\b[A-Za-z][\w+.-]+://[^\s\"'`<>]*"
_PATH = re.compile(
    rf"(?P<url>{_URL})|{_BEGIN}{_START}(?:[^\s\"'`<>|,;:\\/]+[\\/]+)*(?=[^\s\\/])"
)
"""All but the last part of a path; or a URL, which is none."""
_QUOTED = re.compile(
    rf"(?<=[\"'`]){_START}(?:[^\"'`\n\\/]+[\\/]+)*(?=[^\"'`\n\\/]+[\\/]*[\"'`])"
)
"""The same within quotes, where it may hold spaces."""
_FILE_URL = re.compile(r"\bfile://(?:localhost)?(?=/)", re.IGNORECASE)
_WHOLE = re.compile(rf"(?:[\w.+-]+[:=])*?({_START}[^\n]+)")
"""One that is all of a text, after names as in NAME=FORMAT:PLACE."""
_WITH_PASSWORD = re.compile(r"(?<=://)[^\s/@\"'<>]+@")
_LEFT_OUT: Mapping[str, Any] = {"address": None, "cluster": {}, "servers": {}}
"""What stands in a config for how machines are reached, and what was started on them."""
_WORDED = ("prompts", "composition", "rubrics", "settings")
"""Keys below which texts are what models are asked in."""
_GIVEN = ("argv", "models")
"""Keys below which texts are what users have typed, which may be a key of an API."""


@dataclass(frozen=True)
class Portable:
    """Takes keys and absolute paths out of plain data and out of texts."""

    folders: tuple[str, ...]
    """Absolute paths; of what lies in them, the path from there is left."""

    @classmethod
    def of(cls, root: AnyPath, manifest: Mapping[str, Any]) -> Portable:
        """Return that of the run at `root`; it knows the paths that its manifest names."""
        named = [manifest.get(name) for name in ("config", "data", "argv")]
        folders = [str(root.resolve()), str(manifest["config"].get("out") or "")]
        for text in _texts(named):
            whole = _WHOLE.fullmatch(text)
            if whole is not None:
                folders += [str(above) for above in _flavour(whole[1]).parents]
        folders.append(str(Path.home()))
        known = [folder for folder in folders if _is_deep(folder)]
        return cls(tuple(dict.fromkeys(known)))

    def about(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is said of a run, such as its manifest, as it may be sent."""
        config = {}
        for name, value in facts["config"].items():
            config[name] = _LEFT_OUT.get(name, value)
        return self.data({**facts, "config": config})

    def data(self, value: T, change: Change | None = None) -> T:
        """Return plain data with every text in it as `text` returns it, keys too.

        Prompts and rubrics are as `content` returns them, unless all of one is a path.
        """
        change = change or self.text
        cleaned: Any = value
        if isinstance(value, str):
            cleaned = change(value)
        elif isinstance(value, Mapping):
            cleaned = {}
            for key, inner in value.items():
                change_inner = change
                if key in _WORDED:
                    change_inner = self._wording
                elif key in _GIVEN:
                    change_inner = self._user_text
                cleaned[self.data(key, change)] = self.data(inner, change_inner)
        elif isinstance(value, list | tuple):
            cleaned = type(value)(self.data(item, change) for item in value)
        return cleaned  # type: ignore[no-any-return]

    def text(self, text: str) -> str:
        """Return a text without known keys and absolute paths; all else as it is."""
        text = self._mask(text)
        if "/" not in text and "\\" not in text:
            return text
        text = self.content(_WITH_PASSWORD.sub("", _FILE_URL.sub("", text)))
        # Until nothing is left that looks like one.
        while (cleaned := _PATH.sub(_url_of, _QUOTED.sub("", text))) != text:
            text = cleaned
        return text

    def content(self, text: str) -> str:
        """Return what was asked or answered, without the folders that are known.

        Whatever else looks like a path there is what people or models have written.
        """
        return text if self._known is None else self._known.sub("", text)

    def _wording(self, text: str) -> str:
        return self.text(text) if _WHOLE.fullmatch(text) else self.content(text)

    def _user_text(self, text: str) -> str:
        """Return what users have typed, also without what only looks like a key."""
        return self.text(without_keys(text))

    @cached_property
    def _mask(self) -> Change:
        return key_mask()

    @cached_property
    def _known(self) -> re.Pattern[str] | None:
        if not self.folders:
            return None
        longest_first = sorted(self.folders, key=len, reverse=True)
        names = "|".join(re.escape(name.rstrip("\\/")) for name in longest_first)
        return re.compile(rf"{_BEGIN}(?:{names})[\\/]+(?=[^\s\\/])")


def _url_of(match: re.Match[str]) -> str:
    """Return the URL that was matched, which stays; nothing in the place of a path."""
    return match["url"] or ""


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in plain data, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, Iterable):
        for item in value:
            yield from _texts(item)


def _flavour(path: str) -> PurePosixPath | PureWindowsPath:
    """Return a path as one of the system that it is of, by how it begins."""
    return PurePosixPath(path) if path.startswith("/") else PureWindowsPath(path)


def _is_deep(folder: str) -> bool:
    """Whether it names more than where all paths begin."""
    return len(_flavour(folder).parts) > 1
