"""The failure of a record for which a model computed NaN or infinity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.generators.base import Failure, Fault

SCORES = "the model's scores of its next token"


def no_numbers(
    what: str,
    dtype: object,
    usage: Mapping[str, float] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Failure:
    """Return the failure of a record that was computed in `dtype`, torch's or its name.

    The advice is given only where it can help: bfloat16 reaches as far as float32.
    """
    name = str(dtype).removeprefix("torch.")
    reason = f"{what} are no finite numbers in {name}"
    if name == "float16":
        reason += ", which overflows beyond 65,504; set dtype to bfloat16 or float32"
    return Failure(reason, Fault.ERROR, usage or {}, notes or {})
