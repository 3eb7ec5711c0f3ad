"""What is installed, what its names are, and who finds them: editors, hostile folders."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from paths import CHECKOUT, SOURCE

import plait
from plait.generators.errors import PlaitWarning, UsageError
from plait.generators.former import ROOMS, current_name

pytestmark = pytest.mark.contract

PACKAGE = SOURCE / "plait"


def in_folder(folder: Path, words: list[str], *paths: Path) -> str:
    """What a command prints, in a folder, with `paths` before all installed packages."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), "COLUMNS": "200"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def uv(*words: str) -> None:
    program = Path(sys.executable).with_name("uv")
    if not program.exists():
        pytest.skip("needs uv, which `make test` installs")
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode and "Failed to fetch" in done.stderr:
        pytest.skip("needs the index that setuptools comes from")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that an installed wheel has, without its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    uv(
        "build",
        "--quiet",
        "--wheel",
        "--no-build-isolation",
        "--out-dir",
        str(folder),
        str(CHECKOUT),
    )
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture(params=["wheel", "checkout"])
def installed(request: pytest.FixtureRequest) -> Path:
    """A folder on `sys.path`: a wheel's, or the one that an editable install names."""
    if request.param == "checkout":
        return SOURCE
    found: Path = request.getfixturevalue("wheel")
    return found


def test_nothing_but_plait_is_installed(wheel: Path) -> None:
    (about,) = wheel.glob("plait-*.dist-info")
    assert {p.name for p in wheel.iterdir()} == {"plait", about.name}
    assert (wheel / "plait" / "py.typed").is_file()
    packed = {str(p.relative_to(wheel)) for p in wheel.rglob("*.py")}
    assert not [name for name in packed if "/training/" in name or "/scripts/" in name]
    assert {f"plait/{room}/__init__.py" for room in ROOMS} <= packed
    assert [p.name for p in SOURCE.iterdir() if p.suffix != ".egg-info"] == ["plait"]


HOSTILE = {
    "benchmarks/tasks.py": "raise SystemExit('not this one')",
    "cluster.py": "raise SystemExit('not this one')",
    "scorers/mine.py": "X = 1",
    "pipelines/__init__.py": "",
    "pipelines/mine.py": """
from plait import Draft, Result, Text

class Echo:
    kind = "draft"
    def __init__(self, **_): ...
    def __call__(self, requests):
        return [Result(Draft((Text("An echo."),))) for _ in requests]
""",
    "plait/notes.txt": "a clone, or a folder of notes",
}


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A project with folders and files that have the names of plait's rooms."""
    for name, text in HOSTILE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


RUN = ["run", "--data", "sample", "--weights", "tiny", "--limit", "2", "--scorer", "bleu"]
RUN += ["--system", "pipelines.mine:Echo@text", "--executor", "local", "--out", "run"]


@pytest.mark.slow
def test_commands_work_in_a_folder_with_the_same_names(
    installed: Path, hostile: Path
) -> None:
    command = [sys.executable, "-m", "plait"]
    in_folder(hostile, [*command, *RUN], installed)
    assert "pipelines.mine:Echo@text" in in_folder(
        hostile, [*command, "report", "run"], installed
    )
    counts = json.loads((hostile / "run" / "manifest.json").read_text())["counts"]
    assert counts["done"] == 2
    assert counts["scored"] > 0


@pytest.mark.slow
def test_the_api_works_in_a_folder_with_the_same_names(
    installed: Path, hostile: Path
) -> None:
    code = (
        "import plait, pipelines.mine, scorers.mine\n"
        "plait.run(data='sample', weights='tiny', limit=1, scorers=[], out='run',"
        " systems=['pipelines.mine:Echo@text'], executor='local')\n"
        "print(*plait.open_run('run').systems, plait.__file__)"
    )
    said = in_folder(hostile, [sys.executable, "-c", code], installed)
    assert said.split() == [
        "pipelines.mine:Echo@text",
        str(installed / "plait/__init__.py"),
    ]


@pytest.mark.slow
def test_the_folder_that_holds_a_clone_hides_no_package(tmp_path: Path) -> None:
    (tmp_path / "plait").symlink_to(CHECKOUT)
    said = in_folder(
        tmp_path, [sys.executable, "-c", "import plait; print(plait.run)"], SOURCE
    )
    assert "function run" in said


@pytest.mark.slow
def test_an_editor_finds_every_module(tmp_path: Path) -> None:
    """basedpyright resolves imports as editors do, without running an import hook."""
    names = []
    for room in ROOMS:
        for path in sorted((CHECKOUT / room).rglob("*.py")):
            parts = path.relative_to(CHECKOUT).with_suffix("").parts
            names.append(".".join(("plait", *parts)).removesuffix(".__init__"))
    names += [f"plait.{p.stem}" for p in PACKAGE.glob("*.py") if not p.stem.startswith("_")]
    assert len(names) > 400
    lines = [
        *(f"import {name}" for name in names),
        f"from plait import {', '.join(plait.__all__)}",
    ]
    (tmp_path / "every.py").write_text("\n".join(lines))
    settings = {"extraPaths": [str(SOURCE)], "typeCheckingMode": "off"}
    settings |= {"reportMissingImports": "error", "reportAttributeAccessIssue": "error"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    program = Path(sys.executable).with_name("basedpyright")
    command = [str(program), "--outputjson", "--pythonpath", sys.executable, "every.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["generalDiagnostics"] == []
    assert found["summary"]["filesAnalyzed"] == 1


def test_dir_shows_the_public_names_alone() -> None:
    assert dir(plait) == sorted(plait.__all__)
    for name in plait.__all__:
        assert getattr(plait, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'cluster_of'"):
        plait.cluster_of  # noqa: B018


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("from generators.base import Result, Skip", "`from plait import Result, Skip`"),
        (
            "from scorers.base import Scorer",
            "`from plait.scorers.base import Scorer`",
        ),
        (
            "from generators.base import Kind, Result",
            "`from plait import Result` and `from plait.generators.base import Kind`",
        ),
        ("import cluster.plan", "`import plait.cluster.plan`"),
    ],
)
def test_a_module_that_imports_a_former_package_is_told_what_to_write(
    line: str, instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plait.generators.base import import_target
    from plait.generators.own_code import own_code

    (tmp_path / "former_mine.py").write_text(f"import os\n{line}\n")
    # A command that was given in the checkout has put it on the path.
    others = [place for place in sys.path if Path(place).resolve() != CHECKOUT]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
    for name in [n for n in sys.modules if n.partition(".")[0] in ROOMS]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "former_mine", raising=False)
    for find in (import_target, own_code):
        with pytest.raises(UsageError) as caught:
            find("former_mine:Echo")
        assert "former_mine.py, line 2" in str(caught.value)
        assert str(caught.value).endswith(instead)


def test_stages_of_former_runs_have_todays_names() -> None:
    assert current_name("generators.anole.draft:AnoleDraft").startswith("plait.generators.")
    assert current_name("mine:Echo") == "mine:Echo"


@pytest.mark.parametrize(
    ("module", "former", "name"),
    [
        ("plait.benchmarks.tasks.published", "gathered", "gather"),
        ("plait.generators.natives", "assembled", "assemble"),
        ("plait.scorers.pairwise.games", "counted", "count_games"),
    ],
)
def test_a_former_name_of_a_readme_works_with_a_warning(
    module: str, former: str, name: str
) -> None:
    found = importlib.import_module(module)
    with pytest.warns(PlaitWarning, match=name):
        assert getattr(found, former) is getattr(found, name)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        found.nothing_like_it  # noqa: B018
