"""Text and images of a run as a notebook shows them: HTML that needs no other file.

All text is escaped. An image that cannot be read is named in its place, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from plait.benchmarks.results.report.images import web_image
from plait.cluster.store import read_blob
from plait.generators.document import Blob, Document, Image, Malformed, Query, Text
from plait.generators.images import ImageError, decode

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

SIDE = 256
"""Largest width and height of an image, in pixels."""
Read = Callable[[Blob], bytes]
_BOX = 'style="border-left:3px solid #bbb;padding:.2em .8em;margin:.4em 0;max-width:56em"'
_WORDS = 'style="white-space:pre-wrap;margin:.3em 0"'
_MISSING_STYLE = 'style="color:#a40000;margin:.3em 0"'


@dataclass(frozen=True, slots=True)
class NotebookDocument(Document):
    """A document that a notebook shows with its images in place."""

    read: Read = field(default=read_blob, repr=False, compare=False)
    """Brings an image's bytes to hand; raises where they are not those of its digest."""

    @classmethod
    def showing(cls, document: Document, read: Read = read_blob) -> "NotebookDocument":
        """`document`, to be shown."""
        return cls(document.segments, document.ends, read)

    @property
    def plain(self) -> Document:
        """The document as stages and scorers take it."""
        return Document(self.segments, self.ends)

    @property
    def pictures(self) -> list["PILImage"]:
        """The images, decoded; DamagedPart, StoreError, OSError or ImageError."""
        return [decode(self.read(image)) for image in self.images]

    def _repr_html_(self) -> str:
        return box(content_html(self.segments, self.read))


def box(*parts: str) -> str:
    """Parts below one another, set off from what stands around them."""
    return f"<div {_BOX}>{''.join(parts)}</div>"


def beside(*parts: str) -> str:
    """Parts side by side, which scroll where there is no room."""
    columns = (f'<div style="flex:1 0 12em">{part}</div>' for part in parts)
    return f'<div style="display:flex;gap:1em;overflow-x:auto">{"".join(columns)}</div>'


def heading(text: str) -> str:
    """Return a line in bold."""
    return f"<div><b>{escape(text)}</b></div>"


def missing_note(text: str) -> str:
    """Return a line that says what is not there, and why."""
    return f"<div {_MISSING_STYLE}>{escape(text)}</div>"


def words(text: str) -> str:
    """Text with its line breaks."""
    return f"<div {_WORDS}>{escape(text)}</div>"


def content_html(content: Iterable[Text | Image], read: Read) -> str:
    """Text and images in order."""
    parts = []
    images = 0
    for part in content:
        if isinstance(part, Text):
            parts.append(words(part.text))
        else:
            images += 1
            parts.append(_image(part, images, read))
    return "".join(parts)


def _image(image: Image, number: int, read: Read) -> str:
    """Return a thumbnail as a data URL, or why there is none; `number` counts from 1."""
    try:
        url, *_ = web_image(read(image), SIDE)
    except ImageError as error:
        return missing_note(f"[image {number}: {error}]")
    except Exception as error:
        # Whatever a store or a file system raises: the notebook shows all the rest.
        return missing_note(f"[image {number} cannot be read: {error}]")
    name = f"image {number} ({image.digest[:12]})"
    return f'<img alt="{name}" title="{name}" src="{url}"> '


def query_html(query: Query | Malformed, read: Read) -> str:
    """Every turn of a query."""
    if isinstance(query, Malformed):
        return missing_note(f"malformed: {query.reason}")
    return "".join(
        heading(turn.role) + content_html(turn.content, read) for turn in query.turns
    )
