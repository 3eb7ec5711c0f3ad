"""Published checkpoints of Emu2's language models, from a folder or the Hub.

Three layouts: Hugging Face's of Emu2-Chat (all at the root) and of Emu2-Gen (a folder for
each component), and the authors' own single files. Beside such a file a folder holds, of
upstream's repository, the files of `Emu2/emu/conf/llama_config` and, for drawing, the
folders of `.../diffusion_config`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from generators.architectures import stored
from generators.emu2.network import VisionSize
from generators.emu2.tokens import ADDED, ADDED_CHAT, Emu2Tokens
from generators.errors import CheckpointError
from generators.loading.files import (
    Files,
    count,
    divided,
    in_pickle,
    in_safetensors,
    read_json,
    section,
    shape_of,
    stored_tensors,
)
from generators.loading.llama import LlamaPieces
from generators.loading.strict import Layout, Place


@dataclass(frozen=True)
class ComponentFiles(Files):
    """The files of a component's folder, those of a variant first.

    transformers and diffusers put the variant before the last part of a name:
    `model.safetensors.index.json` becomes `model.safetensors.index.bf16.json`.
    """

    folder: str = ""
    variant: str | None = None

    def find(self, name: str) -> Path | None:
        """Return the file of that name in the folder; None where there is none."""
        before, _, last = name.rpartition(".")
        names = [f"{before}.{self.variant}.{last}"] if self.variant else []
        paths = (Files.find(self, f"{self.folder}/{n}") for n in (*names, name))
        return next((path for path in paths if path is not None), None)

    def describe(self) -> str:
        """Return the folder and its checkpoint, for errors."""
        return f"{self.folder}/ of {Files.describe(self)}"


def open_checkpoint(model: str, revision: str | None = None) -> Emu2Checkpoint:
    """Return the checkpoint of a folder or the Hub; CheckpointError if it is not Emu2."""
    files = Files(model, revision)
    native, path = native_file(files), files.find("config.json")
    config = {} if path is None else read_json(path)
    if "vision_config" in config and native is None:
        return HuggingFaceEmu2(files, files, config)
    encoder = ComponentFiles(model, revision, "multimodal_encoder", "bf16")
    if (path := encoder.find("config.json")) is not None:
        tokenizer = ComponentFiles(model, revision, "tokenizer")
        return HuggingFaceEmu2(encoder, tokenizer, read_json(path))
    if native is not None:
        return NativeEmu2(files, native)
    raise CheckpointError(
        f"{files.describe()} holds no Emu2: neither a config.json with a vision_config "
        "(the layout of BAAI/Emu2-Chat), nor multimodal_encoder/config.json "
        f"(BAAI/Emu2-Gen), nor one of {', '.join(FILES)}"
    )


class Emu2Checkpoint(ABC):
    """A checkpoint: its sizes, its vocabulary and its tensors."""

    def __init__(self, files: Files, tokenizer: Files) -> None:
        self.files = files
        self._tokenizer = tokenizer

    @property
    def source(self) -> str:
        """The checkpoint's name, for errors."""
        return f"checkpoint {self.files.model!r}"

    @abstractmethod
    def vision(self) -> VisionSize:
        """Return the dimensions of the vision encoder."""

    @abstractmethod
    def language(self) -> dict[str, Any]:
        """Return the fields of the language model's `LlamaConfig`."""

    @abstractmethod
    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Read the tensors of the network, under their stored names."""

    @abstractmethod
    def added(self, pieces: int) -> Mapping[str, int]:
        """Return special tokens beyond the `pieces` of the vocabulary: name -> id."""

    @abstractmethod
    def stored_name(self, name: str) -> str:
        """Return the stored name of a parameter of ours, or of a prefix."""

    def layout(self, names: Iterable[str]) -> Layout:
        """Return where the parameters `names` of an `Emu2Network` are stored."""
        return {self.stored_name(name): Place(name) for name in names}

    def stray(self, layers: int) -> list[str]:
        """Return the names of buffers of older transformers that are not needed."""
        layer = self.stored_name("lm.model.layers.")
        return [f"{layer}{i}.self_attn.rotary_emb.inv_freq" for i in range(layers)]

    def tokens(self, strip: bool = True) -> Emu2Tokens:
        """Return the vocabulary, from `tokenizer.model` and the added tokens' names."""
        pieces = LlamaPieces.stored(self._tokenizer.need("tokenizer.model"))
        return Emu2Tokens(pieces.processor, self.added(pieces.size), strip)


