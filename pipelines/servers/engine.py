"""What the stages of all engines share: the model served, its identity, the server.

The identity names the checkpoint, the engine, and the engine's version and arguments;
host, port and environment do not count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from generators.base import Placement, ServerCommand, Weights
from generators.checkpoints import looks_like_path
from generators.errors import UsageError
from pipelines.servers.commands import HINTS, Served
from pipelines.servers.fields import EngineModelSettings
from pipelines.servers.software import Software, engine_software

SERVED_NAME = "model"
"""What requests call a model that lies in a folder: its place is no part of a key."""
KEY_VARIABLE = "VLLM_API_KEY"
"""Where vLLM reads the key that requests must give; others are started without one."""
ENGINE_SECRETS = (KEY_VARIABLE, "HF_TOKEN")
"""Variables of the driver that engines get, where they are set."""
LOCAL_URL = "http://127.0.0.1/v1"
"""Stands for the server's URL until it has a port."""
_LOADING_MARGIN_S = 600.0
"""For the stage itself to load, once its server is ready."""


def served_model(settings: EngineModelSettings, weights: Weights, gpu_gib: float) -> Served:
    """What every engine is told of a checkpoint; UsageError for tiny weights."""
    assert settings.engine is not None
    if weights == "tiny":
        raise UsageError(
            f"engine {settings.engine!r} reads a checkpoint, and tiny weights are made in "
            "memory: leave engine out, or name a folder that holds a small checkpoint "
            "and set weights to 'pretrained'"
        )
    options = settings.options(weights)
    is_folder = looks_like_path(settings.model)
    own = str(Path(settings.model).expanduser().resolve()) if is_folder else settings.model
    return Served(
        executable=settings.engine_executable or settings.engine,
        model=own,
        name=SERVED_NAME if is_folder else settings.model,
        revision=None if is_folder else options.get("revision"),
        dtype=settings.dtype,
        num_gpus=_gpus(settings, weights, gpu_gib),
        random_weights=weights == "dummy",
    )


def _gpus(settings: EngineModelSettings, weights: Weights, gpu_gib: float) -> float:
    """GPUs of one server: as asked, else the estimate as a power of two.

    Engines split the heads of a model evenly.
    """
    gpus = settings.placement(weights, gpu_gib).num_gpus
    if settings.num_gpus is not None or gpus <= 1:
        return gpus
    return float(2 ** math.ceil(math.log2(gpus)))


def software_of_engine(settings: EngineModelSettings) -> Software:
    """The engine and its version; CheckpointError where it is not installed."""
    assert settings.engine is not None
    if settings.engine_version is not None:
        return Software(settings.engine, settings.engine_version)
    executable = settings.engine_executable or settings.engine
    return engine_software(settings.engine, executable, HINTS[settings.engine])


def engine_identity(
    settings: EngineModelSettings,
    weights: Weights,
    software: Software,
    result: Mapping[str, Any],
) -> str:
    """The checkpoint, the engine, and what of its command may change a result."""
    about = {name: value for name, value in result.items() if value is not None}
    if settings.engine_arguments:
        about["arguments"] = list(settings.engine_arguments)
    text = json.dumps(about, sort_keys=True)
    return f"{settings.identity(weights)} by {software} {text}"


def engine_placement(
    settings: EngineModelSettings,
    weights: Weights,
    gpu_gib: float,
    served: Served,
    argv: list[str],
) -> Placement:
    """How the stage is run: each of its workers starts the engine's server."""
    software = software_of_engine(settings)
    limit = settings.engine_start_timeout_s
    alone = settings.workers is None and not served.num_gpus
    return replace(
        settings.placement(weights, gpu_gib),
        batch_size=1,
        # On CPUs alone, each server would take all of them.
        workers=1 if alone else settings.workers,
        num_gpus=served.num_gpus,
        load_timeout_s=max(settings.load_timeout_s, limit + _LOADING_MARGIN_S),
        longest_first=False,
        endpoint=f"server:{software.name}",
        concurrency=settings.engine_concurrency,
        server=ServerCommand(
            name=software.name,
            argv=(*argv, *settings.engine_arguments),
            env=tuple(sorted(settings.engine_env.items())),
            start_timeout_s=limit,
            software=software.name,
            version=software.version,
        ),
    )
