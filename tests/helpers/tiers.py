"""The tiers of the tests: what a test needs, and with it how fast and how alone it runs.

* `unit` computes: no torch, no whole run, no process.
* `contract` holds everything of one kind to one suite, or has whole commands run in threads
  of this process and compares what they say, still without torch (mark `contract`).
* `models` builds tiny models with torch (mark `models`).
* `system` has Ray, machines, a browser or processes of its own, or takes long.

Tests that mostly wait, for machines or for processes, have two lanes, in which they run
one after another beside all others, so that they cannot starve each other. What computes
in a process of its own needs no lane: it is `slow`.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import subprocess
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

TIERS = ("unit", "contract", "models", "system")
SAMPLED = "sampled"
"""Mark of a test with many cases of one kind, of which only every n-th is run."""
LANES = {"machines": 1, "browser": 1, "ray": 2, "processes": 2}
"""By the mark of a test that waits, its lane."""
SYSTEM = (*LANES, "slow")
"""Marks of the tests of the system tier."""
FIXTURES = {"ray_address": "ray", "trial_env": "ray", "object_store_server": "processes"}
"""By a fixture, the mark that every test has which uses it."""
MOST_FLAKY = 2
"""How many tests of a run may pass only when they are run again."""
WORKERS_IN_TIME = {"RAY_worker_niceness": "0"}
"""Environment of every Ray. By itself Ray gives way to all else on the machine (nice 15):
beside tests that compute, its workers would have a thirtieth of a core."""
_BRIEF = ("git", "nvidia-smi", "bash", "fc-list", "ldconfig", "uname")
"""Programs that every tier may ask something, since they answer at once."""
_HEAVY = ("torch", "transformers", "diffusers")


def tier_of(marks: Iterable[str]) -> str:
    """Return the tier of a test with these marks: the last one that any of them names."""
    named = {"system" if mark in SYSTEM else mark for mark in marks}
    return next((tier for tier in reversed(TIERS) if tier in named), "unit")


def lane_of(marks: Iterable[str]) -> int | None:
    """Return the lane of a test that waits; None for one that computes."""
    return min((LANES[mark] for mark in marks if mark in LANES), default=None)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the lanes first, then the files that take long, then all others.

    A lane takes as long as all else together, beside which it waits.
    """
    marks: dict[Path, set[str]] = {}
    for item in items:
        marks.setdefault(item.path, set()).update(m.name for m in item.iter_markers())

    def place(item: pytest.Item) -> tuple[bool, int, int]:
        lane = lane_of(mark.name for mark in item.iter_markers())
        of_file = marks[item.path]
        length = 0 if "slow" in of_file else 1 if "models" in of_file else 2
        return lane is None, lane or 0, length

    return sorted(items, key=place)


def sample(items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests without the cases that only `make soak` runs, and those."""
    numbers: dict[Any, count[int]] = {}
    kept: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        mark = item.get_closest_marker(SAMPLED)
        if mark is None:
            kept.append(item)
            continue
        number = next(numbers.setdefault(item.function, count()))
        (kept if number % mark.args[0] == 0 else others).append(item)
    return kept, others


@cache
def tiers_in(file: Path) -> frozenset[str]:
    """Return the tiers that tests of a file may have, which is not imported."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    whole: set[str] = set()
    single: list[set[str]] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            whole |= _marks_in(node.value)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            own = {
                mark for decorator in node.decorator_list for mark in _marks_in(decorator)
            }
            arguments = {argument.arg for argument in node.args.args}
            own |= {mark for name, mark in FIXTURES.items() if name in arguments}
            single.append(own)
    tiers = {tier_of(whole | own) for own in single}
    for own in single:  # a mark of one parameter is not one of the others
        tiers.add(tier_of(whole | own.difference(SYSTEM)))
    return frozenset(tiers)


def _marks_in(node: ast.AST) -> set[str]:
    """Return the names of `pytest.mark.NAME` in an expression."""
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and ast.unparse(inner.value) == "pytest.mark":
            found.add(inner.attr)
    return found


class _Refusal(importlib.abc.Loader):
    """Loads no module, but says what to do instead."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        raise AssertionError(f"this test imports {spec.name}: mark it `models`")

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing: no module was made."""


class _NoHeavyImports(importlib.abc.MetaPathFinder):
    """Refuses libraries that tests of the first two tiers do without.

    Whether they are installed may be asked.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _HEAVY:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = _Refusal()
        return spec


def refuse_heavy_imports() -> None:
    """Have an import of a heavy library fail from now on, unless it is there already."""
    sys.meta_path.insert(0, _NoHeavyImports())


@pytest.fixture(autouse=True)
def no_process_below_system(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests of the first three tiers start no process."""
    marks = [mark.name for mark in request.node.iter_markers()]
    if tier_of(marks) == "system":
        return

    begin = subprocess.Popen.__init__

    def refuse(self: Any, words: Any, *args: Any, **options: Any) -> None:
        program = words if isinstance(words, str) else words[0]
        if Path(program).name not in _BRIEF:
            raise AssertionError(f"this test starts {words}: mark it `processes`")
        begin(self, words, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)


def left_behind() -> Iterator[str]:
    """Yield a line for each process and each port that this process has left open."""
    own = psutil.Process()
    for child in own.children(recursive=True):
        words = " ".join(child.cmdline())
        # Python starts its own when a library shares memory, and ends it with this process.
        if "resource_tracker" not in words:
            yield f"process {child.pid} is still there: {words[:120]}"
    for connection in own.net_connections():
        if connection.status == psutil.CONN_LISTEN:
            yield f"port {connection.laddr.port} is still open"
