"""Published pipelines, loaded strictly: a checkpoint that does not fit raises one error.

diffusers and transformers only warn about tensors that are missing, unexpected or of the
wrong shape, and continue with random values in their place.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import diffusers
import torch
import transformers
from safetensors import SafetensorError, safe_open

from generators.checkpoints import looks_like_path
from generators.errors import CheckpointError
from generators.loading.files import read_json
from generators.loading.strict import listed


def components_of(folder: Path) -> dict[str, type[Any]]:
    """The classes that `model_index.json` names; components that are null are left out."""
    index = read_json(folder / "model_index.json")
    entries = {k: v for k, v in index.items() if isinstance(v, list) and len(v) == 2}
    return {k: _class(k, *v) for k, v in entries.items() if v[0] is not None}


def _class(component: str, library: str, name: str) -> type[Any]:
    """The class of a component; only classes of diffusers and transformers are allowed."""
    if library in ("diffusers", "transformers"):
        home: Any = importlib.import_module(library)
    else:
        home = getattr(diffusers.pipelines, library, None)
    kind = getattr(home, name, None)
    if not isinstance(kind, type):
        raise CheckpointError(
            f"component {component!r} is a {library}.{name}, which neither diffusers "
            f"{diffusers.__version__} nor the installed transformers has"
        )
    return kind


def require_files(folder: Path, components: Mapping[str, type[Any]]) -> None:
    """Raise CheckpointError for the first file that is missing or truncated."""
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
                f"{path} is truncated or not a safetensors file ({size} bytes): {error}"
            ) from error


def _require_vocabulary(folder: Path, kind: type[Any]) -> None:
    """A tokenizer without a vocabulary would load, and read every word as unknown."""
    names = dict(kind.vocab_files_names)
    single_file = names.pop("tokenizer_file", "tokenizer.json")
    lacking = [n for n in names.values() if not (folder / n).is_file()]
    if lacking and not (folder / single_file).is_file():
        raise CheckpointError(
            f"{folder} holds no vocabulary: neither {single_file} nor {', '.join(lacking)}"
        )


def variant_of(folder: Path, variant: str | None) -> str | None:
    """`variant` where the component has files of it: some ship plain files only."""
    return variant if variant and any(folder.glob(f"*.{variant}*")) else None


SafetyPolicy = Literal["checkpoint", "off"]


def load_published(
    model: str,
    revision: str | None,
    dtype: torch.dtype,
    variant: str | None = None,
    safety_checker: SafetyPolicy = "checkpoint",
) -> Any:
    """The text-to-image pipeline of a Hub repository or local folder, on the CPU.

    Raises CheckpointError when a component's folder, weights or vocabulary are missing, a
    file is truncated, no component has files of `variant`, or tensors are missing,
    unexpected or of another shape than the component's own config says. Code in a
    repository is never run, and pickled weights are read only by torch's restricted
    unpickler.
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
    """The modules among a folder's components; CheckpointError as in `load_published`."""
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
    """Silence the libraries' progress bars and warnings: our errors and notes say more."""
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
        downloaded = diffusers.DiffusionPipeline.download(
            model, revision=revision, variant=variant, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {model!r}: {error}") from error
    return Path(downloaded)


def _modules(
    folder: Path,
    components: Mapping[str, type[Any]],
    variants: Mapping[str, str | None],
    dtype: torch.dtype,
) -> dict[str, Any]:
    """All modules, once every tensor of every one of them fits."""
    parts: dict[str, Any] = {}
    differences: list[str] = []
    for name, kind in components.items():
        if issubclass(kind, torch.nn.Module):
            parts[name], misfits = _module(kind, folder, name, dtype, variants[name])
            differences += misfits
    if differences:
        raise CheckpointError(
            f"checkpoint {folder} does not fit:\n  " + "\n  ".join(differences)
        )
    return parts


def _module(
    kind: type[Any], folder: Path, name: str, dtype: torch.dtype, variant: str | None
) -> tuple[Any, list[str]]:
    """A module, and how its tensors differ from the stored ones."""
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
    return module.eval(), _differences(name, info)


def _differences(name: str, info: Mapping[str, Any]) -> list[str]:
    kinds = {
        "missing_keys": "missing",
        "unexpected_keys": "unexpected",
        "mismatched_keys": "mis-shaped",
    }
    return [
        f"{name}: {word} {listed(sorted(map(_key, info[kind])))}"
        for kind, word in kinds.items()
        if info.get(kind)
    ]


def _key(entry: str | tuple[Any, ...]) -> str:
    """A key; for a mis-shaped one also the stored and the expected shape."""
    if isinstance(entry, str):
        return entry
    key, *shapes = entry
    return f"{key} ({' instead of '.join(str(tuple(s)) for s in shapes)})"


FURTHER_PIPELINES = (
    "BriaFiboPipeline",
    "BriaPipeline",
    "DreamLitePipeline",
    "ErnieImagePipeline",
    "HunyuanImagePipeline",
    "Kandinsky5T2IPipeline",
    "LongCatImagePipeline",
    "OmniGenPipeline",
    "SanaSprintPipeline",
)
"""Classes that draw from prompts alone and that AutoPipelineForText2Image does not list
(diffusers 0.42.1)."""


def _pipeline(folder: Path, parts: Mapping[str, Any]) -> Any:
    name = read_json(folder / "model_index.json").get("_class_name")
    kind = diffusers.AutoPipelineForText2Image
    if name in FURTHER_PIPELINES:
        kind = getattr(diffusers, name)
    try:
        return kind.from_pretrained(str(folder), **parts, local_files_only=True)
    except (OSError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {folder}: {error}") from error
