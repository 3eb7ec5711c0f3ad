"""Imports point one way, and light modules stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from paths import CHECKOUT, SOURCE

ORDER = ["generators", "pipelines", "scorers", "cluster", "benchmarks", "plait"]
MAY_IMPORT = {
    "generators": set(),
    "pipelines": {"generators"},
    "scorers": {"generators"},
    "cluster": {"generators", "scorers"},
    "benchmarks": {"generators", "pipelines", "scorers", "cluster"},
    "plait": {"generators", "pipelines", "scorers", "cluster", "benchmarks"},
}
PACKAGE = SOURCE / "plait"
USERS_OF_THE_SURFACE = {"benchmarks/miniature/measures.py", "generators/former.py"}
"""What uses `import plait` as a program of one's own would."""
SCRIPTS = {"plait.benchmarks.miniature.training", "plait.benchmarks.speed.scripts"}
"""Run in a checkout."""
SEEN_BY_SCORERS = {
    "architectures",
    "base",
    "buckets",
    "checkpoints",
    "content",
    "custom",
    "decoding",
    "document",
    "errors",
    "files",
    "images",
    "keys",
    "loading",
    "memo",
    "mini",
    "names",
    "overflow",
    "own_code",
    "registry",
    "replies",
    "settings",
    "extras",
    "thoughts",
    "work",
}
"""Values, contracts and settings of `generators`: no model's code. A judge with weights
of its own reads its checkpoint and decodes by the shared parts (loading, decoding)."""
ONLY_CONTRACTS = {
    "base",
    "buckets",
    "checkpoints",
    "document",
    "errors",
    "files",
    "former",
    "images",
    "keys",
    "names",
    "own_code",
    "returned",
    "secrets",
    "source",
    "system",
    "unicode",
    "visible",
}
"""What the engine sees of `generators`; stages it knows by name alone."""


def modules() -> list[tuple[str, Path]]:
    found = []
    for room in ORDER[:-1]:
        found += [(room, p) for p in sorted((CHECKOUT / room).rglob("*.py"))]
    return [*found, *(("plait", path) for path in sorted(PACKAGE.glob("*.py")))]


def module_of(path: Path) -> str:
    """The dotted name of a file of the checkout."""
    place = path.relative_to(SOURCE if path.is_relative_to(SOURCE) else CHECKOUT)
    name = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
    return name if path.is_relative_to(SOURCE) else f"plait.{name}"


TARGET = re.compile(r"(\w+(?:\.\w+)*):[A-Za-z_]\w*")
"""What a lazy map holds: a name that is imported only where it is used."""


@cache
def found_in(path: Path) -> tuple[set[tuple[str, str]], set[str]]:
    """What a file imports anywhere, in functions and for types too: module and name.

    And the modules that it names as `module:attribute`.
    """
    imported, targets = set[tuple[str, str]](), set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            imported |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            targets |= {match[1]} if (match := TARGET.fullmatch(node.value)) else set()
    return imported, targets


def imports(path: Path) -> set[str]:
    """Dotted names of everything a file imports or names as `module:attribute`."""
    imported, targets = found_in(path)
    return targets | {n for module, name in imported for n in (module, f"{module}.{name}")}


SEEN = {
    ("scorers", "generators"): SEEN_BY_SCORERS,
    ("cluster", "generators"): ONLY_CONTRACTS,
    ("cluster", "scorers"): {"base", "own_parts"},
}


def wrong_arrows(room: str, names: set[str]) -> list[str]:
    wrong = []
    for name in sorted(names):
        package, *parts = name.split(".")
        if package != "plait":
            continue
        top = parts[0] if parts and parts[0] in ORDER else "plait"
        inner = parts[1] if len(parts) > 1 else ""
        if top == room:
            continue
        hidden = inner and inner not in SEEN.get((room, top), {inner})
        if top not in MAY_IMPORT[room] or hidden:
            wrong.append(name)
    return wrong


def test_imports_point_one_way() -> None:
    wrong = {}
    for room, path in modules():
        place = str(path.relative_to(CHECKOUT))
        public = {"plait", "plait."} if place in USERS_OF_THE_SURFACE else set[str]()
        wrong[place] = wrong_arrows(room, imports(path) - public)
    assert {p: w for p, w in wrong.items() if w} == {}


@pytest.mark.parametrize(
    ("room", "name"),
    [
        ("generators", "plait.pipelines.systems"),
        ("scorers", "plait.generators.anole.draft"),
        ("scorers", "plait.pipelines.chat.settings"),
        ("cluster", "plait.pipelines.systems"),
        ("cluster", "plait.generators.natives"),
        ("pipelines", "plait.cluster.store"),
        ("benchmarks", "plait.commands"),
        ("cluster", "plait"),
    ],
)
def test_a_planted_wrong_arrow_is_found(room: str, name: str) -> None:
    assert wrong_arrows(room, {name}) == [name]


