"""Servers that plait starts, real ones: texts as of plait's own stage.

`transformers serve` is that of the environment; for vLLM:
PLAIT_VLLM=/path/to/vllm pytest tests/pipelines/servers/test_real_servers.py
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from trial import Witness, as_asked, run, sample
from vlm_helpers import BLUE, GREEN, RED, checkpoint

from cluster.local import LocalStages, stop_servers
from cluster.plan import Plan, evaluations
from cluster.store import Store
from generators.base import Job, Result, StageSpec
from generators.document import Request
from generators.system import System
from pipelines.servers.settings import ServerTable
from pipelines.systems import Models, writer_spec

VLLM = os.environ.get("PLAIT_VLLM")
pytestmark = [pytest.mark.models, pytest.mark.timeout(1800)]

IMAGES = ((), (RED,), (GREEN, BLUE), (BLUE,))
COMMON = {"max_new_tokens": 24, "dtype": "float32", "max_input_tokens": 3000}
ENGINE: dict[str, Any] = {
    "num_gpus": 0,
    "engine": "vllm",
    "engine_executable": VLLM,
    "engine_arguments": ["--enforce-eager"],
    "engine_env": {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    },
    "engine_concurrency": 4,
}


@pytest.fixture
def folder() -> Iterator[Path]:
    yield checkpoint("qwen2")
    stop_servers()
    assert not left(checkpoint("qwen2"))


def spec_of(folder: Path, **settings: Any) -> StageSpec:
    name = f"hf:{folder}"
    overrides = {name: {**COMMON, **settings}}
    return writer_spec(name, Models(weights="pretrained", overrides=overrides))


def texts(spec: StageSpec, count: int) -> list[str]:
    """What a stage answers in this process, or its server."""
    requests = [Request(sample(i, images=IMAGES[i % 4]).turns) for i in range(count)]
    jobs = [Job(spec, request, str(i)) for i, request in enumerate(requests)]
    outcomes = LocalStages().outcomes(jobs)
    assert all(isinstance(o, Result) for o in outcomes), outcomes
    return [o.value.text for o in outcomes if isinstance(o, Result)]


def left(folder: Path) -> list[psutil.Process]:
    """Processes that have the checkpoint on their command line: the server's."""
    matching = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            matching.append(process)
    return [p for p in matching if p.pid != os.getpid()]


def test_transformers_serve_is_a_server_of_the_config(folder: Path) -> None:
    """Text and images in order: greedy in float32, so token for token."""
    program = str(Path(sys.executable).parent / "transformers")
    command = [program, "serve", str(folder), "--port", "{port}", "--device", "cpu"]
    env = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    table = ServerTable(command=(*command, "--dtype", "float32"), env=env)
    name = f"openai:{folder}"
    settings = {"server": "local", "max_tokens": 24, "concurrency": 1, "timeout_s": 600}
    models = Models(
        weights="pretrained", overrides={name: settings}, servers={"local": table}
    )
    spec = writer_spec(name, models)
    assert "transformers 5" in spec.identity
    assert texts(spec, 4) == texts(spec_of(folder), 4)


def kill_server(root: Path, folder: Path, killed: list[int]) -> None:
    """Kill the server once the run has committed its first answers."""
    until = time.monotonic() + 900
    while time.monotonic() < until and not list(root.glob("stages/*/part-*")):
        time.sleep(0.02)
    for process in left(folder):
        if "guardian.py" not in " ".join(process.cmdline()):
            process.kill()
            killed.append(process.pid)


@pytest.mark.skipif(VLLM is None, reason="set PLAIT_VLLM=/path/to/vllm")
@pytest.mark.ray
def test_vllm_answers_as_the_own_stage_and_survives_its_death(
    ray_address: str, tmp_path: Path, folder: Path
) -> None:
    samples = [sample(i, images=IMAGES[i % 4]) for i in range(16)]
    systems = [System(name="alone", draft=spec_of(folder, **ENGINE))]
    plan = Plan(systems=systems, samples=samples, scorers=(), prompt=as_asked)
    witness, killed = Witness(), list[int]()
    arguments = (tmp_path, folder, killed)
    threading.Thread(target=kill_server, args=arguments, daemon=True).start()
    assert run(plan, tmp_path, witness).counts["done"] == 16
    assert killed
    assert [f.kind for f in witness.failures] == ["died"], witness.failures
    documents: list[Any] = [e.document for e in evaluations(plan, Store(tmp_path))]
    assert [d.value.text for d in documents] == texts(spec_of(folder), 16)
