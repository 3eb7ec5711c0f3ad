"""Packages that only some uses need: named in one line where they are not installed."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from paths import CHECKOUT

from plait.benchmarks.results.frame import Frame
from plait.benchmarks.runs.exporters import mlflow_runs, tracked, trackio_runs, wandb_runs
from plait.benchmarks.speed import loadgen
from plait.generators import buckets, extras
from plait.generators.buckets import any_path, refuse_unconditional, unlink_all
from plait.generators.errors import UsageError
from plait.generators.extras import import_extra
from plait.scorers.features import gpt_tokens
from plait.scorers.pairwise.mmrb2 import repaired_json

PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
ROOMS = ("benchmarks", "cluster", "generators", "pipelines", "scorers")
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
    ("json_repair", repaired_json),
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


def test_the_extras_that_are_named_are_those_of_the_project() -> None:
    named = set(extras._EXTRAS.values())
    assert named <= PROJECT["optional-dependencies"].keys()


OPTIONAL = {"datasets", "fastapi", "peft", "prometheus_client", "pynvml"}
OPTIONAL |= {"uvicorn", "xformers", *extras._EXTRAS, *extras._PACKAGES}
ELSEWHERE = {
    # `plait serve` looks for all of them before it imports this folder.
    "benchmarks/serving": {"fastapi", "prometheus_client", "uvicorn"},
    # A reading that is left out, with its reason.
    "cluster": {"pynvml"},
    # One op is tried; PyTorch's own attention serves where that fails.
    "generators/diffusion": {"xformers"},
    # After `import_extra`, for exceptions and types.
    "generators": {"obstore"},
    # The types of what a method returns after `import_extra`.
    "benchmarks/results": {"pandas", "polars"},
}


def imports(file: Path) -> Iterator[str]:
    """The packages that a file imports, wherever it does."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield str(node.module).partition(".")[0]


def test_optional_packages_are_imported_in_no_other_way() -> None:
    found: dict[str, set[str]] = {}
    for room in ROOMS:
        for file in (CHECKOUT / room).rglob("*.py"):
            optional = OPTIONAL & {*imports(file)}
            folder = str(file.parent.relative_to(CHECKOUT))
            if optional:
                found[folder] = found.get(folder, set()) | optional
    assert found == ELSEWHERE