READERS = ["runs/exporters/*.py", "runs/exports.py", "runs/inspection.py"]
VALUES_OF_SCORERS = (
    "plait.scorers.base",
    "plait.scorers.former_faults",
    "plait.scorers.judging.summaries",
    "plait.scorers.parts",
    "plait.scorers.statistics",
)


def test_tables_know_scorers_by_their_values() -> None:
    """Those of a run that is read from files are of no class of `scorers`."""
    room = CHECKOUT / "benchmarks"
    others = (path for name in READERS for path in room.glob(name))
    paths = [*(room / "results").rglob("*.py"), *others]
    imported = {name for path in paths for name in imports(path)}
    seen = {name for name in imported if name.startswith("plait.scorers.")}
    assert {"plait.scorers.base", "plait.scorers.base.Scorer"} <= seen
    assert [name for name in seen if not name.startswith(VALUES_OF_SCORERS)] == []


ABOVE_RESULTS = (
    "plait.benchmarks.tasks",
    "plait.benchmarks.runs",
    "plait.benchmarks.studies",
    "plait.pipelines",
)
SEEN_BY_RESULTS = {
    "plait.benchmarks.tasks.changes.query_digest",
    "plait.benchmarks.tasks.controls.TRUTH",
    "plait.benchmarks.tasks.controls.is_control",
    "plait.benchmarks.tasks.controls.is_reference",
    "plait.pipelines.chat.endings.CUT",
    "plait.pipelines.systems.parts_of",
}
"""Names of systems and of what records hold, and the digest of a query."""


def test_results_know_no_readers_runs_or_pipelines() -> None:
    paths = (CHECKOUT / "benchmarks" / "results").rglob("*.py")
    found = {named for path in paths for named in found_in(path)[0]}
    above = {f"{m}.{n}" for m, n in found if m.startswith(ABOVE_RESULTS)}
    assert above == SEEN_BY_RESULTS


def arrows(paths: Mapping[str, Path]) -> dict[str, set[str]]:
    """By module, those that it imports.

    Importing a module of another package runs the package's `__init__` as well.
    """
    graph = {}
    for own, path in paths.items():
        found = set()
        for module, name in found_in(path)[0]:
            whole = f"{module}.{name}"
            found.add(whole if whole in paths else module)
        above = {p for n in found for p in parents(n) if p not in [own, *parents(own)]}
        graph[own] = (found | above) & paths.keys() - {own}
    return graph


def parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def test_no_imports_run_in_a_circle() -> None:
    paths = {}
    for _, path in modules():
        paths[module_of(path)] = path
    del paths["plait"]  # it imports a name when it is asked for it
    graph = arrows(paths)
    assert sum(map(len, graph.values())) > 1000
    TopologicalSorter(graph).prepare()


def test_one_module_imports_ray() -> None:
    users = {
        str(p.relative_to(CHECKOUT))
        for room, p in modules()
        if room != "benchmarks" and any(n.partition(".")[0] == "ray" for n in imports(p))
    }
    assert users == {"cluster/executors/on_ray.py"}


def test_values_need_only_the_standard_library() -> None:
    for name in ("document", "keys", "base", "system"):
        found = imports(CHECKOUT / "generators" / f"{name}.py")
        others = {n for n in found if not n.startswith("plait.generators")}
        assert {n.partition(".")[0] for n in others} <= {*sys.stdlib_module_names, ""}


def test_every_package_is_installed_except_scripts() -> None:
    import tomllib

    from setuptools import find_packages

    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    chosen = settings["tool"]["setuptools"]["packages"]["find"]
    assert not chosen.pop("namespaces")
    (where,) = chosen.pop("where")
    there = {module_of(path.parent) for _, path in modules()}
    assert {*find_packages(str(CHECKOUT / where), **chosen)} == there - SCRIPTS


HEAVY = {"torch", "transformers", "diffusers", "open_clip", "ray", "openai", "pandas"}


def test_tables_and_page_import_no_model_code() -> None:
    room = CHECKOUT / "benchmarks" / "results"
    names = sorted(map(module_of, room.rglob("*.py")))
    code = (
        f"import sys, {', '.join(names)}\n"
        f"loaded = {HEAVY!r} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_planning_imports_no_model_code(tmp_path: Path) -> None:
    words = ["plait", "plan", "--data", "sample", "--weights", "tiny", "--on", "8xH100"]
    words += ["--system", "qwen2-vl-72b+sdxl-turbo", "--out", str(tmp_path / "x")]
    code = (
        "import sys, plait.cli, plait.api\n"
        f"sys.argv = {words!r}\n"
        "try:\n    plait.cli.app()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"loaded = {HEAVY!r} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Forecast for 8 x H100" in done.stdout
