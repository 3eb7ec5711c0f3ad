"""Results that are damaged, of a later version or another run; and writing that fails."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from api_helpers import OWN, SCORER, fill
from cli_helpers import manifest, plait
from paths import PYTHON_PATH
from store_helpers import flip

from plait.benchmarks.results.files import spill, writing
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.schema import ABOUT, FOLDER, TABLES, VERSION
from plait.benchmarks.results.files.tables import NewerResults, ResultsError
from plait.benchmarks.results.files.writing import content_digest
from plait.benchmarks.runs.opening import make_results, open_results
from plait.cluster.manifest import write_json
from plait.cluster.store import StoreError
from plait.generators.errors import PlaitError, PlaitWarning, WriteError

pytestmark = [
    pytest.mark.slow,
]

OTHER = "stages:Constant"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with results; not to be changed."""
    root = tmp_path_factory.mktemp("made") / "run"
    fill(root, **OWN)
    open_results(root)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    root = Path(shutil.copytree(made, tmp_path / "run"))
    write_json(root / "manifest.json", manifest(made))
    return root


def state(root: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (root / FOLDER).iterdir()}


def rows(root: Path) -> dict[str, list[dict[str, Any]]]:
    results = RunResults.at(root)
    return {name: [*results.rows(name)] for name in TABLES}


