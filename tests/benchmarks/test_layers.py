"""Imports point one way, and light modules stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import CHECKOUT

ORDER = ["generators", "pipelines", "scorers", "cluster", "benchmarks", "plait"]
MAY_IMPORT = {
    "generators": set(),
    "pipelines": {"generators"},
    "scorers": {"generators"},
    "cluster": {"generators", "scorers"},
    "benchmarks": {"generators", "pipelines", "scorers", "cluster"},
    "plait": {"generators", "pipelines", "scorers", "cluster", "benchmarks"},
}
SEEN_BY_SCORERS = {
    "base",
    "checkpoints",
    "content",
    "custom",
    "decoding",
    "document",
    "errors",
    "files",
    "keys",
    "loading",
    "memo",
    "mini",
    "names",
    "pictures",
    "registry",
    "settings",
}
"""Values, contracts and settings of `generators`: no model's code. A judge with weights
of its own reads its checkpoint and decodes by the shared parts (loading, decoding)."""
ONLY_CONTRACTS = {
    "base",
    "checkpoints",
    "document",
    "errors",
    "files",
    "garbage",
    "keys",
    "pictures",
    "system",
}
"""What the engine sees of `generators`; stages it knows by name alone."""


def modules() -> list[tuple[str, Path]]:
    found = []
    for room in ORDER[:-1]:
        found += [(room, p) for p in sorted((CHECKOUT / room).rglob("*.py"))]
    return [*found, ("plait", CHECKOUT / "plait.py")]


TARGET = re.compile(r"(\w+(?:\.\w+)*):[A-Za-z_]\w*")
"""What a lazy map holds: a name that is imported only where it is used."""


def imports(path: Path) -> set[str]:
    """Dotted names of everything a file imports or names as `module:attribute`."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= {match[1]} if (match := TARGET.fullmatch(node.value)) else set()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module or ""} | {f"{node.module}.{a.name}" for a in node.names}
    return names


SEEN = {
    ("scorers", "generators"): SEEN_BY_SCORERS,
    ("cluster", "generators"): ONLY_CONTRACTS,
    ("cluster", "scorers"): {"base"},
}


def wrong_arrows(room: str, names: set[str]) -> list[str]:
    wrong = []
    for name in sorted(names):
        top, _, rest = name.partition(".")
        inner = rest.partition(".")[0]
        if top not in ORDER or top == room:
            continue
        hidden = inner and inner not in SEEN.get((room, top), {inner})
        if top not in MAY_IMPORT[room] or hidden:
            wrong.append(name)
    return wrong


def test_imports_point_one_way() -> None:
    wrong = {
        str(p.relative_to(CHECKOUT)): wrong_arrows(r, imports(p)) for r, p in modules()
    }
    assert {p: w for p, w in wrong.items() if w} == {}


@pytest.mark.parametrize(
    ("room", "name"),
    [
        ("generators", "pipelines.systems"),
        ("scorers", "generators.anole.draft"),
        ("scorers", "pipelines.chat.settings"),
        ("cluster", "pipelines.systems"),
        ("cluster", "generators.natives"),
        ("pipelines", "cluster.store"),
    ],
)
def test_a_planted_wrong_arrow_is_found(room: str, name: str) -> None:
    assert wrong_arrows(room, {name}) == [name]


def test_a_name_in_a_lazy_map_is_an_arrow_too(tmp_path: Path) -> None:
    settings = tmp_path / "settings.py"
    settings.write_text('target = "pipelines.text_to_image:TextToImage"')
    assert wrong_arrows("generators", imports(settings)) == ["pipelines.text_to_image"]


def test_only_two_modules_import_ray() -> None:
    """The one that starts it on this machine, and the one that talks to it."""
    users = {
        str(p.relative_to(CHECKOUT))
        for room, p in modules()
        if room != "benchmarks" and any(n.partition(".")[0] == "ray" for n in imports(p))
    }
    assert users == {"cluster/actors.py", "cluster/local_ray.py"}


@pytest.mark.parametrize(
    "module",
    [
        "plait",
        "generators.document",
        "generators.system",
        "pipelines.systems",
        "scorers",
        "benchmarks.commands",
        "cluster.run",
    ],
)
def test_planning_imports_no_model_code(module: str) -> None:
    heavy = {"torch", "transformers", "diffusers", "open_clip", "ray"}
    code = (
        f"import sys, {module}; found = {heavy} & set(sys.modules); assert not found, found"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_values_need_only_the_standard_library() -> None:
    for name in ("document", "keys", "base", "system"):
        tops = {
            n.partition(".")[0] for n in imports(CHECKOUT / "generators" / f"{name}.py")
        }
        assert tops - {"generators", ""} <= set(sys.stdlib_module_names)


def test_every_package_is_installed() -> None:
    import tomllib

    from setuptools import find_packages

    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["packages"]["find"]["include"]
    there = {
        ".".join(p.parent.relative_to(CHECKOUT).parts)
        for room in ORDER[:-1]
        for p in (CHECKOUT / room).rglob("*.py")
    }
    assert set(find_packages(str(CHECKOUT), include=patterns)) == there


def test_no_file_is_longer_than_one_idea() -> None:
    long = {
        str(p.relative_to(CHECKOUT)): n
        for _, p in modules()
        if (n := len(p.read_text().splitlines())) > 400
    }
    assert long == {}
