"""The stage of a chat model that an engine runs: it asks the engine's server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from generators.base import StageSpec, Weights
from generators.settings import unkeyed
from pipelines.chat.settings import ChatSettings, EndpointSettings
from pipelines.servers.commands import CHAT
from pipelines.servers.engine import (
    ENGINE_SECRETS,
    KEY_VARIABLE,
    LOCAL_URL,
    engine_identity,
    engine_placement,
    served_model,
    software_of_engine,
)

_LARGEST_SIDE = 8192
"""Pictures are sent as they are: limits on pixels are the checkpoint's or the engine's."""


class EngineChatSettings(EndpointSettings):
    """A chat model behind an engine's server that plait starts."""

    stage: ClassVar[str] = "chat-engine"
    target: ClassVar[str] = "pipelines.servers.chat_stage:EngineChat"

    checkpoint: str = unkeyed("")
    """Folder or Hub id: its processor tells which tokens are the chat template's."""
    revision: str | None = unkeyed(None)


def chat_engine_spec(
    settings: ChatSettings, name: str, weights: Weights, gpu_gib: float
) -> StageSpec:
    """The stage of a chat model that an engine runs; UsageError, CheckpointError."""
    served = replace(
        served_model(settings, weights, gpu_gib),
        context=_context(settings, weights),
        max_images=settings.max_images,
        pixels=_pixels(settings),
    )
    software = software_of_engine(settings)
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
        base_url=LOCAL_URL,
        api_key_env=KEY_VARIABLE,
        concurrency=settings.engine_concurrency,
        timeout_s=settings.batch_timeout_s,
        give_up_s=settings.batch_timeout_s,
    )
    spec = asking.spec(name, weights, gpu_gib)
    result = {"dtype": served.dtype, "context": served.context, **dict(served.pixels)}
    return replace(
        spec,
        identity=engine_identity(settings, weights, software, result),
        weights=weights,
        secrets=ENGINE_SECRETS,
        placement=engine_placement(
            settings, weights, gpu_gib, served, CHAT[software.name](served)
        ),
    )


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
