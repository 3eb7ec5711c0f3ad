"""Content for the fields of a protocol's templates."""

from __future__ import annotations

from generators.content import joined
from generators.document import Content, Document, Image, Text


def spaced(content: Content) -> Content:
    """`content` with every segment on a line of its own."""
    lines: list[Text | Image] = []
    for i, segment in enumerate(content):
        lines += [Text("\n"), segment] if i else [segment]
    return joined(lines)


def told(text: str) -> Content:
    """One text as content."""
    return (Text(text),)


def texts(content: Content) -> Content:
    """The text of `content`, one segment a line, as one segment."""
    return told(Document(content).text)


def pictures(content: Content) -> Content:
    """The pictures of `content`."""
    return Document(content).images
