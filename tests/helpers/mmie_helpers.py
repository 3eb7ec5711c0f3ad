"""Small MMIE folders for the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from picture_helpers import flat as png

from plait.benchmarks.tasks.task_set import TaskSet, load
from plait.generators.document import Image, Malformed, Query


def row(
    id: str = "PBL-1", *, image: Any = "./images/a.png", **changes: Any
) -> dict[str, Any]:
    """A valid row, with `changes`; a change to None takes the key away."""
    whole = {
        "id": id,
        "catagory": "",
        "field": "Art",
        "conversations": [
            human(("How to draw?", None), ("Step 1: Begin.", image)),
            gpt(("Step 2: Go on.", None)),
        ],
    }
    whole |= changes
    return {key: value for key, value in whole.items() if value is not None}


def human(*items: tuple[Any, Any]) -> dict[str, Any]:
    return {"from": "human", "content": [{"text": t, "image": i} for t, i in items]}


def gpt(*items: tuple[Any, Any]) -> dict[str, Any]:
    return {"from": "gpt", "content": [{"text": t, "image": i} for t, i in items]}


def folder(root: Path, rows: Any, pictures: dict[str, bytes] | None = None) -> Path:
    """An MMIE folder that holds `rows` and, under images/, `pictures`."""
    (root / "images").mkdir(parents=True, exist_ok=True)
    for name, data in ({"a.png": png()} | (pictures or {})).items():
        (root / "images" / name).write_bytes(data)
    (root / "data.json").write_text(json.dumps(rows))
    return root


def loaded(root: Path) -> TaskSet:
    """The folder's task set, its cache beside it."""
    return load(str(root), cache=root.parent / "cache")


def reasons(task: TaskSet) -> dict[str, str]:
    return {s.id: s.reason for s in task.samples if isinstance(s, Malformed)}


def good(task: TaskSet) -> list[Query]:
    return [s for s in task.samples if isinstance(s, Query)]


def at_hand(image: Image) -> bytes:
    """The bytes of an image that lies in a file."""
    assert image.place is not None
    return Path(image.place).read_bytes()
