"""Engines: preset commands of servers, made from a model's own settings.

`engine` turns a model into another stage, which asks a server of that command. The stage's
identity names the checkpoint, the engine, and the engine's version and arguments; host,
port and environment do not count. Options are those of vLLM 0.32, SGLang 0.5.23 and
vLLM-Omni 0.30; `engine_arguments` come last and so override them.

    engine_spec(settings, name, weights, gpu_gib)    # of settings with `engine = "vllm"`
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from plait.generators.base import Kind, StageSpec, Weights
from plait.generators.checkpoints import looks_like_path
from plait.generators.diffusion.designs import DESIGNS, PUBLISHED
from plait.generators.errors import UsageError
from plait.generators.names import validate
from plait.pipelines.chat.settings import ChatSettings, EngineChatSettings, ServerSettings
from plait.pipelines.endpoints.settings import DIALECTS, DialectName, ImagesSettings
from plait.pipelines.presets import TextToImageSettings
from plait.pipelines.servers.settings import EngineModelSettings, ServerTable
from plait.pipelines.servers.start import Software, engine_software, with_started_server

SERVED_NAME = "model"
"""What requests call a model that lies in a folder: its place is no part of a key."""
KEY_VARIABLE = "VLLM_API_KEY"
"""Where vLLM reads the key that requests must give; others are started without one."""
_LARGEST_SIDE = 8192
"""Images are sent as they are: limits on pixels are the checkpoint's or the engine's."""
_PIPELINE_ONLY = (
    *("scheduler", "attention", "compile", "offload", "device_map"),
    *("base", "denoiser", "loras", "fuse_loras", "speed"),
)
"""Settings of plait's own stage; an engine has arguments of its own for some of them."""
_TRUE_CFG = "true_cfg_scale"
_TOLD = ("max_sequence_length",)
"""Settings that vLLM-Omni's requests do not take, and its command does."""


class ServerEngine(NamedTuple):
    """A preset command: its words, and its options for what not every model sets."""

    words: str
    options: Mapping[str, str]
    """Value -> its option; after a space, the key under which a JSON object holds it."""

    def command(self, model: Mapping[str, Any]) -> list[str]:
        """Return the command for a model of these values by name."""
        argv = [word.format_map(model) for word in self.words.split()]
        for name, text in self.options.items():
            value = model.get(name)
            if value is None:
                continue
            option, _, key = text.partition(" ")
            if key:
                value = {key: value}
            argv.append(option)
            argv.append(json.dumps(value) if isinstance(value, dict) else str(value))
        return argv


_SERVE = "{executable} serve {model} --served-model-name {name} --host 127.0.0.1 "
_SERVE += "--port {{port}} --dtype {dtype} "
_SGLANG = _SERVE.replace("{model}", "--model-path {model}")
_OF_IMAGES = {"revision": "--revision", "gpus": "--num-gpus"}
"""Options that both engines for text-to-image models have."""
ENGINES: Mapping[tuple[str, Kind], ServerEngine] = {
    # Of both: defaults of the checkpoint's own sampling do not apply.
    ("vllm", Kind.DRAFT): ServerEngine(
        _SERVE + "--seed 0 --generation-config vllm",
        {
            "revision": "--revision",
            "gpus": "--tensor-parallel-size",
            "memory_share": "--gpu-memory-utilization",
            "context": "--max-model-len",
            "max_images": "--limit-mm-per-prompt image",
            "pixels": "--mm-processor-kwargs",
            "random": "--load-format",
        },
    ),
    ("sglang", Kind.DRAFT): ServerEngine(
        _SGLANG + "--model-type llm --random-seed 0 --sampling-defaults openai",
        {
            "revision": "--revision",
            "gpus": "--tp-size",
            "memory_share": "--mem-fraction-static",
            "context": "--context-length",
            "max_images": "--limit-mm-data-per-request image",
            "pixels": "--mm-process-config image",
            "random": "--load-format",
        },
    ),
    ("vllm-omni", Kind.RENDER): ServerEngine(
        _SERVE + "--omni",
        {
            **_OF_IMAGES,
            "sampling": "--default-sampling-params 0",
            "random": "--diffusion-load-format",
        },
    ),
    # Its dtype is the pipeline's own.
    ("sglang", Kind.RENDER): ServerEngine(
        _SGLANG.replace("--dtype {dtype} ", "--model-type diffusion --strict-ports true"),
        _OF_IMAGES,
    ),
}
"""By name and kind of stage."""