def rewrite(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what `run.json` says, as who wrote it might have said it."""
    path = root / FOLDER / ABOUT
    content = json.loads(path.read_text())
    change(content)
    content["sha256"] = content_digest(content)
    path.write_text(json.dumps(content))


def gone(patch: pytest.MonkeyPatch) -> None:
    """Have the module that data and systems are of be gone."""
    patch.setitem(sys.modules, "api_helpers", None)


ABOUTS: dict[str, Callable[[str], str]] = {
    "no JSON": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "a list": lambda text: "[]",
    "without a schema": lambda text: text.replace('"schema"', '"scheme"'),
    "another letter": lambda text: text.replace(SCORER, SCORER.upper(), 1),
    "another number": lambda text: text.replace('"seed": 0', '"seed": 4'),
}


@pytest.mark.parametrize("change", ABOUTS.values(), ids=ABOUTS)
def test_a_damaged_run_json_is_named_and_made_anew_by_report(
    root: Path, change: Callable[[str], str]
) -> None:
    path, before = root / FOLDER / ABOUT, rows(root)
    path.write_text(change(path.read_text()))
    damaged = state(root)
    done = plait("leaderboard", str(root), "--out", str(root.parent / "page"))
    assert done.returncode == 2, done.stderr
    assert str(path) in done.stderr
    assert "plait report" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert state(root) == damaged
    assert plait("report", str(root)).returncode == 0
    assert rows(root) == before


@pytest.mark.parametrize("table", ["queries", "answers", "scores", "records"])
@pytest.mark.parametrize("harm", ["truncated", "gone", "other"])
def test_a_damaged_table_is_named_and_made_anew_by_report(
    root: Path, table: str, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(root)
    (path,) = (root / FOLDER).glob(f"{table}-*")
    match harm:
        case "truncated":
            path.write_bytes(path.read_bytes()[:-30])
        case "gone":
            path.unlink()
        case "other":
            shutil.copyfile(next((root / FOLDER).glob("data-*")), path)
    with pytest.raises(ResultsError, match=path.name):
        RunResults.at(root).table(table)
    with monkeypatch.context() as patch:
        gone(patch)
        with pytest.raises(ResultsError, match=path.name):
            open_results(root, remakes=True)
    assert plait("report", str(root)).returncode == 0
    assert rows(root) == before


def test_no_flipped_bit_is_read_as_another_value(root: Path) -> None:
    before, draw = rows(root), random.Random(1)
    results = RunResults.at(root)
    noticed = 0
    for name, (entry,) in results.tables.items():
        path = root / FOLDER / entry["file"]
        whole = path.read_bytes()
        for _ in range(40):
            flip(path, draw.randrange(len(whole)), by=1 << draw.randrange(8))
            try:
                assert [*results.rows(name)] == before[name]
            except ResultsError:
                noticed += 1
            path.write_bytes(whole)
    assert noticed > 0.8 * 40 * len(results.tables)


def newer(content: dict[str, Any]) -> None:
    content["schema"] = VERSION + 1
    content["tables"] = {"unheard of": "in another form"}


@pytest.mark.parametrize(
    "words",
    [
        ("report", "RUN"),
        ("leaderboard", "RUN", "--out", "new"),
        ("forget", "RUN", "--system", "gt"),
        ("score", "RUN", "--scorer", OTHER),
        ("run", "--out", "RUN", "--data", OWN["data"], "--weights", "tiny"),
    ],
    ids=lambda words: words[0],
)
def test_results_of_a_later_version_are_refused_and_left_alone(
    root: Path, words: tuple[str, ...], tmp_path: Path
) -> None:
    rewrite(root, newer)
    before, noted = state(root), manifest(root)
    done = plait(*(str(root) if w == "RUN" else w for w in words), folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"schema {VERSION + 1}" in done.stderr
    assert (state(root), manifest(root)) == (before, noted)
    with pytest.raises(NewerResults):
        RunResults.at(root)


@pytest.mark.parametrize("differing", [{"seed": 1}, {"scorers": [SCORER, OTHER]}])
def test_results_of_another_run_are_refused_and_made_anew_by_report(
    root: Path, tmp_path: Path, differing: dict[str, Any]
) -> None:
    before = rows(root)
    fill(tmp_path / "other", **OWN | differing)
    open_results(tmp_path / "other")
    shutil.rmtree(root / FOLDER)
    shutil.copytree(tmp_path / "other" / FOLDER, root / FOLDER)
    done = plait("leaderboard", str(root), "--out", str(tmp_path / "page"))
    assert done.returncode == 2, done.stderr
    assert str(root / FOLDER / ABOUT) in done.stderr
    assert "plait report" in done.stderr
    assert plait("report", str(root)).returncode == 0
    assert rows(root) == before


def test_results_of_before_a_scorer_was_added_are_those_of_the_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that adds it was killed once it had written the manifest."""
    added = fill(root, **OWN | {"scorers": [SCORER, OTHER]})
    assert len(RunResults.at(root).scorers) == 1
    with monkeypatch.context() as patch:
        gone(patch)
        with pytest.warns(PlaitWarning):
            assert len(open_results(root).scorers) == 1
    results = open_results(root)
    assert [scorer.name for scorer in results.scorers] == [s.name for s in added.scorers]
    written = state(root)
    open_results(root)
    assert state(root) == written


def test_what_an_earlier_version_called_the_run_is_its_name(root: Path) -> None:
    write_json(root / "manifest.json", manifest(root) | {"run_digest": "of another form"})
    assert open_results(root).about.run_digest == "of another form"
    before = state(root)
    open_results(root)
    assert state(root) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from plait.benchmarks.results.files import writing
from plait.benchmarks.runs.opening import make_results
from plait.generators import files

def end(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def half(source, target):
    Path(target).write_bytes(Path(source).read_bytes()[:100])
    end()

if sys.argv[2] == "before run.json":
    writing.write_whole = end
else:
    files.shutil.copyfile = half
make_results(Path(sys.argv[1]))
"""


@pytest.mark.processes
@pytest.mark.parametrize("moment", ["before run.json", "within a table"])
def test_a_writer_that_is_killed_leaves_the_former_results(root: Path, moment: str) -> None:
    before, former = rows(root), state(root)
    fill(root, **OWN | {"scorers": [SCORER, OTHER]})
    paths = PYTHON_PATH
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), moment],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        check=False,
    )
    assert done.returncode < 0, done.stderr
    left = state(root)
    assert left.items() > former.items()
    assert rows(root) == before
    for path in (root / FOLDER).glob(".*.tmp"):
        os.utime(path, (0, 0))
    results = make_results(root)
    assert len(results.scorers) == 2
    listed = {entry["file"] for files in results.tables.values() for entry in files}
    assert {path.name for path in (root / FOLDER).iterdir()} == {ABOUT, *listed}


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullSink:
    """An Arrow file on a disk without room."""

    write_batch = staticmethod(full)


def without_room_for_tables(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("plait.generators.files.shutil.copyfile", full)


def without_room_for_run_json(patch: pytest.MonkeyPatch) -> None:
    def write(path: Path, content: str) -> None:
        raise WriteError(errno.ENOSPC, f"cannot write to {path.parent}: No space left")

    patch.setattr(writing, "write_whole", write)


def without_room_for_parquet(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spill.pq, "ParquetWriter", full)


def without_room_beside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spill, "_AT_ONCE", 1)
    patch.setattr(pa.ipc, "new_file", lambda *_, **__: FullSink())


@pytest.mark.parametrize(
    "fill_disk",
    [
        without_room_for_tables,
        without_room_for_run_json,
        without_room_for_parquet,
        without_room_beside,
    ],
)
def test_a_full_disk_is_one_line_and_nothing_is_lost(
    root: Path, monkeypatch: pytest.MonkeyPatch, fill_disk: Callable[..., None]
) -> None:
    before = rows(root)
    fill(root, **OWN | {"scorers": [SCORER, OTHER]})
    parts = sorted(root.glob("stages/*/part-*"))
    with monkeypatch.context() as patch:
        fill_disk(patch)
        with pytest.raises(PlaitError, match="No space left") as error:
            make_results(root)
        assert error.value.exit_status == StoreError.exit_status == 1
        done = plait("report", str(root))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert rows(root) == before
    assert sorted(root.glob("stages/*/part-*")) == parts
    assert plait("report", str(root)).returncode == 0
    assert len(RunResults.at(root).scorers) == 2
