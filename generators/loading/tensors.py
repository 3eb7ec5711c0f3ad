"""Stored tensors of a checkpoint, one at a time: safetensors first, else torch.save files.

Tensors are read when they are asked for: a checkpoint is never held twice.
"""

from __future__ import annotations

import errno
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from generators.errors import CheckpointError
from generators.loading.files import Files, read_json, section

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
    places = section(read_json(index), "weight_map", str(index))
    shards = {place for name, place in places.items() if wanted(name)}
    if other := [place for place in shards if not isinstance(place, str)]:
        raise CheckpointError(
            f"{index}: weight_map names {other[0]!r}; it must name a file for each tensor"
        )
    return [files.need(shard) for shard in sorted(shards)]


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
    """What `torch.save` wrote; of nested mappings the one at `below`.

    It is memory-mapped unless the file is compressed or of torch < 1.6.

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


def shape_of(
    stored: Mapping[str, Any], name: str, source: str, rank: int | None = None
) -> tuple[int, ...]:
    """Shape of a stored tensor.

    Raises CheckpointError, in which `source` names the file, when it is missing, is not a
    tensor, or has not `rank` dimensions.
    """
    if name not in stored:
        raise CheckpointError(f"{source} lacks {name}")
    if not isinstance(stored[name], Tensor):
        kind = type(stored[name]).__name__
        raise CheckpointError(f"{source}: {name} is a {kind}; it must be a tensor")
    shape = tuple(stored[name].shape)
    if rank is not None and len(shape) != rank:
        raise CheckpointError(
            f"{source}: {name} has the shape {shape}, not one of {rank} dimensions"
        )
    return shape


def _unpickled(path: Path) -> Any:
    try:
        return torch.load(
            path, map_location="cpu", weights_only=True, mmap=_is_mappable(path)
        )
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError) as error:
        # torch looks for the end of a short broken archive before its beginning (EINVAL).
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"{path} is broken or holds more than tensors: {first}"
        ) from None


def _is_mappable(path: Path) -> bool:
    """Whether the tensors lie in the file as they are in memory.

    Files of torch < 1.6 are not zip archives, and others may have been compressed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except zipfile.BadZipFile:
        return False
    return all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
