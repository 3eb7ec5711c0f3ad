"""Stories and how-tos, whose words stand in TOML files beside this one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sample_authoring.query import Figure, Item, Query

_FOLDER = Path(__file__).parent / "texts"
Find = Callable[[str], Figure]
"""The picture of a name."""


def stories(find: Find) -> list[Query]:
    """Situational analysis: beginnings of stories."""
    return [
        _query(about, _items(about["question"], find), _items(about["answer"], find))
        for about in _read("stories.toml")
    ]


def howtos(find: Find) -> list[Query]:
    """Project-based learning: a title and the first step, answered by the other steps."""
    return [_howto(about, find) for about in _read("howtos.toml")]


def _read(name: str) -> list[dict[str, Any]]:
    with (_FOLDER / name).open("rb") as file:
        return list(tomllib.load(file)["query"])


def _query(about: Mapping[str, Any], question: list[Item], answer: list[Item]) -> Query:
    return Query(
        id=about["id"],
        field=about["field"],
        subfield=about["subfield"],
        question=tuple(question),
        answer=tuple(answer),
    )


def _items(parts: list[dict[str, str]], find: Find) -> list[Item]:
    return [(part["text"], find(part["image"])) for part in parts]


def _howto(about: Mapping[str, Any], find: Find) -> Query:
    heading: list[Item] = [(about["title"], None), (f"Method 1: {about['method']}", None)]
    first, *others = (_step(i, s, find) for i, s in enumerate(about["step"], start=1))
    return _query(about, heading + first, [item for step in others for item in step])


def _step(number: int, step: Mapping[str, Any], find: Find) -> list[Item]:
    text = f"Step {number}: {step['order']}\n{step['how']}"
    figures = [find(name) for name in step["images"]]
    items: list[Item] = [(text, figures[0] if figures else None)]
    return items + [(None, figure) for figure in figures[1:]]
