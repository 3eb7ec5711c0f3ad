"""`[servers.NAME]`: what is refused, what names results, and what is started."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from benchmarks.runs.config import RunConfig
from benchmarks.runs.planning import _need
from cluster.counts import StageCount
from generators.base import StageSpec
from generators.errors import UsageError
from generators.names import validated
from pipelines.servers.settings import ServerTable
from pipelines.systems import Models, writer_spec

TABLE: dict[str, Any] = {"command": "sh -c 'serve {model}' {port}", "version": "sh 1.0"}


def spec_of(name: str = "openai:m/x", **table: Any) -> StageSpec:
    servers = {"local": ServerTable.model_validate({**TABLE, **table})}
    overrides = {name: {"server": "local"}}
    return writer_spec(
        name, Models(weights="pretrained", overrides=overrides, servers=servers)
    )


def test_a_model_names_its_server() -> None:
    spec = spec_of(num_gpus=2, num_cpus=3, replicas=4, health="/up", env={"A": "b"})
    placement = spec.placement
    assert placement.server is not None
    assert placement.server.argv == ("sh", "-c", "serve m/x", "{port}")
    assert (placement.server.name, placement.server.health) == ("local", "/up")
    assert placement.server.env == (("A", "b"),)
    assert (placement.num_gpus, placement.num_cpus, placement.workers) == (2, 3, 4)
    assert spec.identity == "endpoint:local sh 1.0"


def test_a_name_without_a_table_only_names_results() -> None:
    models = Models(weights="pretrained", overrides={"openai:m": {"server": "mine"}})
    spec = writer_spec("openai:m", models)
    assert spec.placement.server is None
    assert spec.identity == "endpoint:mine"


def test_name_and_version_name_results_and_how_it_is_run_does_not() -> None:
    spec = spec_of()
    assert spec.digest != spec_of(version="sh 1.1").digest
    same = [
        spec_of(command="other {port}"),
        spec_of(port=8000),
        spec_of(num_gpus=1, replicas=2),
        spec_of(env={"A": "b"}, pass_env=["HF_TOKEN"]),
    ]
    assert {spec.digest} == {o.digest for o in same}
    assert spec_of(version="any").identity == "endpoint:local"


def test_the_version_is_that_of_the_program() -> None:
    command = f"{sys.executable} -m pytest {{port}}"
    assert spec_of(version=None, command=command).identity == (
        f"endpoint:local pytest {pytest.__version__}"
    )


def test_a_providers_key_and_address_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(pass_env=["HF_TOKEN"])
    assert spec.secrets == ("PLAIT_SERVER_KEY", "HF_TOKEN")
    assert spec.options["api_key_env"] == "PLAIT_SERVER_KEY"
    assert spec.options["base_url"] == "http://127.0.0.1/v1"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"command": "serve"}, "command does not say {port}"),
        ({"command": []}, "at least 1 item"),
        (
            {"command": "serve --port {port} --api-key hunter2"},
            "--api-key would put a secret",
        ),
        ({"env": {"API_KEY": "hunter2"}}, "API_KEY looks like a secret"),
        ({"port": 8000, "replicas": 2}, "replicas cannot share one port"),
        ({"healthy": "/x"}, "did you mean 'health'"),
        ({"health": "up"}, "health"),
    ],
)
def test_wrong_tables_are_refused(table: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)):
        validated(RunConfig, {"servers": {"local": {**TABLE, **table}}}, "")


def test_a_server_that_no_table_names_is_refused() -> None:
    models = Models(
        weights="pretrained",
        overrides={"openai:m": {"server": "locl"}},
        servers={"local": ServerTable.model_validate(TABLE)},
    )
    with pytest.raises(
        UsageError, match="unknown server of openai:m: 'locl'; did you mean"
    ):
        writer_spec("openai:m", models)


def test_a_plan_shows_what_a_server_takes() -> None:
    tally = StageCount(spec_of(num_gpus=2, num_cpus=3))
    assert _need(tally) == "server local: 2 GPU, 3 CPU, 16 at a time"


def test_a_url_of_its_own_is_refused() -> None:
    settings = {"server": "local", "base_url": "http://127.0.0.1:1/v1"}
    models = Models(
        weights="pretrained",
        overrides={"openai:m": settings},
        servers={"local": ServerTable.model_validate(TABLE)},
    )
    with pytest.raises(UsageError, match="leave base_url out"):
        writer_spec("openai:m", models)


def test_a_config_without_servers_keeps_its_name() -> None:
    with_servers = validated(RunConfig, {"servers": {"local": TABLE}}, "")
    assert validated(RunConfig, {"servers": {}}, "").digest == RunConfig().digest
    assert with_servers.digest != RunConfig().digest
