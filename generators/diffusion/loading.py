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

from plait.generators.checkpoints import looks_like_path
from plait.generators.diffusion.designs import DESIGNS
from plait.generators.diffusion.files import load_denoiser, load_single_file
from plait.generators.diffusion.settings import DiffusionSettings, FurtherFilesSettings
from plait.generators.errors import CheckpointError
from plait.generators.extras import import_extra
from plait.generators.loading.files import read_json
from plait.generators.loading.soundness import (
    choose_variant,
    files_of_weights,
    refuse_adapter,
    refuse_broken_texts,
    refuse_broken_weights,
    refuse_unless_folder,
    refuse_without_vocabulary,
)
from plait.generators.loading.strict import first_keys, refuse_lost_words

Kinds = Mapping[str, type[Any]]
"""Component -> its class."""


def load_published(settings: DiffusionSettings, dtype: torch.dtype) -> Any:
    """Return the text-to-image pipeline of a Hub repository or local folder, on the CPU.

    Raises CheckpointError when a component's folder, weights or vocabulary are missing, a
    file is truncated, no component has files of the variant, or tensors are missing,
    unexpected or of another shape than the component's own config says. Code in a
    repository is never run, and pickled weights are read only by torch's restricted
    unpickler. `taken_variants` of the pipeline are the variants that components were read
    from although none was asked for.
    """
    further = settings if isinstance(settings, FurtherFilesSettings) else None
    if further is not None and further.is_one_file:
        return load_single_file(further, dtype)
    variant = settings.variant
    folder = folder_of(settings.model, settings.revision, variant or None)
    index = read_json(folder / "model_index.json")
    if (name := index.get("_class_name")) in WRITERS:
        presets = filter(None, [design.preset for design in DESIGNS.values()])
        raise CheckpointError(
            f"checkpoint {settings.model!r} is a {name}, which writes text and draws no "
            f"images; valid are {', '.join(presets)} and other text-to-image models"
        )
    absent: dict[str, Any] = dict.fromkeys(settings.elsewhere)
    is_unchecked = settings.safety_checker == "off"
    if is_unchecked:
        absent["safety_checker"] = None
    kinds = _kinds_of(index)
    for component in absent:
        kinds.pop(component, None)
    given: dict[str, Any] = {}
    if further is not None and further.denoiser is not None:
        given = _denoiser_from_file(further.denoiser, folder, kinds, dtype)
        for component in given:
            del kinds[component]
    parts = modules_of(folder, kinds, dtype, variant) | absent | given
    pipeline = _pipeline(folder, name, parts, is_unchecked)
    for component, part in pipeline.components.items():
        tokenizer = getattr(part, "tokenizer", part)
        if isinstance(tokenizer, transformers.PreTrainedTokenizerBase):
            refuse_lost_words(tokenizer, str(folder / component))
    pipeline.quantised = quantised_parts(folder, kinds)
    pipeline.taken_variants = {}
    if variant is None:
        for component, taken in variants_of(folder, kinds, variant).items():
            if taken:
                pipeline.taken_variants[component] = taken
    return pipeline


def _kinds_of(index: Mapping[str, Any]) -> dict[str, type[Any]]:
    """Return the class of each component that a model_index.json names.

    An entry of a component is a pair of a library and a class, both null for a component
    that the pipeline goes without; all other entries are arguments of the pipeline.
    """
    kinds: dict[str, type[Any]] = {}
    for component, entry in index.items():
        if isinstance(entry, list) and len(entry) == 2 and entry[0] is not None:
            kinds[component] = _class(component, *entry)
    return kinds


def _denoiser_from_file(
    file: str, folder: Path, kinds: Kinds, dtype: torch.dtype
) -> dict[str, Any]:
    """Return the transformer or UNet that takes the place of the folder's, by its name."""
    for name in ("transformer", "unet"):
        if name in kinds:
            return {name: load_denoiser(kinds[name], file, folder / name, dtype)}
    raise CheckpointError(
        f"denoiser {file!r}: {folder} has neither a transformer nor a unet"
    )


