"""Packages that only some uses need: named in one line where they are not installed."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import CHECKOUT

from plait.benchmarks.results.frame import Frame
from plait.benchmarks.runs.exporters import mlflow_runs, tracked, trackio_runs, wandb_runs
from plait.benchmarks.speed import loadgen
from plait.generators import buckets
from plait.generators.buckets import any_path, refuse_unconditional, unlink_all
from plait.generators.errors import UsageError
from plait.generators.extras import (
    MODULES,
    Extra,
    extra_problem,
    import_extra,
    is_installed,
    require_extra,
)
from plait.scorers.features import gpt_tokens
from plait.scorers.pairwise.mmrb2 import json_repairer

PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
BUCKET = any_path("s3://bucket/run")
USES: list[tuple[str, Callable[[], object]]] = [
    ("obstore", lambda: BUCKET.exists()),
    ("obstore", lambda: BUCKET.read_bytes()),
    ("obstore", lambda: BUCKET.write_bytes(b"")),
    ("obstore", lambda: list(BUCKET.iterdir())),
    ("obstore", lambda: unlink_all([BUCKET])),
    ("obstore", lambda: refuse_unconditional(BUCKET)),
    ("tiktoken", gpt_tokens),
    ("mlperf_loadgen", loadgen.require),
    ("json_repair", json_repairer),
    ("pandas", lambda: Frame(pa.table({})).to_pandas()),
    ("polars", lambda: Frame(pa.table({})).to_polars()),
    ("wandb", lambda: tracked.require("wandb", wandb_runs.CLIENT.modules)),
    ("mlflow", lambda: tracked.require("mlflow", mlflow_runs.CLIENT.modules)),
    ("pandas", lambda: tracked.require("mlflow", mlflow_runs.CLIENT.modules)),
    ("trackio", lambda: tracked.require("trackio", trackio_runs.CLIENT.modules)),
]


@pytest.mark.parametrize(("module", "use"), USES)
def test_a_package_that_is_not_installed_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, module: str, use: Callable[[], object]
) -> None:
    buckets._store.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match="pip install") as caught:
        use()
    message = str(caught.value)
    assert module in message
    assert "\n" not in message


def test_a_package_that_lacks_another_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tiktoken.py").write_text("import no_such_package")
    monkeypatch.delitem(sys.modules, "tiktoken", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="lacks no_such_package"):
        import_extra("tiktoken", "it")


def test_a_folder_of_a_packages_name_is_no_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "trackio").mkdir()
    monkeypatch.delitem(sys.modules, "trackio", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("trackio")


@pytest.mark.parametrize("extra", MODULES)
def test_an_extra_that_is_not_installed_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, extra: Extra
) -> None:
    for module in MODULES[extra]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as caught:
        require_extra(extra, "it")
    message = str(caught.value)
    assert f"plait[{extra}]" in message
    assert MODULES[extra][0] in message
    assert "\n" not in message


def test_an_extra_that_is_there_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES["serve"]:
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    assert extra_problem("serve", "it") == ""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "fastapi" not in extra_problem("serve", "it")


def names_of(extra: str) -> set[str]:
    """The distributions that an extra installs, of the extras within it too."""
    found = set()
    for text in PROJECT["optional-dependencies"][extra]:
        one = Requirement(text)
        if one.name == PROJECT["name"]:
            found |= {name for inner in one.extras for name in names_of(inner)}
        else:
            found.add(canonicalize_name(one.name))
    return found


PACKAGES = {
    "open_clip": "open-clip-torch",
    "prometheus_client": "prometheus-client",
    "mlperf_loadgen": "mlcommons-loadgen",
    "mlflow": "mlflow-skinny",
}
"""Distributions whose name is not that of their module."""


@pytest.mark.parametrize("extra", MODULES)
def test_an_extra_installs_its_modules(extra: Extra) -> None:
    brought = {"tokenizers"}  # by transformers
    wanted = {PACKAGES.get(module, module) for module in MODULES[extra]} - brought
    assert wanted <= names_of(extra)
    light = {canonicalize_name(Requirement(t).name) for t in PROJECT["dependencies"]}
    assert not wanted & light


def test_all_has_what_users_need_and_dev_what_is_tested() -> None:
    whole = {"models", "ray", "serve", "buckets", "datasets", "tiktoken", "energy"}
    for extra in whole:
        assert names_of(extra) <= names_of("all")
    assert not names_of("all") & {"wandb", "mlflow-skinny", "trackio", "xformers"}
    assert names_of("all") | names_of("wandb") | names_of("loadgen") <= names_of("dev")
