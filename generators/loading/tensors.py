"""Stored tensors of a checkpoint, one at a time: safetensors first, else torch.save files.

Tensors are read when they are asked for: a checkpoint is never held twice.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from generators.errors import CheckpointError
from generators.loading.files import Files, read_json

_SAFE, _PICKLED = "model.safetensors", "pytorch_model.bin"


def _all(name: str) -> bool:
    return True


def stored_tensors(
    files: Files,
    wanted: Callable[[str], bool] = _all,
    *,
    safe: str = _SAFE,
    pickled: str | None = _PICKLED,
) -> Iterator[tuple[str, Tensor]]:
    """The `wanted` tensors of a checkpoint in the layout of `save_pretrained`.

    `safe` and `pickled` are the names of the unsharded files (`pickled` None where
    pickles are not read); the index of a sharded one has the same name and
    `.index.json`. Only shards that hold wanted tensors are read, or downloaded.
    CheckpointError names files that are missing or broken.
    """
    shards = _shards(files, safe, wanted)
    if shards is not None:
        for path in shards:
            yield from in_safetensors(path, wanted)
        return
    shards = None if pickled is None else _shards(files, pickled, wanted)
    if shards is None:
        raise CheckpointError(
            f"{files.describe()} has neither {safe} nor its index {safe}.index.json"
            + ("" if pickled is None else f", nor {pickled}")
        )
    for path in shards:
        yield from ((k, v) for k, v in in_pickle(path).items() if wanted(k))


def _shards(files: Files, name: str, wanted: Callable[[str], bool]) -> list[Path] | None:
    index = files.find(f"{name}.index.json")
    if index is None:
        whole = files.find(name)
        return None if whole is None else [whole]
    places: Mapping[str, str] = read_json(index)["weight_map"]
    return [files.need(s) for s in sorted({p for k, p in places.items() if wanted(k)})]


def in_safetensors(
    path: Path, wanted: Callable[[str], bool] = _all
) -> Iterator[tuple[str, Tensor]]:
    """The `wanted` tensors of one file; CheckpointError when it is broken."""
    try:
        with safe_open(str(path), framework="pt") as shard:
            for name in shard.keys():  # noqa: SIM118
                if wanted(name):
                    yield name, shard.get_tensor(name)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is broken: {error}") from None


def in_pickle(path: Path, *below: str) -> Mapping[str, Any]:
    """What `torch.save` wrote, memory-mapped; of nested mappings the one at `below`.

    Only tensors and plain containers are unpickled. CheckpointError for anything else,
    for broken files, and where `below` is not there.
    """
    found: Any = _unpickled(path)
    for name in below:
        if not isinstance(found, Mapping) or name not in found:
            raise CheckpointError(f"{path} holds no {name!r}")
        found = found[name]
    if not isinstance(found, Mapping):
        raise CheckpointError(f"{path} holds a {type(found).__name__}, not named tensors")
    return found


def _unpickled(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        if "mmap" in str(error):
            # Files of torch < 1.6 are no zip archives, which mapping needs.
            return _unmapped(path)
        raise _broken(path, error) from None


def _unmapped(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise _broken(path, error) from None


def _broken(path: Path, error: Exception) -> CheckpointError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return CheckpointError(f"{path} is broken or holds more than tensors: {first}")
