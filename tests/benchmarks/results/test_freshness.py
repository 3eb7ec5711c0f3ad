"""A page is made again when something that it shows has changed, and only then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_helpers import invoke as plait

from plait.benchmarks.results.report.freshness import MADE_OF
from plait.cluster.run import MANIFEST
from plait.cluster.tracing.journal import JOURNAL

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("worker_threads")]

SYSTEM = ("--system", "stages:Paragraphs@text", "--scorer", "stages:Constant")


def make(root: Path, *more: str) -> None:
    words = ["--weights", "tiny", "--limit", "4", "--out", str(root), *more]
    done = plait("run", *SYSTEM, *words)
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, worker_threads: None) -> Path:
    root = tmp_path_factory.mktemp("made") / "run"
    make(root)
    make(root)  # the first command tells what it forecast and took
    return root


def state(root: Path) -> dict[str, int]:
    """When each file of the page was written."""
    files = [root / "report.html", *(root / "report").iterdir()]
    return {path.name: path.stat().st_ino for path in files}


def test_a_page_stays_while_nothing_that_it_shows_changes(made: Path) -> None:
    before = state(made)
    assert MADE_OF in before
    make(made)
    assert state(made) == before


def _set(path: Path, **entries: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("change", "more"),
    [
        (lambda root: (root / "report" / "index.js").unlink(), ()),
        (lambda root: _cut(root / "report.html"), ()),
        (lambda root: _cut(root / "report" / "data-000.js"), ()),
        (lambda root: _set(root / "report" / MADE_OF, content="another"), ()),
        (lambda root: _cut(root / "report" / MADE_OF), ()),
        (lambda root: _cut(root / JOURNAL), ()),
        (lambda root: None, ("--set", "report.queries=2")),
        (lambda root: None, ("--scorer", "rouge1")),
        (lambda root: None, ("--limit", "5")),
    ],
)
def test_it_is_made_again_otherwise(
    made: Path,
    tmp_path: Path,
    change: Callable[[Path], object],
    more: tuple[str, ...],
) -> None:
    root = tmp_path / "run"
    shutil.copytree(made, root)
    make(root)  # a copy has other files
    before = state(root)["report.html"]
    change(root)
    plait("run", *SYSTEM, "--weights", "tiny", "--limit", "4", "--out", str(root), *more)
    assert state(root)["report.html"] != before
    assert (root / "report" / "index.js").exists()


def test_one_that_is_made_again_is_the_same_but_for_times(made: Path) -> None:
    def shown() -> tuple[str, dict[str, bytes]]:
        about = json.loads((made / MANIFEST).read_text())
        page = (made / "report.html").read_text()
        for name in ("started", "finished"):
            page = page.replace(about[name], "")
        scripts = sorted((made / "report").glob("*.js"))
        return page, {path.name: path.read_bytes() for path in scripts}

    (made / "report" / MADE_OF).unlink()
    make(made)
    first = shown()
    (made / "report" / MADE_OF).unlink()
    make(made)
    assert shown() == first