class HuggingFaceEmu2(Emu2Checkpoint):
    """`config.json` with a `vision_config`, and shards in either format."""

    def __init__(self, files: Files, tokenizer: Files, config: Mapping[str, Any]) -> None:
        super().__init__(files, tokenizer)
        self.config = config

    def vision(self) -> VisionSize:
        """Return what `EmuModel` reads of `vision_config` (modeling_emu.py)."""
        source = f"config.json of {self.source}"
        values = section(self.config, "vision_config", source)
        source = f"vision_config in {source}"
        width, patch = (count(values, name, source) for name in ("width", "patch_size"))
        ratio = values.get("mlp_ratio")
        if not isinstance(ratio, (int, float)) or ratio <= 0:
            raise CheckpointError(
                f"{source}: mlp_ratio is {ratio!r}; it must be a number above 0"
            )
        return VisionSize(
            width=width,
            layers=count(values, "layers", source),
            heads=width // count(values, "head_width", source),
            mlp_width=round(width * ratio),
            patch=patch,
            grid=count(values, "image_size", source) // patch,
            norm_eps=values.get("layer_norm_eps", 1e-6),
            queries=count(values, "n_query", source),
        )

    def language(self) -> dict[str, Any]:
        """Return what `config.json` says."""
        rows = count(self.config, "vocab_size", f"config.json of {self.source}")
        return _llama(self.config, self.source) | {"vocab_size": rows}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Read them shard by shard."""
        return stored_tensors(self.files)

    def stored_name(self, name: str) -> str:
        """Return the name; all but the projections begin with `model.`."""
        return name if name.startswith("project_") else f"model.{_native_name(name)}"

    def added(self, pieces: int) -> Mapping[str, int]:
        """Return those of `added_tokens.json`, or of a newer `tokenizer_config.json`."""
        path = self._tokenizer.find("added_tokens.json")
        named = {} if path is None else read_json(path)
        if not named:
            path = self._tokenizer.need("tokenizer_config.json")
            decoder = read_json(path).get("added_tokens_decoder", {})
            try:
                named = {about["content"]: int(i) for i, about in decoder.items()}
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise CheckpointError(
                    f"{path}: added_tokens_decoder must hold a content for each id "
                    f"({error!r})"
                ) from None
        if other := [name for name, i in named.items() if not isinstance(i, int)]:
            raise CheckpointError(
                f"{path}: the id of {other[0]!r} is {named[other[0]]!r}; it must be a "
                "whole number"
            )
        added = {name: i for name, i in named.items() if i >= pieces}
        if not added:
            raise CheckpointError(
                f"{self.source}: neither added_tokens.json nor tokenizer_config.json "
                f"names tokens beyond the {pieces} of tokenizer.model"
            )
        return added


def _native_name(name: str) -> str:
    """Return the authors' name of a parameter of `Emu2Network`."""
    return f"decoder.{name}" if name.startswith("lm.") else name


_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)


