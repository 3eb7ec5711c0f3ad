"""Templates whose fields are filled with text and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import Formatter

from generators.document import Content, Document, Image, Text


def fill(template: str, fields: Mapping[str, Content]) -> Content:
    """`template` with content in place of its `{fields}`; adjoining text is one segment.

    Braces inside the content are left as they are. Raises KeyError for a field that is
    not given.
    """
    segments: list[Text | Image] = []
    for literal, name, _, _ in Formatter().parse(template):
        segments.append(Text(literal))
        if name is not None:
            segments.extend(fields[name])
    return joined(segments)


def joined(segments: Iterable[Text | Image]) -> Content:
    """`segments` with adjoining text put together and empty text left out."""
    merged: list[Text | Image] = []
    for segment in segments:
        if isinstance(segment, Text) and merged and isinstance(merged[-1], Text):
            merged[-1] = Text(merged[-1].text + segment.text)
        elif not isinstance(segment, Text) or segment.text:
            merged.append(segment)
    return tuple(merged)


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
