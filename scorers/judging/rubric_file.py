"""The file of a user's own rubric: TOML, whose errors name the line."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from plait.generators.buckets import AnyPath
from plait.generators.document import Image
from plait.generators.errors import MissingInput, UsageError
from plait.generators.files import write_whole

Place = Sequence[str | int]
"""Where a value stands in a file: keys, and numbers of items from 0."""
IMAGE = "image"
"""The key of a table that is a picture: its path from the file's folder."""


def line_of(text: str, place: Place) -> int:
    """Return the line, from 1, at which what stands at `place` in a TOML text begins.

    That of what holds it, where nothing stands there. A statement ends where the text up to
    it can be read and holds the value; it begins after the statement before it.
    """
    lines = text.splitlines()
    first = 1
    best = 1
    deepest = 0
    for number in range(1, len(lines) + 1):
        blank = not lines[number - 1].partition("#")[0].strip()
        try:
            content = tomllib.loads("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue
        if blank and first == number:
            first = number + 1
            continue
        depth = _depth(content, place)
        if depth > deepest:
            best = first
            deepest = depth
        first = number + 1
    return best


def _depth(content: Any, place: Place) -> int:
    """Return how many steps of `place` lead to something in `content`."""
    for depth, step in enumerate(place):
        try:
            content = content[step]
        except (KeyError, IndexError, TypeError):
            return depth
    return len(place)


@dataclass(frozen=True)
class RubricText:
    """What the file of a user's own rubric says, whether or not that is a rubric."""

    path: AnyPath
    text: str
    content: Mapping[str, Any]

    @classmethod
    def at(cls, path: AnyPath) -> RubricText:
        """Return the text of a file; UsageError where it cannot be read or is no TOML."""
        try:
            text = path.read_text(encoding="utf-8")
            return cls(path, text, tomllib.loads(text))
        except OSError as error:
            raise MissingInput(f"rubric {path}: {error.strerror or error}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"rubric {path} is not valid TOML: {error}") from None

    @cached_property
    def digest(self) -> str:
        """Digest of what it says and shows, whatever its comments and its order are."""
        pictures = {
            path: hashlib.sha256(self._read(path)).hexdigest() for path in self._paths
        }
        said = json.dumps([self.content, pictures], sort_keys=True, default=str)
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    @property
    def _paths(self) -> list[str]:
        return [*_pictures(self.content)]

    def locate(self, place: Place, problem: str) -> str:
        """Return a problem with its file and line: `mine.toml line 7: ...`."""
        return f"{self.path.name} line {line_of(self.text, place)}: {problem}"

    def image(self, path: str) -> Image:
        """Return a picture by its path from the file's folder; PlaitError if it is none."""
        # Imported here: planning a run needs no numpy.
        from plait.generators.images import decode

        image = Image.of(self._read(path))
        decode(image)
        return image

    def keep(self, folder: AnyPath) -> None:
        """Copy the file and its pictures into `folder`, under its digest, unless there."""
        own = folder / self.digest
        if (own / self.path.name).exists():
            return
        for path in self._paths:
            write_whole(own / path, self._read(path))
        write_whole(own / self.path.name, self.text)

    def _read(self, path: str) -> bytes:
        parts = PurePosixPath(path).parts
        if not parts or parts[0] == "/" or ".." in parts:
            raise UsageError(
                f"rubric {self.path}: picture {path!r} must be in the folder of the "
                "rubric, or in a folder in it"
            )
        try:
            return (self.path.parent / path).read_bytes()
        except OSError as error:
            told = f"rubric {self.path}: picture {path!r}: {error.strerror or error}"
            raise MissingInput(told) from None


def _pictures(content: Any) -> Iterator[str]:
    if isinstance(content, Mapping):
        if content.keys() == {IMAGE} and isinstance(content[IMAGE], str):
            yield content[IMAGE]
        else:
            for inner in content.values():
                yield from _pictures(inner)
    elif isinstance(content, list):
        for inner in content:
            yield from _pictures(inner)