def _llama(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return `LlamaConfig`'s fields but the rows; CheckpointError where one is missing."""
    sizes = {name: count(config, name, f"config.json of {source}") for name in _SIZES}
    heads = sizes["num_attention_heads"]
    width = sizes["hidden_size"]
    divided(width, heads, f"num_attention_heads is {heads}", f"config.json of {source}")
    theta = config.get("rope_theta", 10_000.0)
    return sizes | {
        "num_key_value_heads": config.get("num_key_value_heads", heads),
        "rms_norm_eps": config.get("rms_norm_eps", 1e-6),
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
    }


FILES = (
    "Emu2-Chat_pytorch_model.bf16.bin",
    "Emu2-Gen_pytorch_model.bf16.safetensors",
    "Emu2_pytorch_model.bf16.bin",
)
"""Their names in upstream's README and demo/backend/pytorch_model."""

_ENCODER = "multimodal_encoder."


def native_file(files: Files) -> Path | None:
    """Return the single file of a folder; None where it has none."""
    paths = (files.find(name) for name in FILES)
    return next((path for path in paths if path is not None), None)


def stored_in(path: Path, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """Read the tensors of one file whose names begin with `prefix`."""
    if path.suffix == ".safetensors":
        yield from in_safetensors(path, lambda name: name.startswith(prefix))
    else:
        yield from ((n, t) for n, t in in_pickle(path).items() if n.startswith(prefix))


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


class NativeEmu2(Emu2Checkpoint):
    """A file of Emu2-Chat, or of Emu2-Gen, which holds its UNet and autoencoder too."""

    def __init__(self, files: Files, path: Path) -> None:
        super().__init__(files, files)
        self._path = path
        self._shapes = shapes_in(path)
        whole = any(name.startswith(_ENCODER) for name in self._shapes)
        self._prefix = _ENCODER if whole else ""

    def vision(self) -> VisionSize:
        """Return what shapes show; heads and queries, which none shows, are published ones.

        A `vision_config` in `config.json` may set others.
        """
        own, published = self._config.get("vision_config", {}), stored("emu2")
        width, _, patch, _ = self._shape("visual.patch_embed.proj.weight")
        head_width = published["vision"]["width"] // published["vision"]["heads"]
        chat = len(self.tokens().added) == len(ADDED_CHAT)
        blocks = self.stored_name("visual.blocks.")
        inside = (n.removeprefix(blocks) for n in self._shapes if n.startswith(blocks))
        return VisionSize(
            width=width,
            layers=len({name.partition(".")[0] for name in inside}),
            heads=width // own.get("head_width", head_width),
            mlp_width=self._shape("visual.blocks.0.mlp.fc1.weight")[0],
            patch=patch,
            grid=isqrt(self._shape("visual.pos_embed")[1] - 1),
            queries=own.get("n_query", published["queries"]["chat" if chat else "gen"]),
        )

    def language(self) -> dict[str, Any]:
        """Return LLaMA's `config.json`, with the rows of the stored embedding."""
        return _llama(self._config, self.source) | {"vocab_size": self._rows}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Read the tensors of the network."""
        return stored_in(self._path, self._prefix)

    def stored_name(self, name: str) -> str:
        """Return the name; in a file of Gen all begin with `multimodal_encoder.`."""
        return self._prefix + _native_name(name)

    def added(self, pieces: int) -> Mapping[str, int]:
        """Return upstream's list; the number of embeddings shows which."""
        for names in (ADDED, ADDED_CHAT):
            if self._rows == pieces + len(names):
                return {name: pieces + i for i, name in enumerate(names)}
        raise CheckpointError(
            f"{self.source}: {self._rows} embeddings fit neither the {pieces} pieces of "
            f"tokenizer.model with the {len(ADDED)} special tokens of Emu2-Gen nor with "
            f"the {len(ADDED_CHAT)} of Emu2-Chat"
        )

    @property
    def _config(self) -> dict[str, Any]:
        return read_json(self.files.need("config.json"))

    @property
    def _rows(self) -> int:
        return self._shape("lm.model.embed_tokens.weight")[0]

    def _shape(self, name: str) -> tuple[int, ...]:
        stored_name = self.stored_name(name)
        if stored_name not in self._shapes:
            raise CheckpointError(f"{self._path} lacks {stored_name}")
        return self._shapes[stored_name]
