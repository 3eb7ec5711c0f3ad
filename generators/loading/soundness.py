"""What a checkpoint needs before it is loaded: whole files, a vocabulary and no adapter.

The libraries that load one say little here, or nothing: a tokenizer without its files reads
every text as empty, and an adapter is applied only where a further package is installed.
Headers are read, and where an archive ends; never the tensors.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from plait.generators.errors import CheckpointError
from plait.generators.files import LFS_POINTER

_GGUF = b"GGUF"
_ZIP = b"PK"
_MAY_BE_EMPTY = frozenset({".txt", ".jinja"})
"""No merges, or a template without a letter, are possible."""
ADAPTER_CONFIG = "adapter_config.json"
_ADAPTERS = (
    ADAPTER_CONFIG,
    "adapter_model.safetensors",
    "adapter_model.bin",
    "pytorch_lora_weights.safetensors",
    "pytorch_lora_weights.bin",
)
"""Files of adapters as peft and diffusers save them."""
_ADAPTED = re.compile(
    r"(?:^|[._])(?:lora(?:_?[AB]|_up|_down|_mid|\.up|\.down)?|lokr_w\d\w*|hada_w\d\w*)(?:\.|$)"
)
"""In the names of tensors of LoRA, LoKr and LoHa, by peft, diffusers and kohya."""
_WEIGHTS = frozenset({".safetensors", ".ckpt", ".pt", ".pth", ".bin", ".gguf"})
_STEMS = {
    ".safetensors": ("model", "diffusion_pytorch_model"),
    ".bin": ("pytorch_model", "diffusion_pytorch_model"),
}
"""Names of the weights as transformers and diffusers save them, in the order of reading."""
_VARIANT = re.compile(
    r"(?:diffusion_pytorch_model|pytorch_model|model)(?:\.(?P<of_file>\w+))?"
    r"(?:-\d+-of-\d+(?:\.(?P<of_shard>\w+))?)?\.(?:safetensors|bin)"
)
_PROBE = "a red house"
"""Every vocabulary has its letters."""
VOCABULARY = "its vocabulary (tokenizer.json, vocab.json with merges.txt, tokenizer.model)"


def refuse_broken(path: Path) -> None:
    """Raise CheckpointError for a file that is empty, a Git LFS pointer or cut off."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        start = file.read(len(LFS_POINTER))
    if start == LFS_POINTER:
        raise CheckpointError(
            f"{path} is a Git LFS pointer and not the file itself: run git lfs pull in its "
            "repository, or download it again"
        )
    if not start and path.suffix not in _MAY_BE_EMPTY:
        raise CheckpointError(f"{path} is empty: download it again")
    try:
        if path.suffix == ".safetensors":
            with safe_open(str(path), framework="numpy"):
                pass
        elif start.startswith(_ZIP):
            zipfile.ZipFile(path).close()
    except (SafetensorError, zipfile.BadZipFile) as error:
        told = f"{path} is broken: {error}; download it again"
        raise CheckpointError(told) from None


def refuse_adapter(folder: Path) -> None:
    """Raise CheckpointError for a folder that holds an adapter, with its base or without.

    Its weights change a model's. transformers would apply it where peft is installed, and
    leave it out elsewhere, and the folder would name two models.
    """
    there = [name for name in _ADAPTERS if (folder / name).is_file()]
    if there:
        alone = not any((folder / n).is_file() for n in ("config.json", "model_index.json"))
        elsewhere = "" if alone else ", or move the adapter out to run the model without it"
        raise CheckpointError(
            f"{folder} holds an adapter ({', '.join(there)}){_base_of(folder)}, which is "
            f"not applied: {_MERGE}{elsewhere}"
        )


_MERGE = (
    "merge it into its base model, save the result and name that folder (peft: "
    "merge_and_unload; diffusers: load_lora_weights, fuse_lora; then save_pretrained)"
)


def _base_of(folder: Path) -> str:
    try:
        about = json.loads((folder / ADAPTER_CONFIG).read_text())
    except (OSError, ValueError):
        return ""
    base = about.get("base_model_name_or_path") if isinstance(about, dict) else None
    return f" of {base}" if base else ""


def refuse_unusable(path: Path) -> None:
    """Raise CheckpointError for weights that nothing here reads, in whatever stage.

    These are adapters, files of GGUF, and a broken file that is a checkpoint of its own.
    """
    if path.is_dir():
        refuse_adapter(path)
        return
    refuse_broken(path)
    if told := _unusable(path):
        raise CheckpointError(f"{path} is {told}")


_CONVERT = {
    "model_index.json": (
        "convert it to a folder with diffusers (from_single_file of the model's pipeline "
        "class, such as StableDiffusionPipeline, then save_pretrained) and name that"
    ),
    "config.json": "name the model's folder, as save_pretrained writes it, or its Hub id",
}
"""What to do with weights in one file, by the file that a folder is known by."""


def refuse_unless_folder(model: str, path: Path, index: str) -> None:
    """Raise CheckpointError for a path that is no folder with the file `index`.

    That is `model_index.json` or `config.json`. The error says what is there instead, such
    as an adapter or weights in one file, and what to do.
    """
    if (path / index).is_file():
        return
    if not path.exists():
        raise CheckpointError(f"checkpoint {model!r}: no such folder")
    refuse_unusable(path)
    if path.is_file():
        told = f"checkpoint {model!r} is one file and no folder: {_CONVERT[index]}"
        raise CheckpointError(told)
    files = [file for file in sorted(path.iterdir()) if file.suffix in _WEIGHTS]
    if len(files) == 1:
        refuse_unusable(files[0])
    names = ", ".join(file.name for file in files)
    found = f"; it holds {names}: {_CONVERT[index]}" if files else ""
    raise CheckpointError(f"checkpoint {model!r} holds no {index}{found}")