def folder_of(model: str, revision: str | None, variant: str | None) -> Path:
    """Return the local folder, downloaded first if `model` is a Hub id."""
    if looks_like_path(model):
        folder = Path(model).expanduser()
        refuse_unless_folder(model, folder, "model_index.json")
        refuse_adapter(folder)
        return folder
    try:
        downloaded = diffusers.DiffusionPipeline.download(
            model, revision=revision, variant=variant, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {model!r}: {error}") from error
    return Path(downloaded)


_RENAMED = {"CLIPFeatureExtractor": "CLIPImageProcessor"}
"""Classes that diffusers 0.42.1 maps, too (utils/deprecation_utils.py): transformers 5
lacks those that checkpoints of 2022 name."""


def _class(component: str, library: str, name: str) -> type[Any]:
    """Return the class of a component; only those of the two libraries are allowed."""
    libraries = {"diffusers": diffusers, "transformers": transformers}
    home: Any = libraries.get(library) or getattr(diffusers.pipelines, library, None)
    kind = getattr(home, _RENAMED.get(name, name), None)
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
    variants = variants_of(folder, kinds, variant)
    _require_files(folder, kinds, variants)
    quantised = quantised_parts(folder, kinds)
    for name, method in quantised.items():
        _refuse_unrunnable(f"component {name!r} of {folder}", method)
    parts: dict[str, Any] = {}
    differences: list[str] = []
    for name, kind in kinds.items():
        if issubclass(kind, torch.nn.Module):
            stored = variants[name] or None
            parts[name], misfits = _module(
                kind, folder, name, dtype, stored, quantised=name in quantised
            )
            differences += misfits
    if differences:
        raise CheckpointError(
            f"checkpoint {folder} does not fit:\n  " + "\n  ".join(differences)
        )
    return parts


def variants_of(folder: Path, kinds: Kinds, variant: str | None) -> dict[str, str]:
    """Return which files of weights each component is read from, "" for the plain ones.

    Where none was asked for (None), that is the only variant of a component without plain
    files. CheckpointError for component folders that are missing, and for a variant that
    no component has.
    """
    if missing := [name for name in kinds if not (folder / name).is_dir()]:
        raise CheckpointError(
            f"checkpoint {folder} lacks the component folders {', '.join(missing)}, "
            "which its model_index.json names"
        )
    modules = [name for name, kind in kinds.items() if issubclass(kind, torch.nn.Module)]
    variants: dict[str, str] = {}
    for name in modules:
        if variant and any((folder / name).glob(f"*.{variant}*")):
            variants[name] = variant
    if variant and not variants:
        raise CheckpointError(
            f"checkpoint {folder}: no component has files of the variant {variant!r}; "
            'set variant to "" for the plain files'
        )
    for name in modules:
        if name not in variants:
            # Some components have plain files only.
            variants[name] = "" if variant == "" else choose_variant(folder / name)
    return variants


def _require_files(folder: Path, kinds: Kinds, variants: Mapping[str, str]) -> None:
    """Raise CheckpointError for files that are missing or broken, and for adapters.

    A tokenizer without a vocabulary would load, and read every word as unknown.
    """
    for name, kind in kinds.items():
        refuse_adapter(folder / name)
        refuse_broken_texts(folder / name)
        if name in variants:
            refuse_broken_weights(folder / name, variants[name])
        if issubclass(kind, transformers.PreTrainedTokenizerBase):
            refuse_without_vocabulary(folder / name, kind)


_OF_VARIANTS = (
    '; if the checkpoint has files of one variant alone, name it, as in variant = "fp16"'
)


def quantised_parts(folder: Path, kinds: Kinds) -> dict[str, str]:
    """Return the components whose weights are quantised, and by which program."""
    found: dict[str, str] = {}
    for name, kind in kinds.items():
        file = folder / name / "config.json"
        if issubclass(kind, torch.nn.Module) and file.is_file():
            about = read_json(file).get("quantization_config") or {}
            if method := about.get("quant_method"):
                found[name] = str(method)
    return found


_UNREADABLE = (OSError, ValueError, RuntimeError, SafetensorError, KeyError, ImportError)
"""What reading a component raises; ImportError where its quantisation needs a package."""
_BITSANDBYTES = "bitsandbytes"
_NUNCHAKU = ("nunchaku", "svdquant")


def _refuse_unrunnable(what: str, method: str) -> None:
    """Raise UsageError or CheckpointError for weights that cannot be used here."""
    others = "name the plain checkpoint, or one whose denoiser is a file of GGUF"
    if method in _NUNCHAKU:
        raise CheckpointError(
            f"{what} is quantised for Nunchaku, which is not run; {others}"
        )
    if method == _BITSANDBYTES:
        import_extra(_BITSANDBYTES, what)
        if not torch.cuda.is_available():
            raise CheckpointError(
                f"{what} is quantised by bitsandbytes, whose weights diffusers loads onto "
                f"a GPU, and there is none; {others}"
            )


def _module(
    kind: type[Any],
    folder: Path,
    name: str,
    dtype: torch.dtype,
    variant: str | None,
    *,
    quantised: bool = False,
) -> tuple[Any, list[str]]:
    try:
        module, info = kind.from_pretrained(
            str(folder),
            subfolder=name,
            dtype=dtype,
            variant=variant,
            local_files_only=True,
            # Packed weights have another shape; the quantiser compares them itself.
            ignore_mismatched_sizes=not quantised,
            output_loading_info=True,
        )
    except _UNREADABLE as error:
        empty = not files_of_weights(folder / name, variant or "")
        raise CheckpointError(
            f"checkpoint {folder}: component {name!r} cannot be read: "
            f"{str(error).rstrip('.')}" + (_OF_VARIANTS if empty else "")
        ) from error
    words = {"missing": "missing", "unexpected": "unexpected", "mismatched": "mis-shaped"}
    problems: list[str] = []
    for key, word in words.items():
        if keys := info.get(f"{key}_keys"):
            problems.append(f"{name}: {word} {first_keys(sorted(map(_key, keys)))}")
    return module.eval(), problems


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
