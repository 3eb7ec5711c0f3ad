"""A checkpoint's files, local or from the Hub: their configurations and their tensors.

Tensors are read when they are asked for, from safetensors where there are any, else from
`torch.save` files: a checkpoint is never held twice.
"""

from __future__ import annotations

import errno
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from plait.generators.checkpoints import first_line, looks_like_path
from plait.generators.errors import CheckpointError
from plait.generators.extras import require_extra
from plait.generators.loading.soundness import (
    refuse_adapter,
    refuse_broken,
    refuse_unreadable,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor


@dataclass(frozen=True)
class Files:
    """The files of a model's folder or Hub repository."""

    model: str
    revision: str | None = None

    def find(self, name: str) -> Path | None:
        """Return the file of that name; None where the checkpoint has none.

        CheckpointError where it is broken.
        """
        path = self._find(name)
        if path is not None:
            refuse_broken(path)
        return path

    def _find(self, name: str) -> Path | None:
        """Return the file of that name, be it broken or not."""
        if looks_like_path(self.model):
            path = Path(self.model).expanduser() / name
            return path if path.is_file() else None
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

        try:
            return Path(hf_hub_download(self.model, name, revision=self.revision))
        except EntryNotFoundError:
            # Also raised when the Hub does not answer and the file is not cached.
            return None
        except HfHubHTTPError as error:
            told = f"{name} of {self.describe()}: {first_line(error)}"
            raise CheckpointError(told) from error

    def need(self, name: str) -> Path:
        """Return the file of that name; CheckpointError where the checkpoint has none."""
        path = self.find(name)
        if path is None:
            raise CheckpointError(f"{self.describe()} has no file {name!r}")
        return path

    def refuse_adapter(self) -> None:
        """Raise CheckpointError where a folder holds an adapter beside the weights."""
        if looks_like_path(self.model):
            refuse_adapter(Path(self.model).expanduser())

    def describe(self) -> str:
        """Return the name of the checkpoint, for errors."""
        if looks_like_path(self.model):
            return f"the folder {self.model!r}"
        return f"the Hub repository {self.model!r} (or its cached part, when offline)"


def weights_file(model: str) -> Path:
    """Return a file of weights, downloaded where `model` is its address.

    The name of a downloaded file ends with the beginning of its digest, as torch.hub's do;
    it lies in torch.hub's cache. CheckpointError where it cannot be had.
    """
    if "://" not in model:
        return Path(model).expanduser()
    require_extra("models", model)
    import torch

    path = Path(torch.hub.get_dir()) / "checkpoints" / model.rpartition("/")[2]
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(
                model, str(path), path.stem.rpartition("-")[2], progress=False
            )
        except Exception as error:
            # Besides its own errors the HTTP library's come through.
            raise CheckpointError(
                f"{model} cannot be downloaded to {path} ({first_line(error)}): put the "
                "file there, or name where it lies"
            ) from error
    return path


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; CheckpointError when it holds anything else."""
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path} holds a {type(content).__name__}; it must hold named values"
        )
    return content


def read_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer in a `tokenizer.json`.

    CheckpointError when it is broken, or has no vocabulary.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises plain `Exception` for whatever it cannot read.
        raise CheckpointError(f"{path} is not a valid tokenizer: {error}") from None

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    refuse_unreadable(encode, str(path))
    return tokenizer


def count(values: Mapping[str, Any], name: str, source: str) -> int:
    """Return the value `name` of a configuration file.

    Raises CheckpointError, in which `source` names the file, when it is missing or is not
    a whole number above 0.
    """
    value = _value(values, name, source)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(
            f"{source}: {name} is {value!r}; it must be a whole number above 0"
        )
    return value


def divide(whole: int, parts: int, what: str, source: str) -> int:
    """Return `whole` / `parts`; CheckpointError says `what` does not divide evenly."""
    if whole % parts:
        raise CheckpointError(f"{source}: {what}, but {whole} is not divisible by {parts}")
    return whole // parts


def section(values: Mapping[str, Any], name: str, source: str) -> Mapping[str, Any]:
    """Return the named values below `name`; CheckpointError when there are none."""
    value = _value(values, name, source)
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{source}: {name} is {value!r}; it must hold named values")
    return value


def _value(values: Mapping[str, Any], name: str, source: str) -> Any:
    if name not in values:
        raise CheckpointError(f"{source} lacks {name}")
    return values[name]


def config_of_class(kind: Any, fields: Mapping[str, Any], source: str) -> Any:
    """Return the configuration of transformers' class, or class name, `kind` with `fields`.

    Raises CheckpointError, in which `source` names the file, with the field that is not
    valid and the rule it breaks.
    """
    if isinstance(kind, str):
        import transformers

        kind = getattr(transformers, kind)
    try:
        return kind.from_dict(dict(fields))
    except Exception as error:
        # Besides its own errors transformers lets those of plain arithmetic through.
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{source} is not a valid {kind.__name__}: {reason}"
        ) from None


_SAFE = "model.safetensors"
_PICKLED = "pytorch_model.bin"


def _all(name: str) -> bool:
    return True


def read_stored(
    files: Files,
    wanted: Callable[[str], bool] = _all,
    *,
    safe: str = _SAFE,
    pickled: str | None = _PICKLED,
) -> Iterator[tuple[str, Tensor]]:
    """Yield the `wanted` tensors of a checkpoint in the layout of `save_pretrained`.

    `safe` and `pickled` are the names of the unsharded files (`pickled` None where
    pickles are not read); the index of a sharded one has the same name and
    `.index.json`. Only shards that hold wanted tensors are read, or downloaded.
    CheckpointError names files that are missing or broken, and an adapter beside them.
    """
    files.refuse_adapter()
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
        for name, tensor in in_pickle(path).items():
            if wanted(name):
                yield name, tensor


def _shards(files: Files, name: str, wanted: Callable[[str], bool]) -> list[Path] | None:
    """Return the files with wanted tensors: the shards of an index, or the file `name`.

    None where there is neither.
    """
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
    """Yield the `wanted` tensors of one file; CheckpointError when it is broken."""
    refuse_broken(path)
    try:
        with safe_open(str(path), framework="pt") as shard:
            for name in shard.keys():  # noqa: SIM118
                if wanted(name):
                    yield name, shard.get_tensor(name)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is broken: {error}") from None


def in_pickle(path: Path, *below: str) -> Mapping[str, Any]:
    """Return the mapping that `torch.save` wrote, or the one nested in it at `below`.

    It is memory-mapped unless the file is compressed or of torch < 1.6. Only tensors and
    plain containers are unpickled. CheckpointError for anything else, for broken files, and
    where `below` is not there.
    """
    refuse_broken(path)
    content: Any = _unpickle(path)
    for name in below:
        if not isinstance(content, Mapping) or name not in content:
            raise CheckpointError(f"{path} holds no {name!r}")
        content = content[name]
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not named tensors")
    return content


def shape_of(
    stored: Mapping[str, Any], name: str, source: str, rank: int | None = None
) -> tuple[int, ...]:
    """Return the shape of a stored tensor.

    Raises CheckpointError, in which `source` names the file, when it is missing, is not a
    tensor, or does not have `rank` dimensions.
    """
    if name not in stored:
        raise CheckpointError(f"{source} lacks {name}")
    import torch

    if not isinstance(stored[name], torch.Tensor):
        kind = type(stored[name]).__name__
        raise CheckpointError(f"{source}: {name} is a {kind}; it must be a tensor")
    shape = tuple(stored[name].shape)
    if rank is not None and len(shape) != rank:
        raise CheckpointError(
            f"{source}: {name} has the shape {shape}, not one of {rank} dimensions"
        )
    return shape


def shapes_in(path: Path) -> Mapping[str, tuple[int, ...]]:
    """Return the shape of each tensor of a file; CheckpointError where it is broken."""
    if path.suffix != ".safetensors":
        tensors = in_pickle(path)
        return {name: shape_of(tensors, name, str(path)) for name in tensors}
    try:
        with safe_open(str(path), framework="pt") as file:
            names = list(file.keys())
            return {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except SafetensorError as error:
        raise CheckpointError(f"{path} is broken: {error}") from None


def _unpickle(path: Path) -> Any:
    import torch

    mmap = _is_mappable(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError) as error:
        # torch looks for the end of a short broken archive before its beginning (EINVAL).
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        told = f"{path} is broken or holds more than tensors: {first_line(error)}"
        raise CheckpointError(told) from None


def _is_mappable(path: Path) -> bool:
    """Return whether the file holds the tensors as they are in memory.

    Files of torch < 1.6 are not zip archives, and others may have been compressed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except zipfile.BadZipFile:
        return False
    return all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