def _unusable(path: Path) -> str | None:
    with path.open("rb") as file:
        is_gguf = file.read(len(_GGUF)) == _GGUF
    if is_gguf:
        return (
            "a GGUF file, which llama.cpp reads and plait does not: name the folder or Hub "
            "id that it was made from, or serve it and name its endpoint"
        )
    if is_adapter(path):
        return f"an adapter, which changes the weights of a base model: {_MERGE}"
    return None


def is_adapter(path: Path) -> bool:
    """Return whether a file of safetensors holds an adapter (LoRA, LoKr, LoHa)."""
    if path.suffix != ".safetensors":
        return False
    with safe_open(str(path), framework="numpy") as stored:
        return any(_ADAPTED.search(name) for name in stored.keys())  # noqa: SIM118


def files_of_weights(folder: Path, variant: str = "") -> list[Path]:
    """Return the files of weights that `from_pretrained` would read, if there are any.

    `variant` is "" for the plain ones. CheckpointError names a shard that an index has and
    the folder lacks.
    """
    dotted = f".{variant}" if variant else ""
    for suffix, stems in _STEMS.items():
        for stem in stems:
            whole = folder / f"{stem}{dotted}{suffix}"
            if whole.is_file():
                return [whole]
            index = folder / f"{stem}{suffix}.index{dotted}.json"
            if index.is_file():
                return list(_shards(index))
    return []


def _shards(index: Path) -> Iterator[Path]:
    refuse_broken(index)
    try:
        places = set(json.loads(index.read_text())["weight_map"].values())
        shards = [index.parent / str(place) for place in sorted(places)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"{index} is not an index of weights: {error}"
        raise CheckpointError(told) from None
    for shard in shards:
        if not shard.is_file():
            raise CheckpointError(
                f"{shard} is missing, which {index.name} names: download it"
            )
        yield shard


def choose_variant(folder: Path) -> str:
    """Return the variant of a folder's weights that is read where none was asked for.

    "" for plain files; the only variant, such as `fp16`, where there are no others.
    CheckpointError where there are several.
    """
    if files_of_weights(folder):
        return ""
    found = set[str]()
    for path in folder.iterdir():
        match = _VARIANT.fullmatch(path.name)
        variant = match and (match["of_file"] or match["of_shard"])
        if variant:
            found.add(variant)
    variants = sorted(found)
    if len(variants) > 1:
        raise CheckpointError(
            f"{folder} holds weights in the variants {', '.join(variants)} and no plain "
            "ones: set variant, where the model has that setting, or keep one of them"
        )
    return variants[0] if variants else ""


_TEXTS = re.compile(
    r"\w*(?:config|token|vocab|merges|template|index)\w*\.(?:json|txt|jinja)"
    r"|\w.*\.(?:model|tiktoken)"
)
"""Names of configurations and vocabularies. Logs of a training, say, may be anything."""


def refuse_broken_texts(folder: Path) -> None:
    """Raise CheckpointError for a broken configuration or vocabulary in a folder."""
    for path in sorted(folder.iterdir()):
        if _TEXTS.fullmatch(path.name):
            refuse_broken(path)


def refuse_broken_weights(folder: Path, variant: str = "") -> None:
    """Raise CheckpointError for a broken file of weights, or a shard that is missing."""
    for path in files_of_weights(folder, variant):
        refuse_broken(path)


def refuse_without_vocabulary(folder: Path, kind: Any) -> None:
    """Raise CheckpointError for a folder without the vocabulary of a tokenizer's class."""
    names = dict(kind.vocab_files_names)
    if not names:
        return  # A class that reads bytes has none.
    whole = names.pop("tokenizer_file", "tokenizer.json")
    complete = names and all((folder / file).is_file() for file in names.values())
    if not complete and not (folder / whole).is_file():
        valid = [whole, " with ".join(names.values())] if names else [whole]
        raise CheckpointError(f"{folder} holds no vocabulary: no {' and no '.join(valid)}")


def refuse_unreadable(
    encode: Callable[[str], list[int]],
    source: str,
    decode: Callable[[list[int]], str] | None = None,
) -> None:
    """Raise CheckpointError for a tokenizer that loses plain words.

    One whose files are missing does: it gives no token, or the same one for everything.
    Not every tokenizer that a model needs can `decode`.
    """
    try:
        ids = encode(_PROBE)
        read = None if decode is None else decode(ids)
    except Exception as error:
        # tokenizers raises plain `Exception`, such as for an unknown token it lacks.
        told = f"the tokenizer of {source} cannot read {_PROBE!r}: {error}"
        raise CheckpointError(told) from None
    lost = len(set(ids)) < 2
    if read is not None:
        lost = lost or "".join(read.split()).casefold() != _PROBE.replace(" ", "")
    if lost:
        raise CheckpointError(
            f"the tokenizer of {source} reads {_PROBE!r} as {read or ids!r}: {VOCABULARY} "
            "is missing or not the model's own"
        )
