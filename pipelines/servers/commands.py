"""The commands that start engines, from a model's settings.

Options as of vLLM 0.32, SGLang 0.5.23 and vLLM-Omni 0.30; `engine_arguments` come last
and so override them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"
HINTS = {
    "vllm": "Install vLLM into an environment of its own and name its program, as in "
    "engine_executable = '/envs/vllm/bin/vllm'.",
    "sglang": "Install SGLang into an environment of its own and name its program, as in "
    "engine_executable = '/envs/sglang/bin/sglang'.",
    "vllm-omni": "Install vLLM-Omni into an environment of its own and name its program, "
    "as in engine_executable = '/envs/omni/bin/vllm-omni'.",
}
"""What to do where an engine's program is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A checkpoint as an engine is to serve it."""

    executable: str
    model: str
    """Folder or Hub id."""
    name: str
    """What requests call it."""
    revision: str | None = None
    dtype: str = "bfloat16"
    num_gpus: float = 0.0
    random_weights: bool = False
    context: int | None = None
    """Longest prompt and answer together, in tokens."""
    max_images: int | None = None
    pixels: tuple[tuple[str, int], ...] = ()
    """Limits on a picture's pixels: `min_pixels`, `max_pixels`."""
    seed: int = 0
    sampling: tuple[tuple[str, Any], ...] = ()
    """What the server is told once, because its requests do not take it."""

    @property
    def parallel(self) -> int:
        """GPUs over which the model is split."""
        return max(1, int(self.num_gpus))


def vllm_chat(served: Served) -> list[str]:
    """The command of vLLM for a chat model.

    Defaults of the checkpoint's own sampling do not apply.
    """
    argv = [served.executable, "serve", served.model, *_common(served)]
    argv += ["--dtype", served.dtype, "--seed", str(served.seed)]
    argv += ["--generation-config", "vllm"]
    argv += _if(served.parallel > 1, "--tensor-parallel-size", served.parallel)
    argv += _if(0 < served.num_gpus < 1, "--gpu-memory-utilization", _share(served))
    argv += _if(served.context, "--max-model-len", served.context)
    limit = json.dumps({"image": served.max_images})
    argv += _if(served.max_images is not None, "--limit-mm-per-prompt", limit)
    argv += _if(served.pixels, "--mm-processor-kwargs", json.dumps(dict(served.pixels)))
    return argv + _if(served.random_weights, "--load-format", "dummy")


def sglang_chat(served: Served) -> list[str]:
    """The command of SGLang for a chat model.

    Defaults of the checkpoint's own sampling do not apply.
    """
    argv = [served.executable, "serve", "--model-path", served.model, *_common(served)]
    argv += ["--model-type", "llm", "--dtype", served.dtype]
    argv += ["--random-seed", str(served.seed), "--sampling-defaults", "openai"]
    argv += _if(served.parallel > 1, "--tp-size", served.parallel)
    argv += _if(0 < served.num_gpus < 1, "--mem-fraction-static", _share(served))
    argv += _if(served.context, "--context-length", served.context)
    limit = json.dumps({"image": served.max_images})
    argv += _if(served.max_images is not None, "--limit-mm-data-per-request", limit)
    pixels = json.dumps({"image": dict(served.pixels)})
    argv += _if(served.pixels, "--mm-process-config", pixels)
    return argv + _if(served.random_weights, "--load-format", "dummy")


def vllm_omni_images(served: Served) -> list[str]:
    """The command of vLLM-Omni for a text-to-image model."""
    argv = [served.executable, "serve", served.model, "--omni", *_common(served)]
    argv += ["--dtype", served.dtype]
    argv += _if(served.parallel > 1, "--num-gpus", served.parallel)
    first_stage = json.dumps({"0": dict(served.sampling)})
    argv += _if(served.sampling, "--default-sampling-params", first_stage)
    return argv + _if(served.random_weights, "--diffusion-load-format", "dummy")


def sglang_images(served: Served) -> list[str]:
    """The command of SGLang for a text-to-image model; its dtype is the pipeline's own."""
    argv = [served.executable, "serve", "--model-path", served.model, *_common(served)]
    argv += ["--model-type", "diffusion", "--strict-ports", "true"]
    return argv + _if(served.parallel > 1, "--num-gpus", served.parallel)


CHAT = {"vllm": vllm_chat, "sglang": sglang_chat}
"""Engine -> its command for a chat model."""
IMAGES = {"vllm-omni": vllm_omni_images, "sglang": sglang_images}
"""Engine -> its command for a text-to-image model."""


def _common(served: Served) -> list[str]:
    argv = ["--served-model-name", served.name, "--host", HOST, "--port", "{port}"]
    return argv + _if(served.revision, "--revision", served.revision)


def _if(condition: Any, option: str, value: Any) -> list[str]:
    return [option, str(value)] if condition else []


def _share(served: Served) -> float:
    """Of a shared GPU's memory, with the tenth left free that engines leave by default."""
    return round(0.9 * served.num_gpus, 3)
