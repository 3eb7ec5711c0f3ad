"""Weights in files of their own: a whole pipeline, its denoiser alone, adapters of it.

diffusers reads all three. It warns about tensors that are missing, that nothing takes or
that do not fit, or fails with a message that names no layer; here they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import diffusers
import torch
from diffusers.loaders.single_file_utils import SingleFileComponentError
from huggingface_hub import hf_hub_download, snapshot_download
from safetensors import SafetensorError

from plait.generators.checkpoints import first_line, looks_like_path, with_revision
from plait.generators.diffusion.placing import denoiser_of
from plait.generators.diffusion.settings import (
    GGUF,
    LORA_FILE,
    Adapter,
    FurtherFilesSettings,
)
from plait.generators.errors import CheckpointError
from plait.generators.extras import import_extra
from plait.generators.loading.files import read_json, shapes_in
from plait.generators.loading.soundness import is_adapter, refuse_broken
from plait.generators.loading.strict import first_keys

_CONFIGURATION = ["*.json", "*.txt", "*.model", "*.jinja"]
"""Everything of a repository that is not weights."""
_OF_NUNCHAKU = (".wscales", ".smooth_factor")
"""Endings of names of tensors that only Nunchaku's files have."""
_BROKEN = (
    OSError,
    ValueError,
    RuntimeError,
    LookupError,
    TypeError,
    SafetensorError,
    SingleFileComponentError,
)


def _reason(error: Exception) -> str:
    """Return why a file was not read.

    Where tensors are missing, converters of diffusers look for a name in vain, or a
    parameter without a value cannot be moved.
    """
    if isinstance(error, LookupError | NotImplementedError | SingleFileComponentError):
        return "not all its tensors are there under the names of diffusers or the original"
    return first_line(error)


def load_single_file(settings: FurtherFilesSettings, dtype: torch.dtype) -> Any:
    """Return the pipeline whose weights are all in one file, on the CPU.

    Its class, its configurations and tokenizers are those of `base`. CheckpointError where
    a component is not in the file, or not all of it.
    """
    file = Path(settings.model).expanduser()
    refuse_broken(file)
    base = _base_folder(str(settings.base))
    name = read_json(base / "model_index.json").get("_class_name")
    kind: Any = getattr(diffusers, str(name), None)
    if not hasattr(kind, "from_single_file"):
        raise CheckpointError(
            f"base {settings.base!r} is a {name}, which diffusers {diffusers.__version__} "
            "does not read from one file: name the model's folder or Hub id"
        )
    try:
        pipeline = kind.from_single_file(
            str(file), config=str(base), dtype=dtype, local_files_only=True
        )
    except _BROKEN as error:
        raise CheckpointError(
            f"checkpoint {settings.model!r} is not a {name} in one file: "
            f"{_reason(error)}; a file of the denoiser alone is named by denoiser, beside "
            "a model that has the other components"
        ) from error
    for component, module in pipeline.components.items():
        if isinstance(module, torch.nn.Module):
            _refuse_missing(module.eval(), f"{file}: {component}")
    return pipeline


def load_denoiser(kind: Any, file: str, config: Path, dtype: torch.dtype) -> Any:
    """Return a denoiser of class `kind` from one file, by the configuration in `config`.

    Weights of a GGUF file stay quantised, and are restored to `dtype` layer by layer where
    they are used. CheckpointError where the file does not fit the configuration.
    """
    path = Path(file).expanduser()
    refuse_broken(path)
    if not hasattr(kind, "from_single_file"):
        raise CheckpointError(
            f"denoiser {file!r}: diffusers {diffusers.__version__} does not read a "
            f"{kind.__name__} from one file"
        )
    if path.suffix != GGUF and any(n.endswith(_OF_NUNCHAKU) for n in shapes_in(path)):
        raise CheckpointError(
            f"denoiser {file!r} is quantised for Nunchaku, which is not run; name a "
            "file of plain weights or of GGUF"
        )
    further: dict[str, Any] = {}
    if path.suffix == GGUF:
        import_extra("gguf", f"denoiser {file!r}")
        further["quantization_config"] = diffusers.GGUFQuantizationConfig(
            compute_dtype=dtype
        )
    try:
        module = kind.from_single_file(
            str(path), config=str(config), dtype=dtype, local_files_only=True, **further
        )
    except _BROKEN as error:
        raise CheckpointError(
            f"denoiser {file!r} does not fit {kind.__name__} of {config.parent}: "
            f"{_reason(error)}"
        ) from error
    _refuse_missing(module, str(path))
    return module.eval()


def _base_folder(base: str) -> Path:
    if looks_like_path(base):
        return Path(base).expanduser()
    model, revision = with_revision(base)
    try:
        folder = snapshot_download(model, revision=revision, allow_patterns=_CONFIGURATION)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"base {base!r}: {first_line(error)}") from error
    return Path(folder)


