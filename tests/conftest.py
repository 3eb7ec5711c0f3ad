"""One Ray for the whole session; no network; one thread per model."""

from __future__ import annotations

import gc
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import cli_helpers as cli_helpers  # before any other module that runs commands
import hypothesis
import pytest
from markupsafe import Markup
from paths import CHECKOUT, PYTHON_PATH
from tiers import (
    FIXTURES,
    MOST_FLAKY,
    TIERS,
    WORKERS_IN_TIME,
    in_order,
    lane_of,
    left_behind,
    refuse_heavy_imports,
    sample,
    tier_of,
    tiers_in,
)
from tiers import no_process_below_system as no_process_below_system

from plait.generators.buckets import BucketPath

# `python -m pytest` puts the checkout on the path: there the rooms would be packages.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != CHECKOUT]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ |= WORKERS_IN_TIME
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Hypothesis fails an example that takes over 0.2 s, and a test whose examples take long to
# make; a busy machine is not a defect. A change is tested on the same examples each time;
# `--hypothesis-profile=default` looks for new ones.
hypothesis.settings.register_profile(
    "plait",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("plait")

FIGURES_OF_PAGES = tuple(
    f"plait.benchmarks.results.{module}.draw"
    for module in ("figures", "report.page", "pairings.page")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    said = "only tests of this tier (helpers/tiers.py); may be repeated"
    parser.addoption("--tier", action="append", choices=TIERS, help=said)
    said = "all cases of tests that are marked `sampled`"
    parser.addoption("--all-cases", action="store_true", help=said)


def _wanted_tiers(config: pytest.Config) -> set[str]:
    return {*(config.getoption("--tier") or TIERS)}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a test of the tier are not imported: some bring torch."""
    if _wanted_tiers(config) == {*TIERS}:
        return None
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    return None if tiers_in(collection_path) & _wanted_tiers(config) else True


def pytest_configure(config: pytest.Config) -> None:
    if _wanted_tiers(config) <= {"unit", "contract"}:
        refuse_heavy_imports()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Imports leave no garbage: without searching for it they take a quarter less time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the wanted tiers, those that take long first."""
    wanted = _wanted_tiers(config)
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    if not config.getoption("--all-cases"):
        items[:], others = sample(items)
    for item in items:
        for fixture, mark in FIXTURES.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
        marks = [mark.name for mark in item.iter_markers()]
        tier = tier_of(marks)
        lane = lane_of(marks)
        group = str(item.path) if lane is None else f"lane {lane}"
        item.add_marker(pytest.mark.xdist_group(group))
        if tier == "system":
            item.add_marker(pytest.mark.flaky(reruns=1))
        (chosen if tier in wanted else others).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
    items[:] = in_order(chosen)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """More than a few flaky tests fail a run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    flaky = {report.nodeid for report in _reruns(reporter)}
    if len(flaky) > MOST_FLAKY:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name each test that was run once more, with what it said when it failed."""
    reruns = _reruns(terminalreporter)
    for report in reruns:
        terminalreporter.section(f"FLAKY {report.nodeid}", yellow=True)
        terminalreporter.line(report.longreprtext)
    if len({report.nodeid for report in reruns}) > MOST_FLAKY:
        terminalreporter.line(
            f"more than {MOST_FLAKY} tests are flaky: that fails", red=True
        )


def _reruns(reporter: Any) -> list[pytest.TestReport]:
    return [] if reporter is None else reporter.stats.get("rerun", [])


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(pytestconfig: pytest.Config) -> Iterator[None]:
    """Tests of the first three tiers leave no process and no port behind."""
    before = {*left_behind()}  # a plugin has a port of its own
    yield
    if "system" not in _wanted_tiers(pytestconfig):
        assert not {*left_behind()} - before


@pytest.fixture(scope="module", autouse=True)
def searched_garbage() -> Iterator[None]:
    """What is left after a module, libraries above all, is not searched again and again."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def runs_do_not_wait() -> Iterator[None]:
    """What a run waits for, and hundreds need not: a disk, and a look at the CPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        looking = "plait.benchmarks.runs.forecast.forecast.other_work"
        patch.setattr(looking, lambda: {"cpus": 0.0})
        yield


@pytest.fixture(scope="module", autouse=True)
def figures_of_pages(request: pytest.FixtureRequest) -> Iterator[None]:
    """Figures take a third of a small run: without the mark `figures` they are empty."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("figures") is None:
            for name in FIGURES_OF_PAGES:
                patch.setattr(name, lambda *about: Markup("<svg></svg>"))
        yield


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """Address of the session's Ray, which this process is connected to."""
    import ray

    from plait.cluster.executors.on_ray import start_local

    context = start_local(num_cpus=4)
    yield context.address_info["gcs_address"]
    ray.shutdown()


@pytest.fixture(scope="module")
def worker_threads() -> Iterator[None]:
    """Runs of this module have threads as workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAIT_EXECUTOR", "local")
        yield


@pytest.fixture
def own_protocols(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Writes another table of pinned protocols, which is read until the test ends."""
    from plait.benchmarks.protocols import pinned

    def write(text: str) -> None:
        file = tmp_path / "pinned.toml"
        file.write_text(text)
        patch.setattr(pinned, "FILE", file)
        pinned.protocols.cache_clear()

    with pytest.MonkeyPatch.context() as patch:
        yield write
    pinned.protocols.cache_clear()


@pytest.fixture(scope="session")
def object_store_server() -> Iterator[tuple[str, dict[str, str]]]:
    for package in ("obstore", "moto", "flask_cors"):
        pytest.importorskip(package, reason=f"needs {package}, which .[dev] installs")
    from object_store import object_store

    with object_store() as server:
        yield server


@pytest.fixture
def bucket(
    object_store_server: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> BucketPath:
    """A place of the test's own in a bucket, which this process and its children reach."""
    url, env = object_store_server
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return BucketPath(url, PurePosixPath(uuid.uuid4().hex))


@pytest.fixture(scope="session")
def trial_env(ray_address: str) -> dict[str, str]:
    """Environment of a driver process that is to use the session's Ray."""
    path = PYTHON_PATH
    return dict(os.environ, TRIAL_RAY=ray_address, PYTHONPATH=path)


_of_libraries: set[str] = set()
"""Modules that no test has written: thousands, which need not be looked at every time."""


@pytest.fixture(autouse=True)
def forget_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Several tests write a `mine.py`; each imports its own."""
    yield
    folder = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - _of_libraries:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if "." not in name and file.startswith(folder):
            del sys.modules[name]
        else:
            _of_libraries.add(name)


@pytest.fixture
def python() -> str:
    return sys.executable