class Question(NamedTuple):
    """How an engine's server is asked, and what of its command may change a result."""

    settings: ServerSettings
    """Those of the stage that asks."""
    told: dict[str, Any]
    """What the server's command says of the model besides what all commands do."""
    result: dict[str, Any]
    """What of the command is named in the stage's identity; None for what is not set."""


def engine_spec(
    settings: EngineModelSettings, name: str, weights: Weights, gpu_gib: float
) -> StageSpec:
    """Return the stage of a model that an engine runs; UsageError, CheckpointError."""
    model = _model(settings, weights, gpu_gib)
    if isinstance(settings, TextToImageSettings):
        _refuse_unknown(settings, name, weights)
        question = _image_question(settings, name, model)
    else:
        assert isinstance(settings, ChatSettings)
        question = _chat_question(settings, model, weights)
    software = engine_software(settings)
    placement = replace(
        settings.placement(weights, gpu_gib),
        batch_size=1,
        longest_first=False,
        concurrency=settings.engine_concurrency,
    )
    spec = replace(
        question.settings.spec(name, weights, gpu_gib),
        identity=_identity(settings, weights, software, question.result),
        weights=weights,
        placement=placement,
        work=settings.work(weights),
    )
    command = ENGINES[software.name, settings.kind].command(model | question.told)
    # On CPUs alone, each server would take all of them.
    alone = settings.workers is None and not model["num_gpus"]
    table = ServerTable(
        command=(*command, *settings.engine_arguments),
        num_gpus=model["num_gpus"],
        num_cpus=placement.num_cpus,
        memory_gib=placement.memory_gib,
        env=settings.engine_env,
        pass_env=("HF_TOKEN",),
        replicas=1 if alone else settings.workers,
        start_timeout_s=settings.engine_start_timeout_s,
    )
    return with_started_server(
        spec, table, software.name, model["name"], software, KEY_VARIABLE
    )


def _model(
    settings: EngineModelSettings, weights: Weights, gpu_gib: float
) -> dict[str, Any]:
    """Return what commands and requests are made of, by the names of `ServerEngine`.

    UsageError for weights that no engine reads.
    """
    if weights == "tiny":
        raise UsageError(
            f"engine {settings.engine!r} reads a checkpoint, and tiny weights are made in "
            "memory: leave engine out, or name a folder that holds a small checkpoint "
            "and set weights to 'pretrained'"
        )
    is_folder = looks_like_path(settings.model)
    own = str(Path(settings.model).expanduser().resolve()) if is_folder else settings.model
    num_gpus = _gpus(settings, weights, gpu_gib)
    limits = {
        "timeout_s": settings.batch_timeout_s,
        "give_up_s": settings.batch_timeout_s,
        "concurrency": settings.engine_concurrency,
    }
    return {
        "limits": limits,
        "executable": settings.engine_executable or settings.engine,
        "model": own,
        "name": SERVED_NAME if is_folder else settings.model,
        "revision": None if is_folder else settings.options(weights).get("revision"),
        "dtype": settings.dtype,
        "num_gpus": num_gpus,
        "gpus": int(num_gpus) if num_gpus > 1 else None,
        # Of a shared GPU, with the tenth left free that engines leave by default.
        "memory_share": round(0.9 * num_gpus, 3) if 0 < num_gpus < 1 else None,
        "random": "dummy" if weights == "dummy" else None,
    }


def _gpus(settings: EngineModelSettings, weights: Weights, gpu_gib: float) -> float:
    """Return the GPUs of one server: as asked, else the estimate as a power of two.

    Engines split the heads of a model evenly.
    """
    gpus = settings.placement(weights, gpu_gib).num_gpus
    if settings.num_gpus is not None or gpus <= 1:
        return gpus
    return float(2 ** math.ceil(math.log2(gpus)))


def _identity(
    settings: EngineModelSettings,
    weights: Weights,
    software: Software,
    result: Mapping[str, Any],
) -> str:
    """Return the name of the checkpoint, the engine and what may change a result."""
    about = {name: value for name, value in result.items() if value is not None}
    if settings.engine_arguments:
        about["arguments"] = list(settings.engine_arguments)
    text = json.dumps(about, sort_keys=True)
    return f"{settings.identity(weights)} by {software} {text}"


