"""Published pipelines, loaded strictly: a checkpoint that does not fit raises one error.

diffusers and transformers only warn about tensors that are missing, unexpected or of the
wrong shape, and continue with random values in their place.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from safetensors import SafetensorError

from generators.checkpoints import looks_like_path
from generators.diffusion.designs import DESIGNS
from generators.diffusion.settings import DiffusionSettings
from generators.errors import CheckpointError
from generators.loading.files import in_safetensors, read_json
from generators.loading.strict import listed

Kinds = Mapping[str, type[Any]]
"""Component -> its class."""


def load_published(settings: DiffusionSettings, dtype: torch.dtype) -> Any:
    """Return the text-to-image pipeline of a Hub repository or local folder, on the CPU.

    Raises CheckpointError when a component's folder, weights or vocabulary are missing, a
    file is truncated, no component has files of the variant, or tensors are missing,
    unexpected or of another shape than the component's own config says. Code in a
    repository is never run, and pickled weights are read only by torch's restricted
    unpickler.
    """
    variant = settings.variant or None
    folder = folder_of(settings.model, settings.revision, variant)
    index = read_json(folder / "model_index.json")
    if (name := index.get("_class_name")) in WRITERS:
        named = ", ".join(d.preset for d in DESIGNS.values() if d.preset is not None)
        raise CheckpointError(
            f"checkpoint {settings.model!r} is a {name}, which writes text and draws no "
            f"images; valid are {named} and other text-to-image models"
        )
    entries = {k: v for k, v in index.items() if isinstance(v, list) and len(v) == 2}
    kinds = {k: _class(k, *v) for k, v in entries.items() if v[0] is not None}
    unchecked = {"safety_checker": None} if settings.safety_checker == "off" else {}
    absent = unchecked | dict.fromkeys(settings.elsewhere)
    kinds = {k: kind for k, kind in kinds.items() if k not in absent}
    parts = modules_of(folder, kinds, dtype, variant) | absent
    return _pipeline(folder, name, parts, bool(unchecked))


def folder_of(model: str, revision: str | None, variant: str | None) -> Path:
    """Return the local folder, downloaded first if `model` is a Hub id."""
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


def _class(component: str, library: str, name: str) -> type[Any]:
    """Return the class of a component; only those of the two libraries are allowed."""
    libraries = {"diffusers": diffusers, "transformers": transformers}
    home: Any = libraries.get(library) or getattr(diffusers.pipelines, library, None)
    kind = getattr(home, name, None)
    if not isinstance(kind, type):
        raise CheckpointError(
            f"component {component!r} is a {library}.{name}, which neither diffusers "
            f"{diffusers.__version__} nor the installed transformers has"
        )
    return kind


_CHECKS = "enable_safety_checker"
"""Argument of pipelines whose checker is a package of its own."""
FURTHER_PIPELINES = (
    "BriaFiboPipeline",
    "BriaPipeline",
    "Cosmos3OmniPipeline",
    "DreamLitePipeline",
    "ErnieImagePipeline",
    "HunyuanImagePipeline",
    "Kandinsky5T2IPipeline",
    "LongCatImagePipeline",
    "OmniGenPipeline",
    "QwenImageEditPlusPipeline",
    "SanaSprintPipeline",
    "StableDiffusionInstructPix2PixPipeline",
)
"""Classes that draw from prompts, or from prompts and images, and that
AutoPipelineForText2Image does not list (diffusers 0.42.1)."""
WRITERS = ("DiffusionGemmaPipeline", "LLaDA2Pipeline")
"""Classes that write text by diffusion and draw nothing."""


def _pipeline(
    folder: Path, name: str | None, parts: Mapping[str, Any], unchecked: bool
) -> Any:
    kind = diffusers.AutoPipelineForText2Image
    if name in FURTHER_PIPELINES:
        kind = getattr(diffusers, name)
    if unchecked and _CHECKS in inspect.signature(kind).parameters:
        parts = {**parts, _CHECKS: False}
    try:
        return kind.from_pretrained(str(folder), **parts, local_files_only=True)
    except ImportError as error:
        raise CheckpointError(
            f"checkpoint {folder} is used with a safety checker that is not installed; "
            f'install it or set safety_checker = "off": {error}'
        ) from error
    except (OSError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {folder}: {error}") from error


def modules_of(
    folder: Path, kinds: Kinds, dtype: torch.dtype, variant: str | None = None
) -> dict[str, Any]:
    """Return the modules of a folder, once every tensor of every one of them fits.

    Raises CheckpointError as `load_published` does.
    """
    _require_files(folder, kinds)
    # Some components have plain files only.
    variants = {n for n in kinds if variant and any((folder / n).glob(f"*.{variant}*"))}
    if variant and not variants:
        raise CheckpointError(
            f"checkpoint {folder}: no component has files of the variant {variant!r}; "
            'set variant to "" for the plain files'
        )
    parts: dict[str, Any] = {}
    differences: list[str] = []
    for name, kind in kinds.items():
        if issubclass(kind, torch.nn.Module):
            stored = variant if name in variants else None
            parts[name], misfits = _module(kind, folder, name, dtype, stored)
            differences += misfits
    if differences:
        raise CheckpointError(
            f"checkpoint {folder} does not fit:\n  " + "\n  ".join(differences)
        )
    return parts


def _require_files(folder: Path, kinds: Kinds) -> None:
    """Raise CheckpointError for folders that are missing, and files that are truncated.

    A tokenizer without a vocabulary would load, and read every word as unknown.
    """
    if missing := [name for name in kinds if not (folder / name).is_dir()]:
        raise CheckpointError(
            f"checkpoint {folder} lacks the component folders {', '.join(missing)}, "
            "which its model_index.json names"
        )
    for name, kind in kinds.items():
        for path in sorted((folder / name).glob("*.safetensors")):
            list(in_safetensors(path, lambda tensor: False))
        if not issubclass(kind, transformers.PreTrainedTokenizerBase):
            continue
        names = dict(kind.vocab_files_names)
        whole = names.pop("tokenizer_file", "tokenizer.json")
        complete = all((folder / name / file).is_file() for file in names.values())
        if not complete and not (folder / name / whole).is_file():
            raise CheckpointError(
                f"{folder / name} holds no vocabulary: neither {whole} nor "
                f"{', '.join(names.values())}"
            )


def _module(
    kind: type[Any], folder: Path, name: str, dtype: torch.dtype, variant: str | None
) -> tuple[Any, list[str]]:
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
    words = {"missing": "missing", "unexpected": "unexpected", "mismatched": "mis-shaped"}
    found = {word: info.get(f"{key}_keys") for key, word in words.items()}
    return module.eval(), [
        f"{name}: {word} {listed(sorted(map(_key, keys)))}"
        for word, keys in found.items()
        if keys
    ]


def _key(entry: str | tuple[Any, ...]) -> str:
    """Return a key; for a mis-shaped one also the stored and the expected shape."""
    if isinstance(entry, str):
        return entry
    key, *shapes = entry
    return f"{key} ({' instead of '.join(str(tuple(s)) for s in shapes)})"


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
