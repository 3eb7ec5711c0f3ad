"""Texts and images of users' own rows, in the forms in which people have them.

A text may hold `<image>` marks, which the row's images take in order, or `<image 2>`, which
the second takes. A list holds texts and images; a chat has turns of `role` and `content`
(OpenAI) or `from` and `value` (LLaVA, ShareGPT). An image is a path relative to the file, a
data URL, bytes, base64, `{"bytes": ..., "path": ...}` as data sets of Hugging Face hold it,
or a URL of a host that the user has listed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.reading.images import (
    IMAGE_SUFFIXES,
    ImageCache,
    ImageFolder,
    Progress,
    from_base64,
    is_data_url,
)
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, brief, of_type
from plait.generators.document import Content, Image, Role, Text, Turn
from plait.generators.files import write_whole

ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "bot"), "assistant"),
    "system": "system",
}
_MARK = re.compile(r"<image(?:[ _]?(\d+))?>")
_BASE64 = re.compile(r"(?:iVBOR|/9j/|R0lGOD|UklGR|Qk|SUkq|TU0A)[\w+/=\s-]{60,}", re.ASCII)
"""Begins as an image of a known kind does; a whole one is searched no further."""
_LONGEST_PATH = 1024
_LONGEST_REFERENCE = 64
"""VLMEvalKit takes a longer text for an image, and this for the row that has it."""
_IMAGE_KEYS = ("image", "image_url", "url", "path", "value", "content")
"""Where a part of a kind of image has it."""
_TEXT_KEYS = ("text", "value", "content")
_OBJECT_KEYS = {"type", "role", "from", "text", "bytes", "path", "image", "image_url"}
"""Of turns and parts."""


def is_url(value: Any) -> bool:
    """Return whether a value is the URL of something to be fetched."""
    start = value[:8].lower() if isinstance(value, str) else ""
    return start.startswith(("http://", "https://"))


def is_base64(value: Any) -> bool:
    """Return whether a value is a whole image as base64."""
    return isinstance(value, str) and bool(_BASE64.match(value.lstrip()[:80]))


def parse(value: Any) -> Any:
    """Return the list or object that a text of JSON or Python holds, else the value.

    A cell of a table has no other way to hold one.
    """
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(value.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list | dict):
            return found
    return value


def parse_content(value: Any, *, in_table: bool) -> Any:
    """Return the chat, or list of texts and images, that a cell of a table holds as text.

    Everything else stays: a text may be JSON.
    """
    found = parse(value) if in_table else value
    if not isinstance(value, str) or not isinstance(found, list):
        return value
    has_objects = False
    for item in found:
        if isinstance(item, dict):
            has_objects = True
            if not item.keys() & _OBJECT_KEYS:
                return value
        elif not isinstance(item, str):
            return value
    # A list of texts alone may be a text that is JSON.
    return found if has_objects else value


def is_chat(value: Any) -> bool:
    """Return whether a value is a list of turns."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and bool(first.keys() & {"role", "from"})


