"""The ways of decoding that are compared: plait's streams, `generate`, a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.decoding.options import DecodingServer
from benchmarks.speed.decoding.workload import CONTEXT
from benchmarks.speed.stage.measure import InBatches
from cluster.local import load_stage
from generators.base import Outcome, StageSpec
from generators.document import Draft, Request
from pipelines.systems import Models, writer_spec
from pipelines.vlm.stage import VisionLanguageModel

Answering = Callable[[Sequence[Request]], list[Outcome[Draft]]]
SERVER = "server"
_BATCHES = (16, 64)
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


def spec_of_server(
    server: DecodingServer, folder: Path, tokens: int, in_flight: int
) -> StageSpec | None:
    """The stage that asks the server; None where there is none.

    A server that is started gets as many threads as torch has now.
    """
    if server.executable is not None:
        started = _own(tokens) | {
            "engine": "vllm",
            "engine_executable": str(server.executable),
            "engine_arguments": list(server.arguments),
            "engine_env": _ENV | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
            "engine_concurrency": in_flight,
            "max_input_tokens": CONTEXT - tokens,
        }
        return _spec(f"hf:{folder}", started)
    if server.base_url is None:
        return None
    running: dict[str, Any] = {"base_url": server.base_url, "concurrency": in_flight}
    running |= {"max_tokens": tokens, "temperature": 0.0}
    return _spec(f"openai:{server.served_name}", running)


def ways_of(
    folder: Path, tokens: int, requests: int, asking: StageSpec | None
) -> list[DecodingWay]:
    """All ways; `generate`, whose answers are the others' measure, comes first.

    Each way has a model of its own: a stage remembers the pictures that it has read.
    `asking` is the stage that asks a server, if one is to be measured.
    """
    stage = _spec(f"hf:{folder}", _own(tokens))
    few, *more = sorted({min(size, requests) for size in _BATCHES})
    ways = [DecodingWay(f"generate, batch {few}", InBatches(_by_generate(stage), few))]
    ways += [
        DecodingWay(f"streams, batch {size}", InBatches(load_stage(stage), size))
        for size in (few, *more)
    ]
    alone = InBatches(load_stage(stage), 1)
    ways.append(DecodingWay("streams, one by one", alone, _ONE_BY_ONE))
    if asking is not None:
        # Last: a server is started once all models of this process are loaded.
        ways.append(DecodingWay(f"{SERVER}, {requests} in flight", load_stage(asking)))
    return ways


def _own(tokens: int) -> dict[str, Any]:
    common: dict[str, Any] = {"dtype": "float32", "num_gpus": 0}
    return common | {"max_new_tokens": tokens}


def _spec(name: str, settings: Mapping[str, Any]) -> StageSpec:
    return writer_spec(name, Models(weights="pretrained", overrides={name: settings}))


class GenerateStage(VisionLanguageModel):
    """The same stage as transformers runs it: `generate`, padded on the left."""

    streams = False


def _by_generate(spec: StageSpec) -> GenerateStage:
    return GenerateStage(**spec.settings, **spec.options)
