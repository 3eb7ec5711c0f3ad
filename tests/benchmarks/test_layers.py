"""Imports point one way, and light modules stay light."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from graphlib import TopologicalSorter
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli_helpers import invoke
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import CHECKOUT, SOURCE

from plait.generators.extras import MODULES
from plait.generators.settings import StageSettings
from plait.pipelines.chat.settings import EngineChatSettings
from plait.scorers.ssim import SsimSettings
from plait.scorers.texts import RougeSettings

pytestmark = pytest.mark.contract

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
    "catalogue",
    "checkpoints",
    "content",
    "custom",
    "decoding",
    "document",
    "errors",
    "files",
    "former",
    "images",
    "keys",
    "loading",
    "logprobs",
    "memo",
    "mini",
    "names",
    "overflow",
    "own_code",
    "released",
    "replies",
    "settings",
    "extras",
    "thoughts",
    "walks",
    "work",
}
"""Values, contracts and settings of `generators`: no model's code. A judge with weights
of its own reads its checkpoint and decodes by the shared parts (loading, decoding)."""
ONLY_CONTRACTS = {
    "base",
    "batches",
    "buckets",
    "checkpoints",
    "document",
    "errors",
    "extras",
    "files",
    "former",
    "images",
    "keys",
    "logprobs",
    "names",
    "own_code",
    "returned",
    "secrets",
    "source",
    "spool",
    "system",
    "unicode",
    "visible",
    "walks",
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
    "plait.scorers.turn_names",
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


def paths_of_modules() -> dict[str, Path]:
    paths = {}
    for _, path in modules():
        paths[module_of(path)] = path
    del paths["plait"]  # it imports a name when it is asked for it
    return paths


def test_no_imports_run_in_a_circle() -> None:
    graph = arrows(paths_of_modules())
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
    from setuptools import find_packages

    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    chosen = settings["tool"]["setuptools"]["packages"]["find"]
    assert not chosen.pop("namespaces")
    (where,) = chosen.pop("where")
    there = {module_of(path.parent) for _, path in modules()}
    assert {*find_packages(str(CHECKOUT / where), **chosen)} == there - SCRIPTS


HEAVY = {"torch", "transformers", "diffusers", "open_clip", "ray", "openai", "pandas"}


@pytest.mark.slow
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


@pytest.mark.slow
def test_planning_imports_no_model_code(tmp_path: Path) -> None:
    words = ["--data", "sample", "--weights", "tiny", "--on", "8xH100"]
    words += ["--system", "qwen2-vl-72b+sdxl-turbo", "--out", str(tmp_path / "x")]
    assert "Forecast for 8 x H100" in _plan_without(HEAVY, words)


@pytest.mark.slow
def test_planning_a_complete_run_imports_nothing_that_makes_tables(tmp_path: Path) -> None:
    words = ["--data", "sample", "--system", "gt", "--scorer", "bleu"]
    words += ["--executor", "local", "--out", str(tmp_path / "x")]
    assert invoke("run", *words).exit_code == 0
    tables = {"pyarrow.acero", "pyarrow.dataset", "scipy", "matplotlib"}
    judging = {"plait.scorers.letters"}
    assert "nothing to compute" in _plan_without(HEAVY | tables | judging, words)


def _plan_without(modules: set[str], words: Sequence[str]) -> str:
    """Return what `plait plan` prints in a process, which must import none of `modules`."""
    code = (
        "import sys, plait.cli, plait.api\n"
        f"sys.argv = {['plait', 'plan', *words]!r}\n"
        "try:\n    plait.cli.app()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"loaded = {modules!r} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


REFUSING = {"import_extra", "require_extra"}
ONLY_LOADED = {
    "plait.generators.loading.files",
    "plait.generators.loading.llama",
    "plait.pipelines.endpoints.chat",
    "plait.scorers.ssim",
    "plait.scorers.texts",
}
"""What they import lazily, stages do that `load_stage` has asked for their extra."""
TRIED = {
    "plait.benchmarks.studies.diff": {"torch", "torchmetrics"},  # `lpips` asks for them
    "plait.cluster.energy": {"pynvml"},  # a reading that is left out, with its reason
    "plait.cluster.executors.probe": {"grpc"},  # comes with Ray, which is asked for before
    "plait.generators.diffusion.placing": {"xformers"},  # else PyTorch's own attention
}
"""Optional packages that do without the helper."""
OF_OTHER_STAGES = {"plait.pipelines.vlm.answers", "plait.benchmarks.speed.upstream"}
"""Targets without settings of their own: an LVLM's, and those of `plait bench stage`."""


class LazyImport(NamedTuple):
    """An import within a function."""

    name: str
    asked: bool
    """Whether the function looks for the package first."""


class Imports(NamedTuple):
    """What a file imports at run time."""

    at_once: set[str]
    lazily: set[LazyImport]


