"""Published pipelines, loaded strictly: a checkpoint that does not fit raises one error.

diffusers and transformers only warn about tensors that are missing, left over or of
another shape, and go on with random values in their place.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import diffusers
import torch
import transformers
from safetensors import SafetensorError, safe_open

from generators.checkpoints import looks_like_path
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


SafetyPolicy = Literal["checkpoint", "off"]
NAMED_KEYS = 8
"""How many of the keys of one kind an error spells out."""


def published(
    model: str,
    revision: str | None,
    dtype: torch.dtype,
    variant: str | None = None,
    safety_checker: SafetyPolicy = "checkpoint",
) -> Any:
    """The text-to-image pipeline of a Hub repository or local folder, on the CPU.

    Raises CheckpointError when a component's folder, weights or vocabulary are missing, a
    file is truncated, no component has files of `variant`, or tensors are missing, left
    over or of another shape than the component's own config says. Code in a repository is
    never run, and pickled weights are read only by torch's restricted unpickler.
    """
    variant = variant or None
    folder = _folder(model, revision, variant)
    components = components_of(folder)
    if safety_checker == "off":
        components.pop("safety_checker", None)
    parts = modules_of(folder, components, dtype, variant)
    if safety_checker == "off":
        parts["safety_checker"] = None
    return _pipeline(folder, parts)


def modules_of(
    folder: Path,
    components: Mapping[str, type[Any]],
    dtype: torch.dtype,
    variant: str | None = None,
) -> dict[str, Any]:
    """Those of a folder's components that are modules; CheckpointError as `published`."""
    require_files(folder, components)
    variants = {name: variant_of(folder / name, variant) for name in components}
    if variant and not any(variants.values()):
        raise CheckpointError(
            f"checkpoint {folder}: no component has files of the variant {variant!r}; "
            'set variant to "" for the plain files'
        )
    return _modules(folder, components, variants, dtype)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the libraries' progress bars and warnings: ours say the same, and more."""
    libraries = (diffusers.utils.logging, transformers.utils.logging)
    before = [(x, x.get_verbosity(), x.is_progress_bar_enabled()) for x in libraries]
    for library in libraries:
        library.set_verbosity_error()
        library.disable_progress_bar()
    try:
        yield
    finally:
        for library, level, bars in before:
            library.set_verbosity(level)
            if bars:
                library.enable_progress_bar()


def _folder(model: str, revision: str | None, variant: str | None) -> Path:
    """The local folder, downloaded first if `model` is a Hub id."""
    if looks_like_path(model):
        folder = Path(model).expanduser()
        if not (folder / "model_index.json").is_file():
            raise CheckpointError(f"checkpoint {model!r} holds no model_index.json")
        return folder
    try:
        found = diffusers.DiffusionPipeline.download(
            model, revision=revision, variant=variant, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {model!r}: {error}") from error
    return Path(found)


def _modules(
    folder: Path,
    components: Mapping[str, type[Any]],
    variants: Mapping[str, str | None],
    dtype: torch.dtype,
) -> dict[str, Any]:
    """All modules, once every tensor of every one of them fits."""
    parts: dict[str, Any] = {}
    faults: list[str] = []
    for name, kind in components.items():
        if issubclass(kind, torch.nn.Module):
            parts[name], found = _module(kind, folder, name, dtype, variants[name])
            faults += found
    if faults:
        raise CheckpointError(
            f"checkpoint {folder} does not fit:\n  " + "\n  ".join(faults)
        )
    return parts


def _module(
    kind: type[Any], folder: Path, name: str, dtype: torch.dtype, variant: str | None
) -> tuple[Any, list[str]]:
    """A module and what of its tensors does not fit."""
    try:
        module, info = kind.from_pretrained(
            str(folder),
            subfolder=name,
            dtype=dtype,
            variant=variant,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError, KeyError) as error:
        raise CheckpointError(
            f"checkpoint {folder}: component {name!r} cannot be read: {error}"
        ) from error
    return module.eval(), _faults(name, info)


def _faults(name: str, info: Mapping[str, Any]) -> list[str]:
    kinds = {
        "missing_keys": "missing",
        "unexpected_keys": "unexpected",
        "mismatched_keys": "mis-shaped",
    }
    return [
        f"{name}: {word} {_some(sorted(map(_key, info[kind])))}"
        for kind, word in kinds.items()
        if info.get(kind)
    ]


def _key(found: str | tuple[Any, ...]) -> str:
    """A key, and for a mis-shaped one the shape found and the shape wanted."""
    if isinstance(found, str):
        return found
    key, *shapes = found
    return f"{key} ({' instead of '.join(str(tuple(s)) for s in shapes)})"


def _some(keys: list[str]) -> str:
    more = f" and {len(keys) - NAMED_KEYS} more" if len(keys) > NAMED_KEYS else ""
    return ", ".join(keys[:NAMED_KEYS]) + more


def _pipeline(folder: Path, parts: Mapping[str, Any]) -> Any:
    try:
        return diffusers.AutoPipelineForText2Image.from_pretrained(
            str(folder), **parts, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {folder}: {error}") from error
