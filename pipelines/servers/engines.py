"""Engines: preset commands of servers, made from a model's own settings.

`engine` turns a model into another stage, which asks a server of that command. The stage's
identity names the checkpoint, the engine, and the engine's version and arguments; host,
port and environment do not count. Options are those of vLLM 0.32, SGLang 0.5.23 and
vLLM-Omni 0.30; `engine_arguments` come last and so override them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import JsonValue

from generators.base import Kind, StageSpec, Weights
from generators.checkpoints import looks_like_path
from generators.diffusion.designs import DESIGNS, PUBLISHED
from generators.errors import UsageError
from generators.names import validated
from generators.settings import unkeyed
from pipelines.chat.settings import ChatSettings, EndpointSettings, ServerSettings
from pipelines.endpoints.settings import DIALECTS, DialectName, ImagesSettings
from pipelines.presets import TextToImageSettings
from pipelines.servers.settings import EngineModelSettings, ServerTable
from pipelines.servers.software import Software, engine_software
from pipelines.servers.start import started

SERVED_NAME = "model"
"""What requests call a model that lies in a folder: its place is no part of a key."""
KEY_VARIABLE = "VLLM_API_KEY"
"""Where vLLM reads the key that requests must give; others are started without one."""
_LARGEST_SIDE = 8192
"""Images are sent as they are: limits on pixels are the checkpoint's or the engine's."""
_PIPELINE_ONLY = ("scheduler", "attention", "compile", "offload", "device_map")
"""Settings of plait's own stage; an engine has arguments of its own for some of them."""
_TRUE_CFG = "true_cfg_scale"
_TOLD = ("max_sequence_length",)
"""Settings that vLLM-Omni's requests do not take, and its command does."""


class EngineChatSettings(EndpointSettings):
    """A chat model behind an engine's server that plait starts."""

    stage: ClassVar[str] = "chat-engine"
    target: ClassVar[str] = "pipelines.servers.chat_stage:EngineChat"

    checkpoint: str = unkeyed("")
    """Folder or Hub id: its processor tells which tokens are the chat template's."""
    revision: str | None = unkeyed(None)


class Option(NamedTuple):
    """An option of a command."""

    name: str
    key: str | None = None
    """The value is given as a JSON object, under this key."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A preset command: its words, and its options for what not every model sets."""

    words: str
    options: Mapping[str, Option]

    def command(self, model: Mapping[str, Any]) -> list[str]:
        """The command for a model of these values by name."""
        argv = [word.format_map(model) for word in self.words.split()]
        for name, option in self.options.items():
            if (value := model.get(name)) is not None:
                value = value if option.key is None else {option.key: value}
                shown = json.dumps(value) if isinstance(value, Mapping) else str(value)
                argv += [option.name, shown]
        return argv


_SERVE = "{executable} serve {model} --served-model-name {name} --host 127.0.0.1 "
_SERVE += "--port {{port}} --dtype {dtype} "
_SGLANG = _SERVE.replace("{model}", "--model-path {model}")
_REVISION = {"revision": Option("--revision")}
_SPLIT = {"gpus": Option("--num-gpus")}
ENGINES: Mapping[tuple[str, Kind], Engine] = {
    # Of both: defaults of the checkpoint's own sampling do not apply.
    ("vllm", Kind.DRAFT): Engine(
        _SERVE + "--seed 0 --generation-config vllm",
        _REVISION
        | {
            "gpus": Option("--tensor-parallel-size"),
            "memory_share": Option("--gpu-memory-utilization"),
            "context": Option("--max-model-len"),
            "max_images": Option("--limit-mm-per-prompt", "image"),
            "pixels": Option("--mm-processor-kwargs"),
            "random": Option("--load-format"),
        },
    ),
    ("sglang", Kind.DRAFT): Engine(
        _SGLANG + "--model-type llm --random-seed 0 --sampling-defaults openai",
        _REVISION
        | {
            "gpus": Option("--tp-size"),
            "memory_share": Option("--mem-fraction-static"),
            "context": Option("--context-length"),
            "max_images": Option("--limit-mm-data-per-request", "image"),
            "pixels": Option("--mm-process-config", "image"),
            "random": Option("--load-format"),
        },
    ),
    ("vllm-omni", Kind.RENDER): Engine(
        _SERVE + "--omni",
        _REVISION
        | _SPLIT
        | {
            "sampling": Option("--default-sampling-params", "0"),
            "random": Option("--diffusion-load-format"),
        },
    ),
    # Its dtype is the pipeline's own.
    ("sglang", Kind.RENDER): Engine(
        _SGLANG.replace("--dtype {dtype} ", "") + "--model-type diffusion "
        "--strict-ports true",
        _REVISION | _SPLIT,
    ),
}
"""By name and kind of stage."""


@dataclass(frozen=True, slots=True)
class Question:
    """How an engine's server is asked, and what of its command may change a result."""

    settings: ServerSettings
    told: dict[str, Any]
    """What the server's command says of the model besides what all commands do."""
    result: Mapping[str, Any]


