"""GILL's checkpoint: `pretrained_ckpt.pth.tar` and `model_args.json`.

It holds the 50 million parameters that were trained beside the frozen OPT and CLIP.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from generators.gill.sizes import MapperSize
from generators.loading.files import Files, count, in_pickle, read_json, shape_of
from generators.loading.strict import Layout, Place, fill

CHECKPOINT = "pretrained_ckpt.pth.tar"
ARGUMENTS = "model_args.json"

VOKENS = "model.input_embeddings.weight"
VISUAL = "model.visual_embeddings"
MAPPER = "model.gen_text_hidden_fcs.0"
RETRIEVAL = ("model.logit_scale", "model.visual_fc", "model.ret_text_hidden_fcs")
"""Parts that retrieve pictures from a collection instead of drawing them."""


class Additions(nn.Module):
    """Embeddings that the language model reads besides those of its vocabulary."""

    def __init__(self, vokens: int, states: int, pooled: int, visual: int) -> None:
        """Take the number of image tokens; widths of states, CLIP and projection."""
        super().__init__()
        self.vokens = nn.Parameter(torch.empty(vokens, states))
        self.visual = nn.Linear(pooled, visual)


class GillCheckpoint:
    """The files of one GILL."""

    def __init__(self, files: Files) -> None:
        self.files = files

    @property
    def source(self) -> str:
        """The checkpoint's name in errors."""
        return f"checkpoint {self.files.model!r}"

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """`model_args.json`."""
        return read_json(self.files.need(ARGUMENTS))

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        """By name, memory-mapped, without the prefix of parallel training."""
        stored = in_pickle(self.files.need(CHECKPOINT), "state_dict")
        return {name.removeprefix("module."): t for name, t in stored.items()}

    def argument(self, name: str) -> int:
        """A count in `model_args.json`; CheckpointError where it is missing."""
        return count(self.arguments, name, f"{ARGUMENTS} of {self.source}")

    def shape(self, name: str, rank: int) -> tuple[int, ...]:
        """Shape of a stored tensor; CheckpointError for a missing one or another rank."""
        return shape_of(self._tensors, name, f"{CHECKPOINT} of {self.source}", rank)

    def additions(self, device: torch.device, dtype: torch.dtype) -> Additions:
        """The image tokens' embeddings and the projection of pictures."""
        vokens = self.argument("num_tokens")
        projected, pooled = self.shape(f"{VISUAL}.weight", 2)
        with torch.device("meta"):
            states = self.shape(VOKENS, 2)[1]
            module = Additions(vokens, states, pooled, projected)

        def last(tensor: Tensor) -> Tensor:
            """Training checkpoints hold all rows, published ones only the image tokens'."""
            return tensor[-vokens:]

        layout = {f"{VISUAL}.{n}": Place(f"visual.{n}") for n in ("weight", "bias")}
        layout[VOKENS] = Place("vokens", last)
        self.fill(module, layout, (MAPPER, *RETRIEVAL), device, dtype)
        return module

    def mapper_size(self) -> MapperSize:
        """From the tensors' shapes."""
        width, states = self.shape(f"{MAPPER}.fc.weight", 2)
        layers = {
            name.removeprefix(f"{MAPPER}.tfm.encoder.layers.").partition(".")[0]
            for name in self._tensors
            if name.startswith(f"{MAPPER}.tfm.encoder.layers.")
        }
        return MapperSize(
            states=states,
            width=width,
            layers=len(layers),
            inner=self.shape(f"{MAPPER}.tfm.encoder.layers.0.linear1.weight", 2)[0],
            queries=self.shape(f"{MAPPER}.query_embs", 3)[1],
            out=self.shape(f"{MAPPER}.model.weight", 2)[0],
        )

    def fill(
        self,
        module: nn.Module,
        layout: Layout,
        others: tuple[str, ...],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Fill a part of the model strictly; `others` are the keys of other parts."""
        fill(
            module,
            self._stored(),
            layout,
            source=self.source,
            device=device,
            dtype=dtype,
            tolerated=others,
        )

    def _stored(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._tensors.items()