@cache
def runtime_imports(path: Path) -> Imports:
    """What a file imports, by the whole name where that is a module."""
    tree, found = ast.parse(path.read_text()), Imports(set(), set())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    looking = REFUSING | {"is_installed"}
    asking = looking | {each.name for each in functions if calls(each, looking)}

    def walk(node: ast.AST, asked: bool | None) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            asked = bool(asked) or calls(node, asking)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {n for a in node.names for n in names_of(node, a)}
            if asked is None:
                found.at_once.update(names)
            else:
                found.lazily.update(LazyImport(name, asked) for name in names)
        for child in ast.iter_child_nodes(node):
            walk(child, asked)

    walk(tree, None)
    return found


def names_of(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name}
    return {f"{node.module}.{alias.name}", node.module or ""}


def calls(function: ast.AST, names: set[str]) -> bool:
    made = (n.func for n in ast.walk(function) if isinstance(n, ast.Call))
    return any(isinstance(f, ast.Name) and f.id in names for f in made)


@cache
def always_there() -> set[str]:
    """Modules of Python, of plait, and of what `pip install plait` brings."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    left, names = list(settings["project"]["dependencies"]), set[str]()
    while left:
        one = Requirement(left.pop())
        name = canonicalize_name(one.name)
        if name not in names and (one.marker is None or one.marker.evaluate({"extra": ""})):
            names.add(name)
            left += metadata.requires(name) or []
    brought = {
        module
        for module, owners in metadata.packages_distributions().items()
        if any(canonicalize_name(owner) in names for owner in owners)
    }
    return brought | sys.stdlib_module_names | {*ORDER, "tests"}


class OptionalImports:
    """Which modules of plait need packages that `pip install plait` does not bring."""

    def __init__(self) -> None:
        paths = paths_of_modules()
        scripts = tuple(SCRIPTS)
        self._needed = dict[str, set[str]]()
        self.of = {
            name: runtime_imports(path)
            for name, path in paths.items()
            if not name.startswith(scripts)
        }

    def needed_by(self, first: str) -> set[str]:
        """The optional packages that come with the import of a module or package."""
        if first in self._needed:
            return self._needed[first]
        left, seen, found = [first], set[str](), set[str]()
        while left:
            for each in {*parents(name := left.pop()), name} - seen:
                seen.add(each)
                if each in self.of:
                    left += self.of[each].at_once
            top = name.partition(".")[0]
            if top not in always_there():
                found.add(top)
        self._needed[first] = found
        return found


@cache
def optional_imports() -> OptionalImports:
    return OptionalImports()


def unasked(found: OptionalImports) -> dict[str, set[str]]:
    """By module, the optional packages that it imports in a function without asking."""
    wrong = dict[str, set[str]]()
    for module, imported in found.of.items():
        if found.needed_by(module) or module in ONLY_LOADED:
            continue
        for lazy in imported.lazily:
            needs = found.needed_by(lazy.name) - TRIED.get(module, set())
            if needs and not lazy.asked:
                wrong[module] = wrong.get(module, set()) | needs
    return wrong


def test_optional_packages_are_reached_through_the_helper() -> None:
    found = optional_imports()
    assert unasked(found) == {}
    for name in ("plait", "plait.api", "plait.commands", "plait.cluster.run"):
        assert found.needed_by(name) == set()
    assert found.needed_by("plait.pipelines.vlm.stage") >= {"torch", "transformers"}
    assert found.needed_by("plait.cluster.executors.on_ray") == {"ray"}


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        ("def f():\n    import torch", False),
        ("def f():\n    from plait.scorers.bertscore import BertScore", False),
        ("def f():\n    require_extra('models', 'it')\n    import torch", True),
        ("def g(): import_extra('x', 'it')\ndef f():\n    g()\n    import torch", True),
    ],
)
def test_a_planted_lazy_import_is_found(tmp_path: Path, code: str, asked: bool) -> None:
    (tmp_path / "planted.py").write_text(code)
    found = copy(optional_imports())  # with what the others need
    planted = runtime_imports(tmp_path / "planted.py")
    found.of = {**found.of, "benchmarks.planted": planted}
    assert bool(unasked(found)) is not asked


def settings_classes(of: type[StageSettings] = StageSettings) -> Iterator[Any]:
    for kind in of.__subclasses__():
        yield kind
        yield from settings_classes(kind)


def test_stages_declare_the_extra_of_what_they_import() -> None:
    found, stages = optional_imports(), set[str]()
    for name in found.of:
        if not found.needed_by(name):
            importlib.import_module(name)  # with all settings
    for kind in settings_classes():
        module = getattr(kind, "target", "").partition(":")[0]
        if module in found.of:
            stages.add(module)
            needs = found.needed_by(module)
            assert needs <= {*MODULES.get(kind.extra, ())}, kind
    for kind in (SsimSettings, RougeSettings, EngineChatSettings):  # import in methods
        assert kind.extra == "models"
    assert len(stages) > 20
    paths = paths_of_modules()
    targets = {target for name in found.of for target in found_in(paths[name])[1]}
    heavy = {t for t in targets if t in found.of and found.needed_by(t)}
    assert heavy <= stages | OF_OTHER_STAGES
