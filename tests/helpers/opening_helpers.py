"""OpenING's layout, and what its released programs made of crafted data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paths import DATA
from picture_helpers import saved
from PIL import Image as Pillow

from plait.benchmarks.tasks.task_set import TaskSet, load
from plait.generators.document import Text, Turn
from plait.generators.images import decode

UPSTREAM = json.loads((DATA / "opening_upstream.json").read_text())
"""Rows, answers and images given to the programs; what they asked, read and counted."""
_COLOURS = ("red", "blue", "green", "yellow", "black", "white")
_RGB = {name: Pillow.new("RGB", (1, 1), name).getpixel((0, 0)) for name in _COLOURS}


def item(text: str | None, image: str | None = None) -> dict[str, Any]:
    return {"text": text, "image": image}


def row(uid: str, *inputs: dict[str, Any], **about: Any) -> dict[str, Any]:
    """A row without ground truth."""
    groups = {"meta_task_name": "Cooking", "subtask_name": "Recipes"}
    turns = {"conversations": [{"input": list(inputs or [item("Cook.")])}]}
    return {"total_uid": uid, **groups, **turns, **about}


def answer(*output: dict[str, Any]) -> dict[str, Any]:
    return {"conversations": [{"input": []}, {"output": list(output)}]}


def written(
    root: Path, rows: Iterable[Any], answers: dict[str, dict[str, Any]] | None = None
) -> Path:
    """A checkout: rows, and the text of files of answers by model and name."""
    data = root / "OpenING-benchmark"
    data.mkdir(parents=True)
    lines = (json.dumps(one, ensure_ascii=False) for one in rows)
    (data / "test_data.jsonl").write_text("".join(f"{line}\n" for line in lines))
    for model, files in (answers or {}).items():
        folder = root / "gen_outputs" / f"{model}_output"
        folder.mkdir(parents=True)
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / name).write_text(text)
    return root


def released(root: Path) -> Path:
    """The rows, answers and images that the programs were given."""
    answers = {
        model: {f"{uid}.json": answer(*items) for uid, items in own.items()}
        for model, own in UPSTREAM["answers"].items()
    }
    written(root, UPSTREAM["rows"], answers)
    for name, (colour, mode) in UPSTREAM["files"].items():
        path = root / name.replace("OpenING-Benchmark", "OpenING-benchmark")
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = Pillow.new("RGB", (12, 8), colour).convert(mode)
        path.write_bytes(saved(picture, "PNG"))
    return root


def read(root: Path) -> TaskSet:
    return load(f"opening:{root}", cache=root / "cache")


def told(turns: Iterable[Turn]) -> str:
    """Turns as the recording has them, images by their colour."""
    parts = [
        part
        for turn in turns
        for part in (
            f"<{turn.role}>",
            *(s.text if isinstance(s, Text) else f"[{colour(s)}]" for s in turn.content),
        )
    ]
    return "".join(parts)


def colour(image: Any) -> str:
    data = image.data if image.data is not None else Path(image.place).read_bytes()
    pixel = decode(data).getpixel((3, 3))
    return min(
        _RGB, key=lambda n: sum((a - b) ** 2 for a, b in zip(_RGB[n], pixel, strict=True))
    )
