"""The stage of a text-to-image model that an engine runs: it asks the engine's server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from generators.base import StageSpec, Weights
from generators.diffusion.designs import DESIGNS, PUBLISHED
from generators.errors import UsageError
from generators.names import validated
from pipelines.endpoints.dialects import DIALECTS, DialectName
from pipelines.endpoints.image_settings import ImagesSettings
from pipelines.presets import TextToImageSettings
from pipelines.servers.commands import IMAGES
from pipelines.servers.engine import (
    ENGINE_SECRETS,
    KEY_VARIABLE,
    LOCAL_URL,
    engine_identity,
    engine_placement,
    served_model,
    software_of_engine,
)

_PIPELINE_ONLY = ("scheduler", "attention", "compile", "offload", "device_map")
"""Settings of plait's own stage; an engine has arguments of its own for some of them."""
_TRUE_CFG = "true_cfg_scale"
_TOLD = ("max_sequence_length",)
"""Settings that vLLM-Omni's requests do not take, and its command does."""
_DIALECT: Mapping[str, DialectName] = {"vllm-omni": "vllm-omni", "sglang": "sglang"}


def image_engine_spec(
    settings: TextToImageSettings, name: str, weights: Weights, gpu_gib: float
) -> StageSpec:
    """The stage of a model that an engine runs; UsageError, CheckpointError.

    SGLang keeps to the precision of the pipeline's own parts, so that with it `dtype` has
    no effect and names no result.
    """
    _refuse_unknown(settings, name)
    if weights == "dummy" and settings.engine == "sglang":
        raise UsageError(
            f"{name}: engine 'sglang' draws with published weights only; use engine "
            "'vllm-omni' for dummy weights, or none"
        )
    software = software_of_engine(settings)
    dialect = DIALECTS[_DIALECT[software.name]]
    chosen = {n: v for n, v in _chosen(settings).items() if v is not None}
    # What requests do not take is said once, when the server is started.
    told = {n: v for n, v in chosen.items() if n not in dialect.fields and n in _TOLD}
    served = replace(
        served_model(settings, weights, gpu_gib), sampling=tuple(sorted(told.items()))
    )
    asking = validated(
        ImagesSettings,
        {n: v for n, v in chosen.items() if n not in told}
        | {
            "model": served.name,
            "dialect": dialect.name,
            "base_url": LOCAL_URL,
            "api_key_env": KEY_VARIABLE,
            "concurrency": settings.engine_concurrency,
            "timeout_s": settings.batch_timeout_s,
            "give_up_s": settings.batch_timeout_s,
        },
        name,
    )
    spec = asking.spec(name, weights, gpu_gib)
    dtype = None if software.name == "sglang" else served.dtype
    return replace(
        spec,
        identity=engine_identity(settings, weights, software, {"dtype": dtype, **told}),
        weights=weights,
        secrets=ENGINE_SECRETS,
        placement=engine_placement(
            settings, weights, gpu_gib, served, IMAGES[software.name](served)
        ),
    )


def _refuse_unknown(settings: TextToImageSettings, name: str) -> None:
    """UsageError for settings that the engine would not follow."""
    fields = type(settings).model_fields
    wrong = [n for n in _PIPELINE_ONLY if getattr(settings, n) != fields[n].default]
    wrong += [f"arguments.{n}" for n in settings.arguments if n != _TRUE_CFG]
    if wrong:
        raise UsageError(
            f"{name}: {', '.join(wrong)} cannot be set with engine {settings.engine!r}; "
            "give the engine's own options in engine_arguments"
        )


def _chosen(settings: TextToImageSettings) -> dict[str, Any]:
    """What each request says: the model's settings, and noise drawn as plait draws it."""
    architecture = settings.architecture or PUBLISHED.get(settings.model)
    design = DESIGNS[architecture] if architecture else None
    by_true_cfg = design is not None and design.pipeline == "QwenImagePipeline"
    scales = {_TRUE_CFG if by_true_cfg else "guidance": settings.guidance}
    return {
        "width": settings.width,
        "height": settings.height,
        "steps": settings.steps,
        "negative_prompt": settings.negative_prompt,
        "max_sequence_length": settings.max_sequence_length,
        "prompt_prefix": settings.prompt_prefix,
        "generator_device": "cpu",
        **scales,
        **settings.arguments,
    }
