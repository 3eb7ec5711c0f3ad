"""Digests that name results, and seeds that follow from them. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from generators.document import Blob


def canonical(value: Any) -> Any:
    """`value` as plain JSON data in which equal content is written in one way only.

    Dataclasses become objects without their empty fields, so that a field added later
    with an empty default changes no existing digest; blobs are named by their digest.
    """
    if isinstance(value, Blob):
        return {type(value).__name__: value.digest}
    if is_dataclass(value) and not isinstance(value, type):
        content = {f.name: canonical(getattr(value, f.name)) for f in fields(value)}
        kept = {k: v for k, v in content.items() if v not in (None, [], {})}
        return {type(value).__name__: kept}
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [canonical(v) for v in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} has no canonical form: {value!r}")


def digest(*values: Any) -> str:
    """Hex digest (32 characters) of the canonical form of `values`."""
    text = json.dumps(canonical(values), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def derived_seed(run_seed: int, sample_id: str, repeat: int, position: int) -> int:
    """Seed of one drawing of one record, in [0, 2**63).

    It depends on no model and no setting, so all text-to-image models of a row start
    from the same noise, and a subset of a task set gives the same documents.
    """
    text = f"{run_seed}\n{sample_id}\n{repeat}\n{position}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