def _refuse_missing(module: torch.nn.Module, what: str) -> None:
    """Raise CheckpointError for parameters that diffusers left without a value."""
    missing: list[str] = []
    for name, value in module.named_parameters():
        if value.is_meta:
            missing.append(name)
    if missing:
        raise CheckpointError(f"{what} does not fit: missing {first_keys(sorted(missing))}")


def add_adapters(pipeline: Any, adapters: tuple[Adapter, ...], fuse: bool) -> None:
    """Add adapters (LoRA) to the pipeline's modules, each with its weight.

    With `fuse`, their products are added to the weights, which costs nothing while
    drawing; otherwise they are computed beside each layer. CheckpointError where a layer
    is not in the model or of another shape, and where the pipeline takes none.
    """
    if not adapters:
        return
    import_extra("peft", "loras")
    kind = type(pipeline)
    if not hasattr(pipeline, "load_lora_weights"):
        raise CheckpointError(f"loras: {kind.__name__} takes no adapters")
    names = []
    for position, adapter in enumerate(adapters):
        name = f"lora{position}"
        _add_adapter(pipeline, adapter, name)
        names.append(name)
    pipeline.set_adapters(names, [adapter.weight for adapter in adapters])
    if fuse:
        pipeline.fuse_lora(adapter_names=names)
        pipeline.unload_lora_weights()


def _add_adapter(pipeline: Any, adapter: Adapter, name: str) -> None:
    path = _adapter_file(adapter)
    refuse_broken(path)
    if not is_adapter(path):
        raise CheckpointError(f"lora {adapter.model!r}: {path.name} holds no LoRA")
    place = {"weight_name": path.name, "local_files_only": True}
    try:
        found = pipeline.lora_state_dict(str(path.parent), **place)
        tensors = found[0] if isinstance(found, tuple) else found
        if problems := [*_misfits(pipeline, tensors)]:
            raise CheckpointError(
                f"lora {adapter.model!r} does not fit {type(pipeline).__name__}: "
                f"{first_keys(problems)}"
            )
        pipeline.load_lora_weights(str(path.parent), adapter_name=name, **place)
    except _BROKEN as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"lora {adapter.model!r} does not fit {type(pipeline).__name__}: "
            f"{_reason(error)}"
        ) from error
    # diffusers only warns of layers that it has no place for.
    stored = sum(_IN.search(key) is not None for key in tensors)
    taken = _count_layers_with(pipeline, name)
    if taken < stored:
        raise CheckpointError(
            f"lora {adapter.model!r}: {type(pipeline).__name__} has {taken} of the "
            f"{stored} layers that it changes"
        )


def _adapter_file(adapter: Adapter) -> Path:
    """Return the file of an adapter, downloaded first if `model` is a Hub id."""
    if looks_like_path(adapter.model):
        return adapter.path()
    model, revision = with_revision(adapter.model)
    try:
        name = adapter.file or LORA_FILE
        return Path(hf_hub_download(model, name, revision=revision))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"lora {adapter.model!r}: {first_line(error)}") from error


_IN = re.compile(r"\.(?:lora_A|lora\.down|lora_down)\.(?:\w+\.)?weight$")
_OUT = re.compile(r"\.(?:lora_B|lora\.up|lora_up)\.(?:\w+\.)?weight$")
"""The two factors of a layer's change, by peft's name and by the older ones."""


def _misfits(pipeline: Any, tensors: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """Return what of an adapter does not fit the denoiser: names, and their shapes."""
    denoiser = denoiser_of(pipeline)
    prefix = "transformer." if hasattr(pipeline, "transformer") else "unet."
    shapes = {name: _shape(module) for name, module in denoiser.named_modules()}
    for key in sorted(tensors):
        for side, pattern in ((1, _IN), (0, _OUT)):
            found = pattern.search(key)
            if found is None or not key.startswith(prefix):
                continue
            layer = key[len(prefix) : found.start()]
            shape = shapes.get(layer)
            # A LoRA's first factor reads what the layer reads, its second writes as much.
            stored = tensors[key].shape[side]
            if shape is None:
                yield f"{layer}, which the model lacks"
            elif stored != shape[side]:
                what = "inputs" if side else "outputs"
                yield f"{layer}: {stored} {what} instead of {shape[side]}"


def _shape(module: torch.nn.Module) -> tuple[int, int] | None:
    """Return outputs and inputs of a linear layer or a convolution."""
    # A layer that an earlier adapter changed stands inside peft's.
    inner = getattr(module, "base_layer", module)
    if isinstance(inner, torch.nn.Linear):
        return inner.out_features, inner.in_features
    if isinstance(inner, torch.nn.Conv2d):
        return inner.out_channels, inner.in_channels
    return None


def _count_layers_with(pipeline: Any, adapter: str) -> int:
    """Return how many layers of all modules of the pipeline have the adapter."""
    count = 0
    for component in pipeline.components.values():
        if isinstance(component, torch.nn.Module):
            for module in component.modules():
                count += adapter in getattr(module, "lora_A", ())
    return count
