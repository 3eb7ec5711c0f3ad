"""Where the data of a page stand: in files of a folder beside it, or in the page itself.

Pages opened from disk may load scripts but may not fetch, so each file of a folder is a
script. A page that stands alone holds the same data as blocks that no browser runs; its
script parses one when something of it is shown.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from markupsafe import Markup

from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.files import write_whole


class PageTooLarge(UsageError):
    """A page that is to stand alone would have more than the bytes that it may have."""

    def __init__(self, most: int, size: int) -> None:
        super().__init__(f"the page would have more than {most / 1e6:,.4g} MB")
        self.size = size
        """In bytes, as far as it was made."""


class PageFiles(Protocol):
    """Where a page finds its data."""

    @property
    def markup(self) -> Markup:
        """What the page itself holds of them."""

    def link(self, name: str) -> Markup:
        """Return how the page names another file of the run: as a link where it can."""

    def has(self, name: str) -> bool:
        """Return whether a file of that name is there."""

    def write_data(self, name: str, rows: Any) -> str:
        """Write the file `name`, from which the page reads `rows`; return `name`."""

    def write_image(self, name: str, data: bytes) -> str:
        """Write a WebP image; return its address on the page."""

    def remove_others(self, pattern: str, kept: Collection[str]) -> None:
        """Remove the files that match, but for those named in `kept`."""


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """Files of a folder that is beside the page, or holds it."""

    folder: AnyPath
    absent: Collection[str] = ()
    """Files of the run that are not beside the page."""
    markup: Markup = field(default=Markup(""), init=False)

    def link(self, name: str) -> Markup:
        """Return a link to a file beside the page, and its name where it is absent."""
        if name in self.absent:
            return _name_of(name)
        return Markup('<a href="{0}">{0}</a>').format(name)

    def has(self, name: str) -> bool:
        """Return whether a file of that name is there."""
        return (self.folder / name).exists()

    def write_data(self, name: str, rows: Any) -> str:
        """Write the script `name`, which hands `rows` to the page; return `name`."""
        script = f"plait({data_text(name)},{data_text(rows)});\n"
        # A page can be made again at any time, so its files need not be flushed.
        write_whole(self.folder / name, script, durable=False)
        return name

    def write_image(self, name: str, data: bytes) -> str:
        """Write an image; return its address from a page beside the folder."""
        write_whole(self.folder / name, data, durable=False)
        return f"{self.folder.name}/{name}"

    def remove_others(self, pattern: str, kept: Collection[str]) -> None:
        """Remove the files that match, but for those named in `kept`."""
        for path in self.folder.glob(pattern):
            if path.name not in kept:
                path.unlink()


@dataclass(slots=True)
class InlineFiles:
    """Blocks inside the page, which may have `most` bytes."""

    most: int
    _blocks: dict[str, str] = field(default_factory=dict, init=False)
    _bytes: int = field(default=0, init=False)

    @property
    def markup(self) -> Markup:
        """All blocks, in the order in which they were written."""
        return Markup("\n".join(self._blocks.values()))

    def link(self, name: str) -> Markup:
        """Return the name of a file of the run, as none is beside the page."""
        return _name_of(name)

    def has(self, name: str) -> bool:
        """Return whether a block of that name is there."""
        return name in self._blocks

    def write_data(self, name: str, rows: Any) -> str:
        """Add the block `name`, which holds `rows`; return `name`. PageTooLarge."""
        block = f'<script type="application/json" data-file="{name}">{data_text(rows)}'
        self._blocks[name] = f"{block}</script>"
        self._bytes += len(block)
        self.refuse_if_larger(self._bytes)
        return name

    def write_image(self, name: str, data: bytes) -> str:
        """Return an image as a data URL."""
        return image_url(data)

    def remove_others(self, pattern: str, kept: Collection[str]) -> None:
        """Nothing: a new page holds nothing of another one."""

    def refuse_if_larger(self, size: int) -> None:
        """Raise PageTooLarge where `size`, in bytes, is more than a page may have."""
        if size > self.most:
            raise PageTooLarge(self.most, size)


def _name_of(name: str) -> Markup:
    return Markup("{} of the run").format(name)


def image_url(data: bytes) -> str:
    """Return a WebP image as a data URL."""
    return f"data:image/webp;base64,{base64.b64encode(data).decode()}"


def data_text(value: Any) -> str:
    """Return plain data as JSON, in ASCII and without `<`.

    So no text can end a script or be read as markup.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")
