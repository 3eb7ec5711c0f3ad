"""Content, documents and queries of plain strings and images."""

from __future__ import annotations

from typing import Any

from plait.generators.document import Content, Document, Image, Query, Text, Turn


def content(*parts: str | Image) -> Content:
    return tuple(Text(p) if isinstance(p, str) else p for p in parts)


def document(*parts: str | Image) -> Document:
    return Document(content(*parts))


def turn_of(*parts: str | Image, role: str = "user") -> Turn:
    return Turn(role, content(*parts))


def query_of(*question: str | Image, **about: Any) -> Query:
    """A query of one turn; `about` may say otherwise."""
    usual = {"id": "SA-1", "category": "SA", "field": "Art", "turns": (turn_of(*question),)}
    return Query(**(usual | about))
