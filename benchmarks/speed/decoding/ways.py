"""The ways of decoding that are compared: plait's streams, `generate`, a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.decoding.workload import CONTEXT
from benchmarks.speed.measure import InBatches
from cluster.local import load_stage
from generators.base import Outcome, StageSpec
from generators.document import Draft, Request
from pipelines.systems import Models, writer_spec
from pipelines.vlm.stage import VisionLanguageModel

Answering = Callable[[Sequence[Request]], list[Outcome[Draft]]]
SERVER = "server"
_ONE_BY_ONE = 16
"""Most requests that ways without batches answer, which take the longest."""
_ENV = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""Memory for the cache in GiB, and threads that the system places; for a CPU only."""


@dataclass(frozen=True)
class DecodingWay:
    """One way of answering, loaded."""

    name: str
    answer: Answering
    most: int | None = None
    """How many of the requests it answers, the first ones; None for all."""


@dataclass(frozen=True)
class DecodingServer:
    """A server to compare with: a program to start, or one that runs."""

    executable: Path | None = None
    base_url: str | None = None
    served_name: str = "model"

    def spec(self, folder: Path, tokens: int, in_flight: int) -> StageSpec | None:
        """The stage that asks it; None where there is no server."""
        if self.executable is not None:
            return _spec(f"hf:{folder}", self._started(tokens, in_flight))
        if self.base_url is not None:
            return _spec(f"openai:{self.served_name}", self._running(tokens, in_flight))
        return None

    def _started(self, tokens: int, in_flight: int) -> dict[str, Any]:
        return _own(tokens) | {
            "engine": "vllm",
            "engine_executable": str(self.executable),
            "engine_arguments": ["--enforce-eager"],
            "engine_env": _ENV,
            "engine_concurrency": in_flight,
            "max_input_tokens": CONTEXT - tokens,
        }

    def _running(self, tokens: int, in_flight: int) -> dict[str, Any]:
        return {
            "base_url": self.base_url,
            "max_tokens": tokens,
            "temperature": 0.0,
            "concurrency": in_flight,
        }


def ways_of(
    folder: Path, tokens: int, requests: int, server: DecodingServer
) -> list[DecodingWay]:
    """All ways; `generate`, whose answers are the others' measure, comes first.

    Each way has a model of its own: a stage remembers the pictures that it has read.
    """
    stage = _spec(f"hf:{folder}", _own(tokens))
    ways = [
        DecodingWay("generate, batch 16", InBatches(_by_generate(stage), 16)),
        DecodingWay("streams, batch 16", InBatches(load_stage(stage), 16)),
        DecodingWay("streams, batch 64", InBatches(load_stage(stage), 64)),
        DecodingWay("streams, one by one", InBatches(load_stage(stage), 1), _ONE_BY_ONE),
    ]
    asking = server.spec(folder, tokens, requests)
    if asking is not None:
        # Last: a server is started once all models of this process are loaded.
        ways.append(DecodingWay(f"{SERVER}, {requests} in flight", load_stage(asking)))
    return ways


def _own(tokens: int) -> dict[str, Any]:
    common: dict[str, Any] = {"dtype": "float32", "device": "cpu", "num_gpus": 0}
    return common | {"max_new_tokens": tokens}


def _spec(name: str, settings: Mapping[str, Any]) -> StageSpec:
    return writer_spec(name, Models(weights="pretrained", overrides={name: settings}))


class GenerateStage(VisionLanguageModel):
    """The same stage as transformers runs it: `generate`, padded on the left."""

    streams = False


def _by_generate(spec: StageSpec) -> GenerateStage:
    return GenerateStage(**spec.settings, **spec.options)
