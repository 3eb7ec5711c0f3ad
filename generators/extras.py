"""Packages that only some uses of plait need: imported where they are used, or named."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal

from plait.generators.errors import UsageError

Extra = Literal[
    "models",
    "ray",
    "serve",
    "buckets",
    "tiktoken",
    "quantization",
    "adapters",
    "gguf",
    "fp8",
    "loadgen",
    "wandb",
    "mlflow",
    "trackio",
]
MODULES: Mapping[Extra, tuple[str, ...]] = {
    "models": (
        "torch",
        "transformers",
        "diffusers",
        "accelerate",
        "open_clip",
        "sentencepiece",
        "timm",
        "tokenizers",
        "torchmetrics",
        "torchvision",
    ),
    "ray": ("ray",),
    "serve": ("fastapi", "prometheus_client", "uvicorn"),
    "buckets": ("obstore",),
    "tiktoken": ("tiktoken",),
    "quantization": ("bitsandbytes",),
    "adapters": ("peft",),
    "gguf": ("gguf",),
    "fp8": ("torchao",),
    "loadgen": ("mlperf_loadgen",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "pandas"),
    "trackio": ("trackio",),
}
"""Modules that come with the extras of plait (pyproject.toml)."""


def _extra_of_modules() -> dict[str, str]:
    found: dict[str, str] = {}
    for extra, modules in MODULES.items():
        found |= dict.fromkeys(modules, extra)
    return found


_EXTRAS = _extra_of_modules()
_PACKAGES = {"json_repair": "json-repair", "pandas": "pandas", "polars": "polars"}
"""Packages that no extra has."""
_MOST_NAMED = 3


def import_extra(module: str, purpose: str) -> Any:
    """Return an optional module.

    Args:
        module: Its name, one of those above.
        purpose: What needs it, the beginning of the message where it is not installed.

    Raises:
        UsageError: Where it cannot be imported, with the command that installs it.
    """
    why = ""
    if is_installed(module):
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            why = f", which lacks {error.name}"
        except ImportError as error:
            why = f", which cannot be imported ({error})"
    command = _command(_EXTRAS.get(module, module))
    raise UsageError(f"{purpose} needs {module}{why}: {command}")


def extra_problem(extra: Extra, *users: str) -> str:
    """Return that `users` need an extra, with the command; empty where it is there."""
    absent = [module for module in MODULES[extra] if not is_installed(module)]
    if not absent:
        return ""
    verb = "needs" if len(users) == 1 else "need"
    return f"{_enumerate(users)} {verb} {_enumerate(absent)}: {_command(extra)}"


def require_extra(extra: Extra, purpose: str) -> None:
    """UsageError as `extra_problem` says it: after this, its modules can be imported."""
    if problem := extra_problem(extra, purpose):
        raise UsageError(problem)


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it."""
    if sys.modules.get(module) is not None:
        return True
    spec = find_spec(module)
    # A folder of that name, such as the one that wandb writes, is found without an origin.
    return spec is not None and spec.origin is not None


def _command(extra: str) -> str:
    return f"pip install '{_PACKAGES.get(extra, f'plait[{extra}]')}'"


def _enumerate(names: Sequence[str]) -> str:
    if (more := len(names) - _MOST_NAMED) > 0:
        return f"{', '.join(names[:_MOST_NAMED])} and {more} more"
    return ", ".join(names)
