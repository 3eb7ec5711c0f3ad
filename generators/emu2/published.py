"""Published checkpoints of Emu2's language models, from a folder or the Hub.

Three layouts: Hugging Face's of Emu2-Chat (all at the root) and of Emu2-Gen (a folder for
each component), and the authors' own single files (`generators.emu2.native`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from generators.emu2.sizes import VisionSize
from generators.emu2.tokens import Emu2Tokens
from generators.errors import CheckpointError
from generators.loading.files import (
    Files,
    count,
    divided,
    read_json,
    section,
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
        """The file of that name in the folder; None where there is none."""
        before, _, last = name.rpartition(".")
        names = [f"{before}.{self.variant}.{last}"] if self.variant else []
        paths = (Files.find(self, f"{self.folder}/{n}") for n in (*names, name))
        return next((path for path in paths if path is not None), None)

    def describe(self) -> str:
        """The folder and its checkpoint, for errors."""
        return f"{self.folder}/ of {Files.describe(self)}"


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
        """Dimensions of the vision encoder."""

    @abstractmethod
    def language(self) -> dict[str, Any]:
        """Fields of the language model's `LlamaConfig`."""

    @abstractmethod
    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors of the network, under their stored names."""

    @abstractmethod
    def added(self, pieces: int) -> Mapping[str, int]:
        """Special tokens beyond the `pieces` of the vocabulary: name -> id."""

    @abstractmethod
    def stored_name(self, name: str) -> str:
        """The stored name of a parameter of ours, or the stored form of a prefix."""

    def layout(self, names: Iterable[str]) -> Layout:
        """Where the parameters `names` of an `Emu2Network` are stored."""
        return {self.stored_name(name): Place(name) for name in names}

    def stray(self, layers: int) -> list[str]:
        """Names of buffers in files of older transformers that are not needed."""
        layer = self.stored_name("lm.model.layers.")
        return [f"{layer}{i}.self_attn.rotary_emb.inv_freq" for i in range(layers)]

    def tokens(self, strip: bool = True) -> Emu2Tokens:
        """The vocabulary, from `tokenizer.model` and the names of the added tokens."""
        pieces = self.pieces()
        return Emu2Tokens(pieces, self.added(pieces.get_piece_size()), strip)

    def pieces(self) -> Any:
        """LLaMA's pieces as a `SentencePieceProcessor`."""
        return LlamaPieces.stored(self._tokenizer.need("tokenizer.model")).processor


class HuggingFaceEmu2(Emu2Checkpoint):
    """`config.json` with a `vision_config`, and shards in either format."""

    def __init__(self, files: Files, tokenizer: Files, config: Mapping[str, Any]) -> None:
        super().__init__(files, tokenizer)
        self.config = config

    def vision(self) -> VisionSize:
        """From the fields of `vision_config` that `EmuModel` reads (modeling_emu.py)."""
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
        """From `config.json`."""
        rows = count(self.config, "vocab_size", f"config.json of {self.source}")
        return llama(self.config, self.source) | {"vocab_size": rows}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Shard by shard."""
        return stored_tensors(self.files)

    def stored_name(self, name: str) -> str:
        """All but the projections begin with `model.`."""
        return name if name.startswith("project_") else f"model.{native_name(name)}"

    def added(self, pieces: int) -> Mapping[str, int]:
        """From `added_tokens.json`, or `tokenizer_config.json` of newer versions."""
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


def native_name(name: str) -> str:
    """The authors' name of a parameter of `Emu2Network`."""
    return f"decoder.{name}" if name.startswith("lm.") else name


_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)


def llama(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Fields of `LlamaConfig` but the rows; CheckpointError where one is missing."""
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
