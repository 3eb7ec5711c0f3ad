"""Engines that plait starts, with real ones: texts as of plait's own stage.

PLAIT_VLLM=/path/to/vllm pytest tests/pipelines/servers/test_real_servers.py
PLAIT_TRANSFORMERS=/path/to/transformers pytest ...     (`transformers serve`)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from trial import Witness, as_asked, run, sample
from vlm_helpers import BLUE, GREEN, RED, save_tiny

from cluster.local import LocalStages
from cluster.plan import Plan, evaluations
from cluster.store import Store
from generators.base import Job, Result, StageSpec
from generators.document import Request
from generators.system import System
from pipelines.servers.settings import ServerTable
from pipelines.systems import Models, writer_spec

VLLM = os.environ.get("PLAIT_VLLM")
TRANSFORMERS = os.environ.get("PLAIT_TRANSFORMERS")
needs_vllm = pytest.mark.skipif(
    VLLM is None, reason="needs a real vLLM: set PLAIT_VLLM=/path/to/vllm"
)
needs_transformers = pytest.mark.skipif(
    TRANSFORMERS is None,
    reason="needs `transformers serve`: set PLAIT_TRANSFORMERS=/path/to/transformers",
)
pytestmark = [pytest.mark.ray, pytest.mark.models, pytest.mark.timeout(1800)]

SAMPLES = 16
PICTURES = ((), (RED,), (GREEN, BLUE), (BLUE,))
COMMON: Mapping[str, Any] = {
    "max_new_tokens": 24,
    "dtype": "float32",
    "num_gpus": 0,
    "max_input_tokens": 3000,
}
ENGINE: Mapping[str, Any] = {
    "engine": "vllm",
    "engine_executable": VLLM,
    "engine_arguments": ["--enforce-eager"],
    "engine_env": {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    },
    "engine_concurrency": 4,
}


def spec_of(folder: Path, **settings: Any) -> StageSpec:
    name = f"hf:{folder}"
    overrides = {name: {**COMMON, **settings}}
    return writer_spec(name, Models(weights="pretrained", overrides=overrides))


def plan_of(spec: StageSpec) -> Plan:
    samples = [sample(i, images=PICTURES[i % 4]) for i in range(SAMPLES)]
    systems = [System(name="alone", draft=spec)]
    return Plan(systems=systems, samples=samples, scorers=(), prompt=as_asked)


def texts(plan: Plan, root: Path) -> list[str]:
    made = []
    for evaluation in evaluations(plan, Store(root)):
        assert isinstance(evaluation.document, Result), evaluation.document
        made.append(evaluation.document.value.text)
    return made


def own_texts(spec: StageSpec) -> list[str]:
    """What plait's own stage answers, in this process."""
    stages = LocalStages()
    requests = [Request(sample(i, images=PICTURES[i % 4]).turns) for i in range(SAMPLES)]
    outcomes = stages.outcomes([Job(spec, r, str(i)) for i, r in enumerate(requests)])
    results = [o for o in outcomes if isinstance(o, Result)]
    assert len(results) == SAMPLES
    return [r.value.text for r in results]


def left(folder: Path) -> list[psutil.Process]:
    """Processes that have the checkpoint on their command line: the server's."""
    matching = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            matching.append(process)
    return [p for p in matching if p.pid != os.getpid()]


class Killer(threading.Thread):
    """Kills the server once the run has committed its first answers."""

    def __init__(self, root: Path, folder: Path) -> None:
        super().__init__(daemon=True)
        self.root, self.folder, self.killed = root, folder, 0

    def run(self) -> None:
        until = time.monotonic() + 900
        while time.monotonic() < until and not list(self.root.glob("stages/*/part-*")):
            time.sleep(0.02)
        for process in left(self.folder):
            if "guardian.py" not in " ".join(process.cmdline()):
                process.kill()
                self.killed += 1


def equal(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


@needs_vllm
def test_vllm_answers_as_the_own_stage_and_survives_its_death(
    ray_address: str, tmp_path: Path
) -> None:
    folder = save_tiny(tmp_path / "tiny-model")
    spec = spec_of(folder, **ENGINE)
    plan, witness = plan_of(spec), Witness()
    killer = Killer(tmp_path / "run", folder)
    killer.start()
    result = run(plan, tmp_path / "run", witness)
    assert result.counts["done"] == SAMPLES
    assert killer.killed >= 1
    assert [f.kind for f in witness.failures] == ["died"], witness.failures
    assert not left(folder)
    count = equal(texts(plan, tmp_path / "run"), own_texts(spec_of(folder)))
    print(f"{count} of {SAMPLES} texts equal")
    assert count == SAMPLES


@needs_vllm
def test_a_wrong_argument_of_vllm_is_shown(ray_address: str, tmp_path: Path) -> None:
    folder, witness = save_tiny(tmp_path / "tiny-model"), Witness()
    wrong = {**ENGINE, "engine_arguments": ["--no-such-option"]}
    run(plan_of(spec_of(folder, **wrong)), tmp_path / "run", witness)
    assert "--no-such-option" in " ".join(witness.notices)
    assert not left(folder)


@needs_transformers
def test_transformers_serve_is_a_server_of_the_config(
    ray_address: str, tmp_path: Path
) -> None:
    folder = save_tiny(tmp_path / "tiny-model")
    command = [str(TRANSFORMERS), "serve", str(folder), "--port", "{port}"]
    table = ServerTable.model_validate({"command": [*command, "--device", "cpu"]})
    name = f"openai:{folder}"
    settings = {"server": "local", "max_tokens": 24, "concurrency": 1, "timeout_s": 600}
    models = Models(
        weights="pretrained", overrides={name: settings}, servers={"local": table}
    )
    spec = writer_spec(name, models)
    assert "transformers 5" in spec.identity
    plan = plan_of(replace(spec, name="served"))
    result = run(plan, tmp_path / "run")
    assert result.counts["done"] == SAMPLES
    assert not left(folder)
    count = equal(texts(plan, tmp_path / "run"), own_texts(spec_of(folder)))
    print(f"{count} of {SAMPLES} texts equal")
