"""The Ray of one machine: which processes it has, when it starts, and that it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any

import psutil
import pytest
from paths import CHECKOUT

from cluster import actors, local_ray

_PROGRAM = """
    import json, os, psutil, sys
    from cluster import local_ray
    begun = local_ray.begin(num_cpus=1)
    early = "cluster.actors" in sys.modules
    from cluster import actors
    with actors.connected(None):
        assert begun.address and local_ray.begin() is begun
        ray = actors.ray
        tree = psutil.Process().children(recursive=True)
        lines = [" ".join(p.cmdline()) for p in tree]
        answer = ray.get(ray.remote(lambda: os.environ["TQDM_DISABLE"]).remote())
        cpus = actors.nodes()[0].total.cpus
    again = local_ray.begin(num_cpus=1) is not begun
    local_ray.stop()
    gone, alive = psutil.wait_procs(tree, timeout=20)
    print(json.dumps({"lines": lines, "answer": answer, "cpus": cpus, "early": early,
                      "again": again, "alive": len(alive)}))
"""


def program(text: str) -> dict[str, Any]:
    command = [sys.executable, "-c", textwrap.dedent(text)]
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return program(_PROGRAM)


def test_ray_has_only_the_processes_that_workers_need(seen: dict[str, Any]) -> None:
    lines = "\n".join(seen["lines"])
    assert "gcs_server" in lines
    assert "raylet/raylet" in lines
    for needless in ("monitor.py", "log_monitor.py", "dashboard/dashboard.py"):
        assert needless not in lines, needless


def test_workers_compute_with_the_environment_of_workers(seen: dict[str, Any]) -> None:
    assert (seen["answer"], seen["cpus"]) == ("1", 1)


def test_it_begins_before_the_engine_is_imported(seen: dict[str, Any]) -> None:
    assert not seen["early"]


def test_it_ends_with_the_connection_and_can_begin_again(seen: dict[str, Any]) -> None:
    assert seen["again"]
    assert seen["alive"] == 0


def test_a_process_that_ends_without_stopping_leaves_nothing() -> None:
    """As after `local_ray.anticipate`, where the command is refused afterwards."""
    pids = program("""
        import json, psutil
        from cluster import local_ray
        local_ray.anticipate(None)
        assert local_ray.begin().address
        print(json.dumps([p.pid for p in psutil.Process().children(recursive=True)]))
    """)
    assert len(pids) >= 2
    left = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    assert not psutil.wait_procs(left, timeout=20)[1]


@pytest.mark.parametrize(
    ("address", "variable"),
    [("192.0.2.1:6379", ""), (None, "RAY_ADDRESS"), (None, "RAY_JOB_CONFIG_JSON_ENV_VAR")],
)
def test_nothing_is_anticipated_for_a_cluster(
    address: str | None, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(local_ray, "begin", lambda **_: begun.append(1))
    monkeypatch.setattr(actors.ray, "is_initialized", lambda: False)
    local_ray.anticipate(None)
    assert len(begun) == 1
    if variable:
        monkeypatch.setenv(variable, "{}")
    local_ray.anticipate(address)
    assert len(begun) == 1


def test_nothing_is_anticipated_where_ray_is_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_ray, "begin", lambda **_: pytest.fail("it began"))
    monkeypatch.setattr(actors.ray, "is_initialized", lambda: True)
    local_ray.anticipate(None)


@pytest.mark.parametrize(
    ("version", "mode"),
    [("2.61.0", "disabled"), ("2.6.0", "disabled"), ("2.60.0", "token")],
)
def test_other_releases_and_tokens_are_left_to_ray_itself(
    version: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command still runs; only Ray starts later, and with more processes."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(local_ray, "begin", lambda **_: pytest.fail("it began"))
    monkeypatch.setattr(local_ray.metadata, "version", lambda name: version)
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setattr(actors.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(
        actors.ray, "init", lambda **options: given.update(options, **seen())
    )
    monkeypatch.delenv("TQDM_DISABLE", raising=False)

    def seen() -> dict[str, Any]:
        return {"inherited": os.environ.get("TQDM_DISABLE")}

    local_ray.anticipate(None)
    assert not given
    actors.start_local(num_cpus=3)
    assert (given["address"], given["num_cpus"]) == ("local", 3)
    assert given["include_dashboard"] is False
    assert given["inherited"] == "1"
    assert "TQDM_DISABLE" not in os.environ
