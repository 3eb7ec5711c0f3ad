"""Real servers that plait starts: texts as of plait's own stage.

`transformers serve` is that of the environment; for vLLM:
PLAIT_VLLM=/path/to/vllm pytest tests/pipelines/servers/test_real_servers.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from trial import sample
from vlm_helpers import BLUE, GREEN, RED, checkpoint

from plait.cluster.loading import stop_servers
from plait.cluster.local import LocalStages
from plait.generators.base import Job, Result, StageSpec
from plait.generators.document import Request
from plait.pipelines.servers.settings import ServerTable
from plait.pipelines.systems import Models, lvlm_spec

pytestmark = [pytest.mark.models, pytest.mark.timeout(1800)]
VLLM = os.environ.get("PLAIT_VLLM")
IMAGES = ((), (RED,), (GREEN, BLUE), (BLUE,))
COMMON: dict[str, Any] = {"max_new_tokens": 24, "dtype": "float32"}
ENGINE: dict[str, Any] = {
    "num_gpus": 0,
    "max_input_tokens": 3000,
    "engine": "vllm",
    "engine_executable": VLLM,
    "engine_arguments": ["--enforce-eager"],
    "engine_env": {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A tiny checkpoint; no process is left that has it on its command line."""
    folder = checkpoint("qwen2")
    yield folder
    stop_servers()
    for process in psutil.process_iter(["cmdline", "status"]):
        ended = process.info["status"] == psutil.STATUS_ZOMBIE
        line = " ".join(process.info["cmdline"] or ())
        assert ended or str(folder) not in line or process.pid == os.getpid()


def spec_of(folder: Path, **settings: Any) -> StageSpec:
    name = f"hf:{folder}"
    overrides = {name: {**COMMON, **settings}}
    return lvlm_spec(name, Models(weights="pretrained", overrides=overrides))


def texts(spec: StageSpec, count: int = 4) -> list[str]:
    """What a stage answers in this process, or its server."""
    requests = [Request(sample(i, images=IMAGES[i % 4]).turns) for i in range(count)]
    jobs = [Job(spec, request, str(i)) for i, request in enumerate(requests)]
    outcomes = LocalStages().outcomes(jobs)
    assert all(isinstance(o, Result) for o in outcomes), outcomes
    return [o.value.text for o in outcomes if isinstance(o, Result)]


@pytest.mark.processes
def test_transformers_serve_is_a_server_of_the_config(folder: Path) -> None:
    """Text and images in order: greedy in float32, so token for token."""
    program = str(Path(sys.executable).parent / "transformers")
    command = [program, "serve", str(folder), "--port", "{port}", "--device", "cpu"]
    env = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    table = ServerTable(command=(*command, "--dtype", "float32"), env=env)
    name = f"openai:{folder}"
    overrides = {name: {"server": "local", "max_tokens": 24, "concurrency": 1}}
    servers = {"local": table}
    models = Models(weights="pretrained", overrides=overrides, servers=servers)
    spec = lvlm_spec(name, models)
    assert "transformers 5" in spec.identity
    assert texts(spec) == texts(spec_of(folder))


@pytest.mark.skipif(VLLM is None, reason="set PLAIT_VLLM=/path/to/vllm")
def test_vllm_is_an_engine(folder: Path) -> None:
    assert texts(spec_of(folder, **ENGINE), 16) == texts(spec_of(folder), 16)
