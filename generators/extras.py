"""Packages that only some uses of plait need: imported where they are used, or named."""

from __future__ import annotations

import importlib
from typing import Any

from plait.generators.errors import UsageError

_EXTRAS = {
    "bitsandbytes": "quantization",
    "mlflow": "mlflow",
    "mlperf_loadgen": "loadgen",
    "obstore": "buckets",
    "tiktoken": "tiktoken",
    "trackio": "trackio",
    "wandb": "wandb",
}
"""Extras of plait (pyproject.toml), by the modules that come with them."""
_PACKAGES = {"json_repair": "json-repair", "pandas": "pandas", "polars": "polars"}
"""Packages that no extra has."""


def import_extra(module: str, purpose: str) -> Any:
    """Return an optional module.

    Args:
        module: Its name, one of those above.
        purpose: What needs it, the beginning of the message where it is not installed.

    Raises:
        UsageError: Where it cannot be imported, with the command that installs it.
    """
    extra = _EXTRAS.get(module)
    package = f"'plait[{extra}]'" if extra else _PACKAGES[module]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        why = "is not installed" if error.name == module else f"lacks {error.name}"
    except ImportError as error:
        why = f"cannot be imported ({error})"
    raise UsageError(f"{purpose} needs {module}, which {why}: pip install {package}")
