"""The stage of a model that an engine runs: its server's command, and what names it.

The model is the checkpoint, its precision, the engine and the engine's version and
arguments; host, port and environment are not. Everything else is as for any endpoint.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from generators.base import Placement, ServerCommand, StageSpec, Weights
from generators.checkpoints import looks_like_path
from generators.errors import UsageError
from generators.settings import ModelSettings, unkeyed
from pipelines.chat.settings import ChatSettings, EndpointSettings
from pipelines.servers.commands import CHAT, HINTS, Served
from pipelines.servers.fields import EngineFields
from pipelines.servers.software import Software, engine_software

SERVED_NAME = "model"
"""What requests call a model that lies in a folder: its place is no part of a key."""
KEY_VARIABLE = "VLLM_API_KEY"
"""Where vLLM reads the key that requests must give; others are started without one."""
_LARGEST_SIDE = 8192
"""Pictures are sent as they are: limits on pixels are the checkpoint's or the engine's."""
_LOADING_MARGIN_S = 600.0
"""For the stage itself to load, once its server is ready."""


class EngineChatSettings(EndpointSettings):
    """A chat model behind an engine's server that plait starts."""

    stage: ClassVar[str] = "chat-engine"
    target: ClassVar[str] = "pipelines.servers.stage:EngineChat"

    checkpoint: str = unkeyed("")
    """Folder or Hub id: its processor tells which tokens are the chat template's."""
    revision: str | None = unkeyed(None)


def chat_engine_spec(
    settings: ChatSettings, name: str, weights: Weights, gpu_gib: float
) -> StageSpec:
    """The stage of a chat model that an engine runs; UsageError, CheckpointError."""
    served = _served(settings, weights, gpu_gib, _context(settings, weights))
    served = replace(served, max_images=settings.max_images, pixels=_pixels(settings))
    software = _software(settings)
    engine = software.name
    asking = EngineChatSettings(
        model=served.name,
        temperature=settings.temperature,
        top_p=None if settings.top_p == 1.0 else settings.top_p,
        max_tokens=settings.new_tokens(weights),
        system=settings.system,
        max_images=settings.max_images,
        image_max_side=_LARGEST_SIDE,
        send_seed=settings.is_seeded(),
        extra_body=_sampling(settings),
        checkpoint=served.model,
        revision=served.revision,
        base_url="http://127.0.0.1/v1",
        api_key_env=KEY_VARIABLE,
        concurrency=settings.engine_concurrency,
        timeout_s=settings.batch_timeout_s,
        give_up_s=settings.batch_timeout_s,
    )
    spec = asking.spec(name, weights, gpu_gib)
    result = {"dtype": served.dtype, "context": served.context, **dict(served.pixels)}
    return replace(
        spec,
        identity=_identity(settings, weights, software, result),
        weights=weights,
        secrets=(),
        placement=_placement(settings, weights, gpu_gib, served, CHAT[engine](served)),
    )


def _served(
    settings: ModelSettings, weights: Weights, gpu_gib: float, context: int | None
) -> Served:
    """What every engine is told of a checkpoint; UsageError for tiny weights."""
    assert isinstance(settings, EngineFields)
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
        context=context,
    )


def _gpus(settings: ModelSettings, weights: Weights, gpu_gib: float) -> float:
    """GPUs of one server: as asked, else the estimate as a power of two.

    Engines split the heads of a model evenly.
    """
    gpus = settings.placement(weights, gpu_gib).num_gpus
    if settings.num_gpus is not None or gpus <= 1:
        return gpus
    return float(2 ** math.ceil(math.log2(gpus)))


def _context(settings: ChatSettings, weights: Weights) -> int | None:
    longest = settings.max_input_tokens
    return None if longest is None else longest + settings.new_tokens(weights)


def _pixels(settings: ChatSettings) -> tuple[tuple[str, int], ...]:
    limits = {"min_pixels": settings.min_pixels, "max_pixels": settings.max_pixels}
    return tuple((name, limit) for name, limit in limits.items() if limit is not None)


def _sampling(settings: ChatSettings) -> dict[str, Any]:
    """Sampling parameters that OpenAI's API lacks; both engines take them."""
    more: dict[str, Any] = {}
    if settings.top_k:
        more["top_k"] = settings.top_k
    if settings.repetition_penalty != 1.0:
        more["repetition_penalty"] = settings.repetition_penalty
    return more


def _software(settings: EngineFields) -> Software:
    assert settings.engine is not None
    if settings.engine_version is not None:
        return Software(settings.engine, settings.engine_version)
    executable = settings.engine_executable or settings.engine
    return engine_software(settings.engine, executable, HINTS[settings.engine])


def _identity(
    settings: ModelSettings, weights: Weights, software: Software, result: dict[str, Any]
) -> str:
    """The checkpoint, the engine, and what of its command may change a result."""
    assert isinstance(settings, EngineFields)
    about = {name: value for name, value in result.items() if value is not None}
    if settings.engine_arguments:
        about["arguments"] = list(settings.engine_arguments)
    text = json.dumps(about, sort_keys=True)
    return f"{settings.identity(weights)} by {software} {text}"


def _placement(
    settings: ModelSettings,
    weights: Weights,
    gpu_gib: float,
    served: Served,
    argv: list[str],
) -> Placement:
    assert isinstance(settings, EngineFields)
    software = _software(settings)
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
