"""Checkpoints of Emu2's language models: where their configurations and tensors are.

Published ones, from a folder or the Hub, have three layouts: Hugging Face's of Emu2-Chat
(all at the root) and of Emu2-Gen (a folder for each component), and the authors' own single
files. Beside such a file a folder holds, of upstream's repository, the files of
`Emu2/emu/conf/llama_config` and, for drawing, the folders of `.../diffusion_config`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

from torch import Tensor

from plait.generators.architectures import read_config
from plait.generators.emu2.network import ADDED, ADDED_CHAT, USER, Emu2Tokens, VisionSize
from plait.generators.errors import CheckpointError
from plait.generators.loading.files import (
    Files,
    config_of_class,
    count,
    divide,
    in_pickle,
    in_safetensors,
    read_json,
    read_stored,
    section,
    shapes_in,
)
from plait.generators.loading.llama import LlamaPieces
from plait.generators.loading.strict import Layout, Place


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
        if self.variant:
            before, _, last = name.rpartition(".")
            of_variant = f"{self.folder}/{before}.{self.variant}.{last}"
            if (path := Files.find(self, of_variant)) is not None:
                return path
        return Files.find(self, f"{self.folder}/{name}")

    def describe(self) -> str:
        """Return the folder and its checkpoint, for errors."""
        return f"{self.folder}/ of {Files.describe(self)}"


def open_checkpoint(model: str, revision: str | None = None) -> Emu2Checkpoint:
    """Return the checkpoint of a folder or the Hub; CheckpointError if it is not Emu2."""
    files = Files(model, revision)
    native = native_file(files)
    path = files.find("config.json")
    config = {} if path is None else read_json(path)
    if "vision_config" in config and native is None:
        return Emu2Checkpoint(files, files, config)
    encoder = ComponentFiles(model, revision, "multimodal_encoder", "bf16")
    if (path := encoder.find("config.json")) is not None:
        tokenizer = ComponentFiles(model, revision, "tokenizer")
        return Emu2Checkpoint(encoder, tokenizer, read_json(path))
    if native is not None:
        return NativeEmu2(files, native, config)
    raise CheckpointError(
        f"{files.describe()} holds no Emu2: neither a config.json with a vision_config "
        "(the layout of BAAI/Emu2-Chat), nor multimodal_encoder/config.json "
        f"(BAAI/Emu2-Gen), nor one of {', '.join(FILES)}"
    )


class Emu2Checkpoint:
    """Hugging Face's layouts: `config.json` with a `vision_config`, and shards."""

    def __init__(self, files: Files, tokenizer: Files, config: Mapping[str, Any]) -> None:
        self.files = files
        self.tokenizer = tokenizer
        self.config = config
        self.source = f"checkpoint {files.model!r}"
        """The checkpoint's name, for errors."""

    def layout(self, names: Iterable[str]) -> Layout:
        """Return where the parameters `names` of an `Emu2Network` are stored."""
        return {self.name_in_file(name): Place(name) for name in names}

    def stray(self, layers: int) -> list[str]:
        """Return the names of buffers of older transformers that are not needed."""
        layer = self.name_in_file("lm.model.layers.")
        suffix = ".self_attn.rotary_emb.inv_freq"
        return [f"{layer}{number}{suffix}" for number in range(layers)]

    def tokens(self, strip: bool = True) -> Emu2Tokens:
        """Return the vocabulary, from `tokenizer.model` and the added tokens' names."""
        pieces = LlamaPieces.read(self.tokenizer.need("tokenizer.model"))
        return Emu2Tokens(pieces, self.special_tokens(pieces.size), strip)

    def vision(self) -> VisionSize:
        """Return the vision encoder's dimensions, as `EmuModel` reads them."""
        source = f"config.json of {self.source}"
        values = section(self.config, "vision_config", source)
        source = f"vision_config in {source}"
        width = count(values, "width", source)
        patch = count(values, "patch_size", source)
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

    def language(self, ids: int) -> Any:
        """Return the `LlamaConfig`; CheckpointError where it has fewer rows than `ids`."""
        source = f"config.json of {self.source}"
        sizes = {name: count(self.config, name, source) for name in _SIZES}
        heads = sizes["num_attention_heads"]
        divide(sizes["hidden_size"], heads, f"num_attention_heads is {heads}", source)
        theta = self.config.get("rope_theta", 10_000.0)
        fields = sizes | {
            "vocab_size": self.rows,
            "num_key_value_heads": self.config.get("num_key_value_heads", heads),
            "rms_norm_eps": self.config.get("rms_norm_eps", 1e-6),
            "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        }
        if ids > self.rows:
            raise CheckpointError(
                f"{self.source}: the vocabulary numbers {ids} tokens, the embedding has "
                f"{self.rows} rows"
            )
        return config_of_class("LlamaConfig", fields, source)

    @property
    def rows(self) -> int:
        """Rows of the table of embeddings."""
        return count(self.config, "vocab_size", f"config.json of {self.source}")

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Read the tensors of the network, under their stored names."""
        return read_stored(self.files)

    def name_in_file(self, name: str) -> str:
        """Return the stored name of a parameter of ours, or of a prefix."""
        return name if name.startswith("project_") else f"model.{_native_name(name)}"

    def special_tokens(self, pieces: int) -> Mapping[str, int]:
        """Return special tokens beyond the `pieces` of the vocabulary: name -> id.

        From `added_tokens.json`, or `tokenizer_config.json` of newer versions.
        """
        path = self.tokenizer.find("added_tokens.json")
        named = {} if path is None else read_json(path)
        if path is None or not named:
            path = self.tokenizer.need("tokenizer_config.json")
        try:
            if not named:
                decoder = read_json(path).get("added_tokens_decoder", {})
                named = {about["content"]: number for number, about in decoder.items()}
            ids = {name: int(number) for name, number in named.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path}: each added token must have a content and a whole number as its "
                f"id ({error!r})"
            ) from None
        added = {name: number for name, number in ids.items() if number >= pieces}
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
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    "max_position_embeddings",
)

FILES = (
    "Emu2-Chat_pytorch_model.bf16.bin",
    "Emu2-Gen_pytorch_model.bf16.safetensors",
    "Emu2_pytorch_model.bf16.bin",
)
"""Their names in upstream's README and demo/backend/pytorch_model."""

_ENCODER = "multimodal_encoder."


def native_file(files: Files) -> Path | None:
    """Return the single file of a folder; None where it has none."""
    for name in FILES:
        if (path := files.find(name)) is not None:
            return path
    return None


def read_tensors(path: Path, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """Read the tensors of one file whose names begin with `prefix`."""
    if path.suffix == ".safetensors":
        yield from in_safetensors(path, lambda name: name.startswith(prefix))
        return
    for name, tensor in in_pickle(path).items():
        if name.startswith(prefix):
            yield name, tensor


class NativeEmu2(Emu2Checkpoint):
    """A file of Emu2-Chat, or of Emu2-Gen, which holds its UNet and autoencoder too."""

    def __init__(self, files: Files, path: Path, config: Mapping[str, Any]) -> None:
        super().__init__(files, files, config)
        self._path = path
        self._shapes = shapes_in(path)
        whole = any(name.startswith(_ENCODER) for name in self._shapes)
        self._prefix = _ENCODER if whole else ""

    def vision(self) -> VisionSize:
        """Return what shapes show; heads and queries, which none shows, are published ones.

        A `vision_config` in `config.json` may set others.
        """
        own = self.config.get("vision_config", {})
        published = read_config("emu2")
        width, _, patch, _ = self._shape("visual.patch_embed.proj.weight")
        head_width = published["vision"]["width"] // published["vision"]["heads"]
        part = "chat" if USER in self.tokens().added else "gen"
        blocks = self.name_in_file("visual.blocks.")
        numbers: set[str] = set()
        for name in self._shapes:
            if name.startswith(blocks):
                numbers.add(name.removeprefix(blocks).partition(".")[0])
        return VisionSize(
            width=width,
            layers=len(numbers),
            heads=width // own.get("head_width", head_width),
            mlp_width=self._shape("visual.blocks.0.mlp.fc1.weight")[0],
            patch=patch,
            grid=isqrt(self._shape("visual.pos_embed")[1] - 1),
            queries=own.get("n_query", published["queries"][part]),
        )

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Read the tensors of the network."""
        return read_tensors(self._path, self._prefix)

    def name_in_file(self, name: str) -> str:
        """Return the name; in a file of Gen all begin with `multimodal_encoder.`."""
        return self._prefix + _native_name(name)

    def special_tokens(self, pieces: int) -> Mapping[str, int]:
        """Return upstream's list; the number of embeddings shows which."""
        for names in (ADDED, ADDED_CHAT):
            if self.rows == pieces + len(names):
                return {name: number for number, name in enumerate(names, pieces)}
        raise CheckpointError(
            f"{self.source}: {self.rows} embeddings fit neither the {pieces} pieces of "
            f"tokenizer.model with the {len(ADDED)} special tokens of Emu2-Gen nor with "
            f"the {len(ADDED_CHAT)} of Emu2-Chat"
        )

    @property
    def rows(self) -> int:
        """Rows of the stored table; `config.json` is LLaMA's."""
        return self._shape("lm.model.embed_tokens.weight")[0]

    def _shape(self, name: str) -> tuple[int, ...]:
        stored_name = self.name_in_file(name)
        if stored_name not in self._shapes:
            raise CheckpointError(f"{self._path} lacks {stored_name}")
        return self._shapes[stored_name]
