"""What a folder with a diffusers pipeline must hold before any of it is loaded."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from safetensors import SafetensorError, safe_open

from generators.errors import CheckpointError


def components_of(folder: Path) -> dict[str, type[Any]]:
    """The classes that `model_index.json` names, without components left out."""
    try:
        index = json.loads((folder / "model_index.json").read_text())
    except ValueError as error:
        raise CheckpointError(
            f"{folder / 'model_index.json'} is no JSON: {error}"
        ) from None
    entries = {k: v for k, v in index.items() if isinstance(v, list) and len(v) == 2}
    return {k: _class(k, *v) for k, v in entries.items() if v[0] is not None}


def _class(component: str, library: str, name: str) -> type[Any]:
    """The class of a component; only those of diffusers and transformers are allowed."""
    if library in ("diffusers", "transformers"):
        home: Any = importlib.import_module(library)
    else:
        home = getattr(diffusers.pipelines, library, None)
    found = getattr(home, name, None)
    if not isinstance(found, type):
        raise CheckpointError(
            f"component {component!r} is a {library}.{name}, which neither diffusers "
            f"{diffusers.__version__} nor the installed transformers has"
        )
    return found


def require_files(folder: Path, components: Mapping[str, type[Any]]) -> None:
    """Raise CheckpointError for the first thing that is missing or cut short."""
    missing = [name for name in components if not (folder / name).is_dir()]
    if missing:
        raise CheckpointError(
            f"checkpoint {folder} lacks the component folders {', '.join(missing)}, "
            "which its model_index.json names"
        )
    for name, kind in components.items():
        if issubclass(kind, torch.nn.Module):
            _require_weights(folder / name)
        elif issubclass(kind, transformers.PreTrainedTokenizerBase):
            _require_vocabulary(folder / name, kind)


def _require_weights(folder: Path) -> None:
    if not {".safetensors", ".bin"} & {path.suffix for path in folder.iterdir()}:
        raise CheckpointError(f"{folder} holds no weights (*.safetensors, *.bin)")
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            size = path.stat().st_size
            raise CheckpointError(
                f"{path} is truncated or no safetensors file ({size} bytes): {error}"
            ) from error


def _require_vocabulary(folder: Path, kind: type[Any]) -> None:
    """Tokenizers that find no vocabulary load without one, and read every word alike."""
    names = dict(kind.vocab_files_names)
    whole = names.pop("tokenizer_file", "tokenizer.json")
    lacking = [n for n in names.values() if not (folder / n).is_file()]
    if lacking and not (folder / whole).is_file():
        raise CheckpointError(
            f"{folder} holds no vocabulary: neither {whole} nor {', '.join(lacking)}"
        )


def variant_of(folder: Path, variant: str | None) -> str | None:
    """`variant` where the component has files of it: some ship plain files only."""
    return variant if variant and any(folder.glob(f"*.{variant}*")) else None