def engine_spec(
    settings: EngineModelSettings, name: str, weights: Weights, gpu_gib: float
) -> StageSpec:
    """The stage of a model that an engine runs; UsageError, CheckpointError."""
    if isinstance(settings, TextToImageSettings):
        _refuse_unknown(settings, name, weights)
    model = _model(settings, weights, gpu_gib)
    ask = _image_question if isinstance(settings, TextToImageSettings) else _chat_question
    question = ask(settings, name, model, weights)
    software, num_gpus = _software(settings), model["num_gpus"]
    engine = ENGINES[software.name, settings.kind]
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
    )
    # On CPUs alone, each server would take all of them.
    alone = settings.workers is None and not num_gpus
    table = ServerTable(
        command=(*engine.command(model | question.told), *settings.engine_arguments),
        num_gpus=num_gpus,
        num_cpus=placement.num_cpus,
        memory_gib=placement.memory_gib,
        env=settings.engine_env,
        pass_env=("HF_TOKEN",),
        replicas=1 if alone else settings.workers,
        start_timeout_s=settings.engine_start_timeout_s,
    )
    return started(spec, table, software.name, model["name"], software, KEY_VARIABLE)


def _model(
    settings: EngineModelSettings, weights: Weights, gpu_gib: float
) -> dict[str, Any]:
    """What every engine is told of a checkpoint; UsageError for tiny weights."""
    if weights == "tiny":
        raise UsageError(
            f"engine {settings.engine!r} reads a checkpoint, and tiny weights are made in "
            "memory: leave engine out, or name a folder that holds a small checkpoint "
            "and set weights to 'pretrained'"
        )
    is_folder = looks_like_path(settings.model)
    own = str(Path(settings.model).expanduser().resolve()) if is_folder else settings.model
    num_gpus = _gpus(settings, weights, gpu_gib)
    return {
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
    """GPUs of one server: as asked, else the estimate as a power of two.

    Engines split the heads of a model evenly.
    """
    gpus = settings.placement(weights, gpu_gib).num_gpus
    if settings.num_gpus is not None or gpus <= 1:
        return gpus
    return float(2 ** math.ceil(math.log2(gpus)))


def _software(settings: EngineModelSettings) -> Software:
    """The engine and its version; CheckpointError where it is not installed."""
    engine = settings.engine
    assert engine is not None
    if settings.engine_version is not None:
        return Software(engine, settings.engine_version)
    return engine_software(engine, settings.engine_executable or engine)


def _identity(
    settings: EngineModelSettings,
    weights: Weights,
    software: Software,
    result: Mapping[str, Any],
) -> str:
    about = {name: value for name, value in result.items() if value is not None}
    if settings.engine_arguments:
        about["arguments"] = list(settings.engine_arguments)
    text = json.dumps(about, sort_keys=True)
    return f"{settings.identity(weights)} by {software} {text}"


def _limits(settings: EngineModelSettings) -> dict[str, Any]:
    return {
        "concurrency": settings.engine_concurrency,
        "timeout_s": settings.batch_timeout_s,
        "give_up_s": settings.batch_timeout_s,
    }


def _chat_question(
    settings: EngineModelSettings, name: str, model: dict[str, Any], weights: Weights
) -> Question:
    assert isinstance(settings, ChatSettings)
    longest, answer = settings.max_input_tokens, settings.new_tokens(weights)
    context = None if longest is None else longest + answer
    limits = {"min_pixels": settings.min_pixels, "max_pixels": settings.max_pixels}
    pixels = {n: limit for n, limit in limits.items() if limit is not None}
    # Sampling parameters that OpenAI's API lacks; both engines take them.
    more: dict[str, JsonValue] = {"top_k": settings.top_k} if settings.top_k else {}
    if settings.repetition_penalty != 1.0:
        more["repetition_penalty"] = settings.repetition_penalty
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
        **_limits(settings),
    )
    images = {"max_images": settings.max_images, "pixels": pixels or None}
    result = {"dtype": settings.dtype, "context": context, **pixels}
    return Question(asking, {"context": context, **images}, result)


def _image_question(
    settings: EngineModelSettings, name: str, model: Mapping[str, Any], weights: Weights
) -> Question:
    assert isinstance(settings, TextToImageSettings)
    is_sglang = settings.engine == "sglang"
    dialect: DialectName = "sglang" if is_sglang else "vllm-omni"
    chosen = _chosen(settings)
    # What requests do not take is said once, when the server is started.
    unasked = set(_TOLD) - DIALECTS[dialect].fields.keys()
    told = {n: chosen.pop(n) for n in sorted(unasked & chosen.keys())}
    about = {"model": model["name"], "dialect": dialect, **_limits(settings)}
    asking = validated(ImagesSettings, chosen | about, name)
    # SGLang keeps to the precision of the pipeline's own parts, whatever `dtype` says.
    result = {"dtype": None if is_sglang else settings.dtype, **told}
    return Question(asking, {"sampling": told or None}, result)


def _refuse_unknown(settings: TextToImageSettings, name: str, weights: Weights) -> None:
    """UsageError for settings that the engine would not follow."""
    fields = type(settings).model_fields
    wrong = [n for n in _PIPELINE_ONLY if getattr(settings, n) != fields[n].default]
    wrong += [f"arguments.{n}" for n in settings.arguments if n != _TRUE_CFG]
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


def _chosen(settings: TextToImageSettings) -> dict[str, Any]:
    """What each request says: the model's settings, and noise drawn as plait draws it."""
    architecture = settings.architecture or PUBLISHED.get(settings.model)
    design = DESIGNS[architecture] if architecture else None
    by_true_cfg = design is not None and design.pipeline == "QwenImagePipeline"
    chosen = {
        "width": settings.width,
        "height": settings.height,
        "steps": settings.steps,
        "negative_prompt": settings.negative_prompt,
        "max_sequence_length": settings.max_sequence_length,
        "prompt_prefix": settings.prompt_prefix,
        "generator_device": "cpu",
        _TRUE_CFG if by_true_cfg else "guidance": settings.guidance,
        **settings.arguments,
    }
    return {name: value for name, value in chosen.items() if value is not None}
