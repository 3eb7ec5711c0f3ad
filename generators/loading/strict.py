"""Fills a module on its device with stored tensors by a layout, one at a time, strictly."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from plait.generators.checkpoints import first_line, looks_like_path
from plait.generators.errors import CheckpointError
from plait.generators.loading.files import Files
from plait.generators.loading.soundness import (
    ADAPTER_CONFIG,
    VOCABULARY,
    choose_variant,
    refuse_adapter,
    refuse_broken_texts,
    refuse_broken_weights,
    refuse_unless_folder,
    refuse_unreadable,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def device_of(name: str) -> torch.device:
    """Return the device of that name; `auto` is the first visible GPU, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def same(tensor: Tensor) -> Tensor:
    """Return the stored tensor as it is."""
    return tensor


@dataclass(frozen=True, slots=True)
class Place:
    """The parameter that a stored tensor fills, and how the tensor is changed for it."""

    name: str
    change: Callable[[Tensor], Tensor] = same


Layout = Mapping[str, Place]
"""Name in the file -> place in the module."""


def identical(names: Iterable[str], prefix: str = "") -> Layout:
    """Return the layout of a file that uses the module's own names, after `prefix`."""
    return {prefix + name: Place(name) for name in names}


def empty_model(kind: str, config: Any) -> Any:
    """Return the model of transformers' class `kind` on the meta device, without values."""
    import transformers

    with torch.device("meta"):
        model = getattr(transformers, kind).from_config(config, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def place_of(model: str) -> str:
    """Return a Hub id, or the path of a folder, as transformers takes them."""
    return str(Path(model).expanduser()) if looks_like_path(model) else model


def load_model(
    kind: str,
    model: str,
    revision: str | None,
    *,
    tolerated: Collection[str] = (),
    **options: Any,
) -> Any:
    """Return the checkpoint as transformers' class `kind` loads it, for inference.

    Raises CheckpointError that names every key that is missing, unexpected or mis-shaped,
    but for those named in `tolerated` and below them; or a file that is broken or missing,
    or an adapter.
    """
    import transformers

    variant = _sound_variant(model, revision)
    with silence_transformers(), unreadable_as_errors(f"checkpoint {model!r}"):
        loaded, info = getattr(transformers, kind).from_pretrained(
            place_of(model),
            revision=revision,
            variant=variant or None,
            trust_remote_code=False,
            # Allowed here, to be reported together with all other keys that do not fit.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
    _require_complete(model, info, tolerated)
    return loaded.eval().requires_grad_(False)


def _sound_variant(model: str, revision: str | None) -> str:
    """Return the variant of the weights to read, "" for plain ones.

    Raises CheckpointError for a folder that holds none, an adapter or broken files.
    """
    if looks_like_path(model):
        folder = Path(model).expanduser()
        refuse_unless_folder(model, folder, "config.json")
        refuse_adapter(folder)
        refuse_broken_texts(folder)
        variant = choose_variant(folder)
        refuse_broken_weights(folder, variant)
        return variant
    if (adapter := Files(model, revision).find(ADAPTER_CONFIG)) is not None:
        refuse_adapter(adapter.parent)
    return ""


def load_processor(model: str, revision: str | None, rows: int | None = None) -> Any:
    """Return the checkpoint's processor as transformers loads it.

    `rows` is how many tokens the model has embeddings for. Raises CheckpointError where
    files are missing or broken, above all those of the vocabulary.
    """
    import transformers

    if looks_like_path(model):
        refuse_broken_texts(Path(model).expanduser())
    with unreadable_as_errors(f"checkpoint {model!r}: its processor or {VOCABULARY}"):
        processor = transformers.AutoProcessor.from_pretrained(
            place_of(model), revision=revision, trust_remote_code=False
        )
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is not None:
        refuse_lost_words(tokenizer, f"checkpoint {model!r}")
        if rows is not None and tokenizer.vocab_size > rows:
            raise CheckpointError(
                f"the tokenizer of checkpoint {model!r} is of another model: it has "
                f"{tokenizer.vocab_size} tokens, and the model has {rows}"
            )
    return processor


def refuse_lost_words(tokenizer: Any, source: str) -> None:
    """Raise CheckpointError for a tokenizer of transformers without its vocabulary."""
    encode = partial(tokenizer.encode, add_special_tokens=False)
    refuse_unreadable(encode, source, tokenizer.decode)


def check_tokens(tokenizer: Tokenizer, specials: Collection[str], rows: int) -> None:
    """Raise CheckpointError unless a model of so many embeddings fits its tokenizer.

    That needs the tokens `specials`, and no id beyond the embeddings.
    """
    ids = tokenizer.get_vocab(with_added_tokens=True)
    if lacking := [name for name in specials if name not in ids]:
        raise CheckpointError(f"the vocabulary lacks {', '.join(lacking)}")
    if (highest := max(ids.values())) >= rows:
        raise CheckpointError(
            f"the tokenizer has the id {highest}, but vocab_size is {rows}; it must be "
            "larger than every id"
        )


@contextmanager
def unreadable_as_errors(what: str) -> Iterator[None]:
    """Turn what transformers raises for files that it cannot read into CheckpointError."""
    try:
        yield
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{what} cannot be read: {first_line(error)}") from error


_FEW = 50_000_000
"""Random values that are drawn on the CPU; of a module with more, on its device."""
_NAMED = 8
"""How many keys of one kind an error lists."""

Where = torch.device | Callable[[str], torch.device]
"""The device of a module, or of each of its parameters by name."""


Put = Callable[..., None]
"""`fill` with its device and dtype given."""


def fill(
    module: nn.Module,
    stored: Iterable[tuple[str, Tensor]],
    layout: Layout,
    *,
    source: str,
    device: Where,
    dtype: torch.dtype,
    tolerated: Collection[str] = (),
) -> None:
    """Put every stored tensor into its place in `module`, on `device` as `dtype`.

    `module` may be on the meta device: parameters are replaced, never copied twice.
    Names in `tolerated`, and names below them, are ignored. Buffers that are not part
    of the state dict (rotary frequencies) stay on the meta device: see `rebuild_rotary`.
    Raises CheckpointError that names every key that is missing, unexpected, mis-shaped or
    not a tensor.
    """
    shapes = {name: value.shape for name, value in module.state_dict().items()}
    missing = dict(layout)
    unexpected = list[str]()
    misshapen = list[str]()
    others = list[str]()
    for key, tensor in stored:
        place = missing.pop(key, None)
        if place is None:
            unexpected += _besides([key], tolerated)
            continue
        if not isinstance(tensor, Tensor):
            others.append(f"{key} is a {type(tensor).__name__}")
            continue
        value = _apply(place.change, tensor)
        if value is None or value.shape != shapes[place.name]:
            expected = tuple(shapes[place.name])
            misshapen.append(f"{key} {tuple(tensor.shape)}, not {expected}")
            continue
        home = device if isinstance(device, torch.device) else device(place.name)
        assign(module, place.name, value.to(home, dtype).contiguous())
    differences = {
        "missing": sorted(missing),
        "unexpected": unexpected,
        "of the wrong shape": misshapen,
        "not a tensor": others,
    }
    parts: list[str] = []
    for what, keys in differences.items():
        if keys:
            parts.append(f"{len(keys)} {what}: {first_keys(keys)}")
    if parts:
        raise CheckpointError(f"{source} does not fit the model: {'; '.join(parts)}")


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Keep transformers from telling how far loading is, and what does not fit."""
    import transformers

    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)


def _require_complete(
    model: str, info: Mapping[str, Any], tolerated: Collection[str]
) -> None:
    """Raise CheckpointError unless transformers' loading `info` says that `model` fits.

    Names in `tolerated`, and names below them, are ignored.
    """
    misshapen: list[str] = []
    for key, shape, expected in sorted(info["mismatched_keys"]):
        misshapen.append(f"{key} {tuple(shape)}, not {tuple(expected)}")
    wrong = {
        "missing": _besides(info["missing_keys"], tolerated),
        "unexpected": _besides(info["unexpected_keys"], tolerated),
        "mis-shaped": misshapen,
        "unreadable": sorted(map(str, info.get("error_msgs", ()))),
    }
    parts: list[str] = []
    for what, keys in wrong.items():
        if keys:
            parts.append(f"{what}: {len(keys)} ({first_keys(keys)})")
    if parts:
        raise CheckpointError(
            f"checkpoint {model!r} does not fit its architecture. " + "; ".join(parts)
        )


def _besides(keys: Iterable[str], tolerated: Collection[str]) -> list[str]:
    """Return the keys that are neither `tolerated` nor below one that is."""
    prefixes = tuple(f"{name}." for name in tolerated)
    return sorted(key for key in keys if not f"{key}.".startswith(prefixes))


def _apply(change: Any, tensor: Tensor) -> Tensor | None:
    """Return the tensor as a layout changes it; None where it cannot be changed so."""
    try:
        result: Tensor = change(tensor)
    except (RuntimeError, IndexError):
        # A tensor of another rank or size than the layout's own reshape can take.
        return None
    return result


def assign(module: nn.Module, name: str, value: Tensor) -> None:
    """Put `value` in the place of the parameter or buffer `name`."""
    owner, _, leaf = name.rpartition(".")
    place = module.get_submodule(owner)
    buffer = leaf in dict(place.named_buffers(recurse=False))
    setattr(place, leaf, value if buffer else nn.Parameter(value, requires_grad=False))


def first_keys(keys: list[str]) -> str:
    """Return the first keys, and how many more there are."""
    more = f", and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(keys[:_NAMED]) + more


def randomise(module: nn.Module, *, device: Where, dtype: torch.dtype, seed: int) -> None:
    """Fill `module` with random values made on `device`: no file, no host memory.

    Weights are normal with deviation 1 / sqrt(inputs), so that activations keep their
    size (an embedding has one input); norms are 1 and biases 0. A small module has the
    same values on every device, since the CPU draws them.
    """
    state = module.state_dict()
    few = sum(value.numel() for value in state.values()) <= _FEW
    generators: dict[torch.device, torch.Generator] = {}
    for name, value in state.items():
        home = device if isinstance(device, torch.device) else device(name)
        source = torch.device("cpu") if few else home
        if source not in generators:
            generators[source] = torch.Generator(source).manual_seed(seed)
        new = torch.empty(value.shape, device=source, dtype=dtype)
        if name.endswith("bias"):
            new.zero_()
        elif value.dim() == 1 or "norm" in name:
            new.fill_(1.0)
        else:
            inputs = 1 if "embed" in name else value[0].numel()
            new.normal_(0.0, inputs**-0.5, generator=generators[source])
        assign(module, name, new.to(home))


def rebuild_rotary(module: nn.Module, config: Any, device: torch.device) -> None:
    """Rebuild rotary embeddings that were made, without values, on the meta device."""
    for name, child in list(module.named_modules()):
        if name.endswith(("rotary_emb", "rotary_pos_emb")):
            owner, _, leaf = name.rpartition(".")
            fresh = type(child)(config).to(device)
            setattr(module.get_submodule(owner), leaf, fresh)


def rename(name: str, patterns: Iterable[tuple[str, str]]) -> str:
    """Return `name` after each (pattern, replacement) of `re.sub`, in order."""
    for pattern, replacement in patterns:
        name = re.sub(pattern, replacement, name)
    return name
