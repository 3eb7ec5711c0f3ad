"""Public classes have names of their own across the whole project."""

from __future__ import annotations

import ast
from collections import defaultdict

from paths import CHECKOUT

ROOMS = ("generators", "pipelines", "scorers", "cluster", "benchmarks")


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in (p for room in ROOMS for p in (CHECKOUT / room).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(CHECKOUT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
