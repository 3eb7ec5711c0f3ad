"""Digests that name results, and seeds that follow from them. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from plait.generators.document import (
    Blob,
    Candidate,
    Document,
    Image,
    ImageRequest,
    Payload,
    Request,
    Text,
    Turn,
)

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_PLAIN = (str, int, float, bool, type(None))

_NAMES: dict[type, str] = {
    Blob: "Blob",
    Candidate: "Candidate",
    Document: "Document",
    Image: "Image",
    ImageRequest: "ImageRequest",
    Payload: "Payload",
    Request: "Request",
    Text: "Text",
    Turn: "Turn",
}
"""Names in keys of the values that enter them. They never change, even if a class is
renamed: with another name every record of every run would be made again."""
_FIELDS: dict[type, tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind)) for kind in _NAMES
}


def canonical(value: Any) -> Any:
    """Return `value` as plain JSON data in which equal content has only one form.

    Input values become objects without their empty fields, so that a field added later
    with an empty default changes no existing digest; blobs are named by their digest, but
    payloads by their origin where they have one: the last digits of hidden states differ
    from batch to batch. TypeError for a value of any other class.
    """
    # A plan of a large task set asks for a million keys: the usual types come first.
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (tuple, list)):
        return [canonical(v) for v in value]
    kind: type = type(value)
    if (name := _NAMES.get(kind)) is not None:
        if isinstance(value, Blob):
            origin = value.origin if isinstance(value, Payload) else None
            return {name: origin or value.digest}
        content = {field: canonical(getattr(value, field)) for field in _FIELDS[kind]}
        return {name: {k: v for k, v in content.items() if v not in (None, [], {})}}
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in value.items()}
    raise TypeError(f"{type(value).__name__} has no canonical form: {value!r}")


def canonical_text(value: Any) -> str:
    """Return the canonical form of `value` as JSON."""
    return _ENCODER.encode(canonical(value))


def digest(*values: Any) -> str:
    """Return the hex digest (32 characters) of the canonical form of `values`."""
    return digest_of_texts(*map(canonical_text, values))


def digest_of_texts(*texts: str) -> str:
    """Return the digest of the values that have these canonical texts."""
    return hashlib.sha256(f"[{','.join(texts)}]".encode()).hexdigest()[:32]


def digest_of_items(items: Iterable[tuple[str, str]]) -> str:
    """Return the `digest` of a mapping of texts, given its items in the order of names."""
    state, before = hashlib.sha256(b"[{"), ""
    for name, value in items:
        state.update(f"{before}{_ENCODER.encode(name)}:{_ENCODER.encode(value)}".encode())
        before = ","
    state.update(b"}]")
    return state.hexdigest()[:32]


def derived_seed(run_seed: int, sample_id: str, repeat: int, position: int) -> int:
    """Return the seed of one drawing of one record, in [0, 2**63).

    It depends on no model and no setting, so all text-to-image models of a row start
    from the same noise, and a subset of a task set gives the same documents.
    """
    text = f"{run_seed}\n{sample_id}\n{repeat}\n{position}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