def _chat_question(
    settings: ChatSettings, model: dict[str, Any], weights: Weights
) -> Question:
    """Return how an LVLM's engine is asked."""
    longest = settings.max_input_tokens
    answer = settings.new_tokens(weights)
    context = None if longest is None else longest + answer
    pixels = {}
    if settings.min_pixels is not None:
        pixels["min_pixels"] = settings.min_pixels
    if settings.max_pixels is not None:
        pixels["max_pixels"] = settings.max_pixels
    # Sampling parameters that OpenAI's API lacks; both engines take them.
    more: dict[str, JsonValue] = {}
    if settings.top_k:
        more["top_k"] = settings.top_k
    if settings.repetition_penalty != 1.0:
        more["repetition_penalty"] = settings.repetition_penalty
    arguments = settings.engine_arguments
    parses_thoughts = any("reasoning-parser" in argument for argument in arguments)
    asking = EngineChatSettings(
        model=model["name"],
        temperature=settings.temperature,
        top_p=None if settings.top_p == 1.0 else settings.top_p,
        max_tokens=answer,
        system=settings.system,
        max_images=settings.max_images,
        image_max_side=_LARGEST_SIDE,
        send_seed=settings.is_seeded(),
        extra_body=more,
        checkpoint=model["model"],
        revision=model["revision"],
        parses_thoughts=parses_thoughts,
        **model["limits"],
    )
    told = {"context": context, "max_images": settings.max_images, "pixels": pixels or None}
    result = {"dtype": settings.dtype, "context": context, **pixels}
    return Question(asking, told, result)


def _image_question(
    settings: TextToImageSettings, name: str, model: Mapping[str, Any]
) -> Question:
    """Return how the engine of a text-to-image model is asked."""
    is_sglang = settings.engine == "sglang"
    dialect: DialectName = "sglang" if is_sglang else "vllm-omni"
    request = _request_settings(settings)
    # What requests do not take is said once, when the server is started.
    told = {}
    for setting in _TOLD:
        if setting in request and setting not in DIALECTS[dialect].fields:
            told[setting] = request.pop(setting)
    about = {"model": model["name"], "dialect": dialect, **model["limits"]}
    asking = validate(ImagesSettings, request | about, name)
    # SGLang keeps to the precision of the pipeline's own parts, whatever `dtype` says.
    result = {"dtype": None if is_sglang else settings.dtype, **told}
    return Question(asking, {"sampling": told or None}, result)


def _refuse_unknown(settings: TextToImageSettings, name: str, weights: Weights) -> None:
    """UsageError for settings and weights that no engine takes."""
    fields = type(settings).model_fields
    wrong = []
    for setting in _PIPELINE_ONLY:
        if getattr(settings, setting) != fields[setting].default:
            wrong.append(setting)
    for argument in settings.arguments:
        if argument != _TRUE_CFG:
            wrong.append(f"arguments.{argument}")
    if wrong:
        raise UsageError(
            f"{name}: {', '.join(wrong)} cannot be set with engine {settings.engine!r}; "
            "give the engine's own options in engine_arguments"
        )
    if weights == "dummy" and settings.engine == "sglang":
        raise UsageError(
            f"{name}: engine 'sglang' draws with published weights only; use engine "
            "'vllm-omni' for dummy weights, or none"
        )


def _request_settings(settings: TextToImageSettings) -> dict[str, Any]:
    """Return what each request says: the settings, and noise drawn as plait draws it."""
    architecture = settings.architecture or PUBLISHED.get(settings.model)
    design = DESIGNS[architecture] if architecture else None
    # Requests for Qwen-Image have its guidance under another name.
    by_true_cfg = design is not None and design.pipeline == "QwenImagePipeline"
    guidance = _TRUE_CFG if by_true_cfg else "guidance"
    chosen = {
        "width": settings.width,
        "height": settings.height,
        "steps": settings.steps,
        "negative_prompt": settings.negative_prompt,
        "max_sequence_length": settings.max_sequence_length,
        "prompt_prefix": settings.prompt_prefix,
        "generator_device": "cpu",
        guidance: settings.guidance,
        **settings.arguments,
    }
    return {name: value for name, value in chosen.items() if value is not None}
