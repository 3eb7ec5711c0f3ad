"""What `pip install plait` does without extras, and what it says of those it lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from endpoint_helpers import MODEL, Answer, completion, serving
from paths import HELPERS, PYTHON_PATH
from trial import writer

from plait.benchmarks.runs.requirements import package_problems
from plait.cluster.executors.base import ClusterError
from plait.cluster.plan import EngineOptions
from plait.cluster.run import EXECUTOR_VARIABLE, executor_of

pytestmark = pytest.mark.slow

SAMPLE = ("--data", "sample", "--limit", "3")
ASKED = ("run", *SAMPLE, "--system", f"openai:{MODEL}@text", "--out", "asked")
TRUTH = ("--system", "gt", "--weights", "tiny", "--out", "truth")
SERVED: Mapping[str, tuple[str, ...]] = {
    "run": (*ASKED, "--scorer", f"judge:openai:{MODEL}"),
    "score": ("score", "asked", "--scorer", "bleu", "--scorer", "chrf"),
    "report": ("report", "asked"),
    "pack": ("pack", "asked"),
    "diff": ("diff", "asked", "asked.zip"),
    "list": ("list", "scorers"),
}
"""Commands that are done."""
BIG = ("--system", "qwen2-vl-72b+sdxl-turbo", "--weights", "dummy", "--on", "8xH100")
PLANNED: Mapping[str, tuple[str, ...]] = {
    "models": ("plan", *SAMPLE, *BIG),
    "nothing": ("plan", *ASKED[1:-1], "new", "--scorer", f"judge:openai:{MODEL}"),
}
"""Plans, by the extra that is missing."""
CLIP = ("--scorer", "clipscore")
REFUSED: Mapping[str, tuple[str, ...]] = {
    "models": ("run",),
    "models too": ("run", *SAMPLE, *TRUTH, *CLIP),
    "models for a stage": ("bench", "stage", "anole"),
    "models of the world": ("bench", "miniature"),
    "ray": (*ASKED[:-1], "new", "--scorer", "bleu", "--executor", "ray"),
    "ray of a cluster": (*ASKED[:-1], "new", "--scorer", "bleu", "--address", "auto"),
    "buckets": (*ASKED[:-1], "s3://bucket/run"),
    "buckets to read": ("report", "s3://bucket/run"),
    "serve": ("serve", "anole"),
    "wandb": ("export", "asked", "--format", "wandb", "--out", "out"),
}
"""Commands that name the extra, the first word of the label."""


class Said(NamedTuple):
    """What a command returned and printed."""

    status: int
    output: str
    errors: str


Everything = Mapping[tuple[str, ...], Said]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Everything:
    """By command, what it does where no package of an extra is found."""
    folder = tmp_path_factory.mktemp("light")
    commands = [*SERVED.values(), *PLANNED.values(), *REFUSED.values()]
    (folder / "commands.json").write_text(json.dumps(commands))
    program = [sys.executable, str(HELPERS / "light_process.py"), "commands.json"]
    path = PYTHON_PATH
    with serving(lambda body: Answer(completion('{"reason": "so", "score": 4}'))) as server:
        done = subprocess.run(
            program,
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": path}
            | {"OPENAI_BASE_URL": server.url, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert not done.returncode, done.stderr
    answers = [Said(*answer) for answer in json.loads(done.stdout)]
    return dict(zip(commands, answers, strict=True))


@pytest.mark.parametrize("name", SERVED)
def test_a_light_install_does_it(said: Everything, name: str) -> None:
    found = said[SERVED[name]]
    assert found.status == 0, found
    assert "Traceback" not in found.errors


def test_a_run_without_ray_says_so_in_one_line(said: Everything) -> None:
    lines = said[SERVED["run"]].output.splitlines()
    assert len([line for line in lines if "plait[ray]" in line]) == 1


@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_needs_no_package_of_models(said: Everything, name: str) -> None:
    found = said[PLANNED[name]]
    named = f"plait[{name}]" in found.output
    assert "Forecast for" in found.output
    assert named is (name != "nothing")
    assert found.status == (2 if named else 0), found


@pytest.mark.parametrize("label", REFUSED)
def test_a_missing_extra_is_one_line_that_names_it(said: Everything, label: str) -> None:
    found = said[REFUSED[label]]
    assert found.status == 2, found
    assert f"'plait[{label.split()[0]}]'" in found.errors
    assert len(found.errors.splitlines()) == 1


ADDRESS = "RAY_ADDRESS"


@pytest.mark.parametrize(
    ("options", "variables", "ray", "chosen"),
    [
        ({}, {}, True, "ray"),
        ({}, {}, False, "local"),
        ({}, {EXECUTOR_VARIABLE: "local"}, True, "local"),
        ({}, {EXECUTOR_VARIABLE: "ray"}, False, "ray"),
        ({}, {ADDRESS: "10.0.0.1:6379"}, False, "ray"),
        ({"address": "auto"}, {EXECUTOR_VARIABLE: "local"}, False, "ray"),
        ({"executor": "local"}, {ADDRESS: "10.0.0.1:6379"}, True, "local"),
        ({"executor": "ray"}, {EXECUTOR_VARIABLE: "local"}, False, "ray"),
    ],
)
def test_the_default_executor_is_ray_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    variables: dict[str, str],
    ray: bool,
    chosen: str,
) -> None:
    for name in (EXECUTOR_VARIABLE, ADDRESS):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray") if ray else None)
    assert executor_of(EngineOptions(**options)) == chosen


def test_an_executor_of_no_such_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTOR_VARIABLE, "threads")
    with pytest.raises(ClusterError, match="valid: ray, local"):
        executor_of(EngineOptions())


@pytest.mark.models
@pytest.mark.parametrize(
    ("options", "problems"),
    [({"executor": "local"}, 1), ({"executor": "ray"}, 1), ({"address": "auto"}, 0)],
)
def test_nodes_of_a_cluster_need_the_packages_and_not_the_driver(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], problems: int
) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    stages = [replace(writer(), name=name, extra="models") for name in ("one", "two")]
    found = package_problems(stages, EngineOptions(**options))
    assert len(found) == problems
    assert all("one, two need torch: " in line for line in found)
    assert package_problems([], EngineOptions(**options)) == []
