"""What a stage's exception means for its batch and its process."""

from __future__ import annotations

import gc
import sys
import traceback
from pathlib import Path
from typing import Literal

from cluster.server_process import ServerError
from generators.secrets import without_keys

StageFault = Literal["raised", "out of memory", "broken"]
"""What an exception says of the process that computed a batch: a record is at fault, a
smaller batch may succeed, or the process can no longer be trusted (a CUDA error)."""


def stage_fault(error: Exception) -> StageFault:
    """What follows from an exception that a stage raised.

    Where memory ran out, it is released.
    """
    text = str(error)
    names = {c.__name__ for c in type(error).__mro__}
    if "OutOfMemoryError" in names or "out of memory" in text.lower():
        # The frames of the error still hold the batch's tensors.
        traceback.clear_frames(error.__traceback__)
        release_memory()
        return "out of memory"
    return "broken" if "CUDA error" in text else "raised"


def error_text(error: BaseException) -> str:
    """Kind, message and the innermost line of code of an error, without keys.

    One about a server ends with the server's own words instead.
    """
    if isinstance(error, ServerError):
        return without_keys(str(error))
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return without_keys(f"{type(error).__name__}: {error}{where}")


def release_memory() -> None:
    """Free what nothing refers to any more, device memory included."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
