"""The authors' own checkpoints: all weights in one file, with all else beside it.

A folder holds the file, and of upstream's repository the files of
`Emu2/emu/conf/llama_config` and, for drawing, the folders of `.../diffusion_config`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from generators.emu2.published import Emu2Checkpoint, llama, native_name
from generators.emu2.sizes import FULL_CHAT, FULL_GEN, VisionSize
from generators.emu2.tokens import ADDED, ADDED_CHAT
from generators.errors import CheckpointError
from generators.loading.files import Files, in_pickle, in_safetensors, read_json, shape_of

FILES = (
    "Emu2-Chat_pytorch_model.bf16.bin",
    "Emu2-Gen_pytorch_model.bf16.safetensors",
    "Emu2_pytorch_model.bf16.bin",
)
"""Their names in upstream's README and demo/backend/pytorch_model."""

_ENCODER = "multimodal_encoder."
_HEAD_WIDTH = FULL_CHAT.vision.width // FULL_CHAT.vision.heads


def native_file(files: Files) -> Path | None:
    """The single file of a folder; None where it has none."""
    paths = (files.find(name) for name in FILES)
    return next((path for path in paths if path is not None), None)


def stored_in(path: Path, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of one file whose names begin with `prefix`."""
    if path.suffix == ".safetensors":
        yield from in_safetensors(path, lambda name: name.startswith(prefix))
    else:
        yield from ((n, t) for n, t in in_pickle(path).items() if n.startswith(prefix))


def shapes_in(path: Path) -> Mapping[str, tuple[int, ...]]:
    """Shape of each tensor of one file; CheckpointError where it is broken."""
    if path.suffix != ".safetensors":
        stored = in_pickle(path)
        return {name: shape_of(stored, name, str(path)) for name in stored}
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
        """From shapes; heads and queries, which no shape shows, are the published ones.

        A `vision_config` in `config.json` may set others.
        """
        stored = self._config.get("vision_config", {})
        width, _, patch, _ = self._shape("visual.patch_embed.proj.weight")
        chat = len(self.tokens().added) == len(ADDED_CHAT)
        queries = (FULL_CHAT if chat else FULL_GEN).vision.queries
        return VisionSize(
            width=width,
            layers=self._count("visual.blocks."),
            heads=width // stored.get("head_width", _HEAD_WIDTH),
            mlp_width=self._shape("visual.blocks.0.mlp.fc1.weight")[0],
            patch=patch,
            grid=isqrt(self._shape("visual.pos_embed")[1] - 1),
            queries=stored.get("n_query", queries),
        )

    def language(self) -> dict[str, Any]:
        """From LLaMA's `config.json`, with the rows of the stored embedding."""
        return llama(self._config, self.source) | {"vocab_size": self._rows}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors of the network."""
        return stored_in(self._path, self._prefix)

    def stored_name(self, name: str) -> str:
        """In a file of Gen all names begin with `multimodal_encoder.`."""
        return self._prefix + native_name(name)

    def added(self, pieces: int) -> Mapping[str, int]:
        """Upstream's list, after the pieces; the number of embeddings shows which."""
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
        stored = self.stored_name(name)
        if stored not in self._shapes:
            raise CheckpointError(f"{self._path} lacks {stored}")
        return self._shapes[stored]

    def _count(self, prefix: str) -> int:
        stored = self.stored_name(prefix)
        below = (n.removeprefix(stored) for n in self._shapes if n.startswith(stored))
        return len({name.partition(".")[0] for name in below})