@dataclass
class _Supply:
    """The images of a row, which its marks take."""

    images: Sequence[Image]
    taken: list[int] = field(default_factory=list)
    marks: int = 0

    def take(self, number: str | None) -> Image:
        """Return the next image, or that with a number from 1."""
        self.marks += 1
        at = int(number) - 1 if number else len(self.taken)
        if not 0 <= at < len(self.images):
            mark = f"<image {number}>" if number else f"<image> number {self.marks}"
            raise RowError(Rule.MARKS, f"{mark} has no image: there are {self._count}")
        self.taken.append(at)
        return self.images[at]

    @property
    def rest(self) -> tuple[Image, ...]:
        """All images, where there are no marks; RowError where some have no mark."""
        if not self.marks:
            return tuple(self.images)
        if left := len({*range(len(self.images))} - {*self.taken}):
            detail = f"{self.marks} <image> marks leave {left} of {self._count} images over"
            raise RowError(Rule.MARKS, detail)
        return ()

    @property
    def _count(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class ContentReader:
    """Reads texts and images of rows."""

    folders: tuple[ImageFolder, ...]
    """To which paths are relative; the first that has a file counts."""
    kept: ImageCache
    """Where images go that come inside a file, or from a URL."""
    hosts: tuple[str, ...] = ()
    """From which images are fetched."""
    by_id: Mapping[str, str] = field(default_factory=dict)
    """Base64 of images by the id of the row that has it: others may name that row."""
    unreachable: dict[str, str] = field(default_factory=dict)
    """Why URLs could not be fetched, which is not tried again."""

    # -------------------------------------------------------------------------- images

    def images(self, value: Any, what: str) -> list[Image]:
        """Return one image or a list of them; none for nothing. RowError."""
        value = parse(value)
        listed = value if isinstance(value, list | tuple) else [value]
        images = []
        for i, one in enumerate(listed):
            if one is not None and one != "":
                where = what if len(listed) == 1 else f"{what}[{i}]"
                images.append(self.image(one, where))
        return images

    def image(self, value: Any, what: str) -> Image:
        """Return an image in any form; RowError names the rule that is broken."""
        if isinstance(value, bytes):
            return self.kept.add(value)
        if isinstance(value, dict):
            return self._of_object(value, what)
        text = of_type(value, str, what)
        if len(text) <= _LONGEST_REFERENCE and text in self.by_id:
            text = self.by_id[text]
        if is_data_url(text) or is_base64(text):
            return self.kept.add(from_base64(text, what))
        if is_url(text):
            return self._fetch(text)
        if len(text) > _LONGEST_PATH:
            raise RowError(Rule.UNDECODABLE, f"{what} is no image: {brief(text, 40)}")
        return self._folder_of(text).image(text)

    def _of_object(self, value: Mapping[str, Any], what: str) -> Image:
        """Return the image in an object: its bytes, or what it names first; RowError."""
        data = value.get("bytes")
        if isinstance(data, bytes):
            return self.kept.add(data)
        if isinstance(data, str):
            return self.kept.add(from_base64(data, f"{what}.bytes"))
        for key in _IMAGE_KEYS:
            if value.get(key):
                return self.image(value[key], f"{what}.{key}")
        keys = ", ".join(map(str, value)) or "nothing"
        raise RowError(Rule.MISSING_KEY, f"{what} is no image: it has {keys}")

    def _folder_of(self, path: str) -> ImageFolder:
        for folder in self.folders:
            if Path(folder.place(path)).is_file():
                return folder
        return self.folders[0]

    def _fetch(self, url: str) -> Image:
        """Return the image at a URL, which is fetched once for all commands."""
        from plait.pipelines.endpoints.media import MediaError

        if not self.hosts:
            raise RowError(
                Rule.NOT_FOUND,
                f"{brief(url)} is a URL, and URLs are not fetched unless their hosts are "
                "listed in data.image_hosts",
            )
        named = self.kept.folder / "urls" / hashlib.sha256(url.encode()).hexdigest()
        if named.is_file():
            stored = self.kept.folder / named.read_text()
            if stored.is_file():
                return Image(stored.name, place=str(stored))
        if url not in self.unreachable:
            try:
                return self._keep(url, named)
            except MediaError as error:
                reason = str(error).replace("image_hosts", "data.image_hosts")
                self.unreachable[url] = reason
        raise RowError(Rule.NOT_FOUND, self.unreachable[url])

    def _keep(self, url: str, named: Path) -> Image:
        """Fetch an image, and say in the file `named` which one it is; MediaError."""
        import asyncio

        from plait.pipelines.endpoints.media import Media, MediaReader

        with ThreadPoolExecutor(1) as pool:  # in a notebook this thread has a loop already
            reading = MediaReader(self.hosts).read(Media(url))
            fetched = pool.submit(asyncio.run, reading).result()
        image = self.kept.add(fetched.read())
        write_whole(named, f"{image.digest[:2]}/{image.digest}", durable=False)
        return image

    def prepare(self, values: Iterable[Any], on_progress: Progress | None = None) -> None:
        """Read in threads all images that `values` of rows name by path or URL."""
        paths: dict[str, None] = {}
        urls: dict[str, None] = {}
        for text in _texts(values):
            if is_url(text):
                urls[text] = None
            elif _names_image(text):
                paths[text] = None
        if paths and self.folders:
            self.folders[0].check_all(paths, on_progress)
        if urls and self.hosts:
            with ThreadPoolExecutor(8) as pool:
                for done, _ in enumerate(pool.map(self._try_to_fetch, urls), 1):
                    if on_progress is not None:
                        on_progress(done, len(urls))

    def _try_to_fetch(self, url: str) -> None:
        try:
            self._fetch(url)
        except RowError:
            return  # and told where the row is read

    # ------------------------------------------------------------------------- content

    def content(
        self, value: Any, images: Sequence[Image], what: str, *, images_first: bool
    ) -> Content:
        """Return a text, a list or a single part, with the row's images.

        Without marks these stand before it, or behind it. RowError where marks and images
        do not fit each other.
        """
        supply = _Supply(images)
        made = tuple(self._parts(value, supply, what))
        rest = supply.rest
        return (*rest, *made) if images_first else (*made, *rest)

    def turns(self, value: list[Any], images: Sequence[Image], what: str) -> list[Turn]:
        """Return the turns of a chat; without marks, images stand in the first question."""
        supply = _Supply(images)
        turns: list[Turn] = []
        for i, item in enumerate(value):
            row = Row.of(item, f"{what}[{i}]")
            own = row.values
            said = "role" if "role" in own else "from"
            speaker = row.text(said)
            if speaker not in ROLES:
                detail = (
                    f"{row.path(said)} is {brief(speaker)}; valid are {', '.join(ROLES)}"
                )
                raise RowError(Rule.SPEAKER, detail)
            key = "content" if "content" in own else "value"
            parts = tuple(self._parts(own.get(key), supply, row.path(key)))
            turns.append(Turn(ROLES[speaker], parts))
        if rest := supply.rest:
            questions = [i for i, turn in enumerate(turns) if turn.role == "user"]
            at = questions[0] if questions else 0
            turns[at] = Turn(turns[at].role, (*rest, *turns[at].content))
        return turns

    def _parts(self, value: Any, supply: _Supply, what: str) -> Iterator[Text | Image]:
        """Yield the texts and images of a content in any of its forms; RowError."""
        if value is None:
            return
        if isinstance(value, str):
            yield from self._split_at_marks(value, supply, what)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                where = f"{what}[{i}]"
                if isinstance(item, str) and self._is_image(item):
                    yield self.image(item, where)
                else:
                    yield from self._parts(item, supply, where)
        elif isinstance(value, dict):
            yield from self._object(Row(value, what), supply)
        elif isinstance(value, bytes):
            yield self.image(value, what)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield Text(str(value))
        else:
            rule = "must be a text, a list of texts and images, or an image"
            raise RowError(Rule.WRONG_TYPE, f"{what} {rule}, not {brief(value)}")

    def _object(self, row: Row, supply: _Supply) -> Iterator[Text | Image]:
        """Yield a part: `{"type": ...}`, `{"text": ..., "image": ...}`, or an image."""
        values = row.values
        kind = values.get("type")
        if kind in ("text", "input_text", "output_text"):
            keys = [key for key in _TEXT_KEYS if key in values]
            # Without any, the error says that the text is missing.
            key = keys[0] if keys else "text"
            yield from self._split_at_marks(row.text(key), supply, row.path(key))
        elif isinstance(kind, str) and "image" in kind:
            named = any(values.get(key) for key in ("bytes", *_IMAGE_KEYS))
            yield self.image(values, row.where) if named else supply.take(None)
        elif kind is not None:
            detail = (
                f"{row.path('type')} is {brief(kind)}; valid are text, image, image_url"
            )
            raise RowError(Rule.WRONG_TYPE, detail)
        elif "text" in values or "image" in values:
            if values.get("text") is not None:
                yield from self._split_at_marks(row.text("text"), supply, row.path("text"))
            yield from self.images(values.get("image"), row.path("image"))
        else:
            yield self.image(values, row.where)

    def _split_at_marks(
        self, text: str, supply: _Supply, what: str
    ) -> Iterator[Text | Image]:
        """Yield a text's pieces, with the row's images in the places of its marks."""
        at = 0
        for mark in _MARK.finditer(of_type(text, str, what)):
            if mark.start() > at:
                yield Text(text[at : mark.start()])
            yield supply.take(mark[1])
            at = mark.end()
        if text[at:]:
            yield Text(text[at:])

    def _is_image(self, text: str) -> bool:
        """Return whether a text in a list is an image: all of it names or holds one."""
        if is_data_url(text) or is_base64(text):
            return True
        if not _names_image(text):
            return False
        if is_url(text) or not re.search(r"\s", text):
            return True
        return any((folder.root / text).is_file() for folder in self.folders)


def _names_image(text: str) -> bool:
    """Return whether a text ends as the name of an image does."""
    fits = len(text) <= _LONGEST_PATH and "\n" not in text
    return fits and text.partition("?")[0].strip().lower().endswith(IMAGE_SUFFIXES)


def _texts(values: Iterable[Any]) -> Iterator[str]:
    """Yield the texts in values that may be, or hold, an image."""
    for whole in values:
        stack = [whole]
        while stack:
            value = parse(stack.pop())
            if isinstance(value, dict):
                stack.extend(value.values())
            elif isinstance(value, list | tuple):
                stack.extend(value)
            elif isinstance(value, str) and not (is_data_url(value) or is_base64(value)):
                yield value
