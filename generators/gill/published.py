"""Published checkpoints: GILL's own, and those of the frozen OPT and CLIP.

`pretrained_ckpt.pth.tar` and `model_args.json` hold the 50 million parameters that were
trained beside the other two.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from generators.architectures import stored
from generators.errors import CheckpointError
from generators.gill.tokens import GillTokens
from generators.loading.files import (
    Files,
    configured,
    count,
    in_pickle,
    read_json,
    section,
    shape_of,
    stored_tensors,
)
from generators.loading.strict import Layout, Place, fill, identical

CHECKPOINT, ARGUMENTS = "pretrained_ckpt.pth.tar", "model_args.json"

VOKENS = "model.input_embeddings.weight"
VISUAL = "model.visual_embeddings"
MAPPER = "model.gen_text_hidden_fcs.0"
RETRIEVAL = ("model.logit_scale", "model.visual_fc", "model.ret_text_hidden_fcs")
"""Parts that retrieve images from a collection instead of drawing them."""


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
        self.source = f"checkpoint {files.model!r}"
        """The checkpoint's name in errors."""

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """What `model_args.json` holds."""
        return read_json(self.files.need(ARGUMENTS))

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        """By name, memory-mapped, without the prefix of parallel training."""
        tensors = in_pickle(self.files.need(CHECKPOINT), "state_dict")
        return {name.removeprefix("module."): t for name, t in tensors.items()}

    def argument(self, name: str) -> int:
        """Return a count in `model_args.json`; CheckpointError where it is missing."""
        return count(self.arguments, name, f"{ARGUMENTS} of {self.source}")

    def shape(self, name: str, rank: int) -> tuple[int, ...]:
        """Return a tensor's shape; CheckpointError for a missing one or another rank."""
        return shape_of(self._tensors, name, f"{CHECKPOINT} of {self.source}", rank)

    def additions(self, device: torch.device, dtype: torch.dtype) -> Additions:
        """Return the image tokens' embeddings and the projection of images."""
        vokens = self.argument("num_tokens")
        projected, pooled = self.shape(f"{VISUAL}.weight", 2)
        states = self.shape(VOKENS, 2)[1]
        with torch.device("meta"):
            module = Additions(vokens, states, pooled, projected)

        def last(tensor: Tensor) -> Tensor:
            """Training checkpoints hold all rows, published ones only the image tokens'."""
            return tensor[-vokens:]

        layout = {f"{VISUAL}.{n}": Place(f"visual.{n}") for n in ("weight", "bias")}
        layout[VOKENS] = Place("vokens", last)
        self.fill(module, layout, (MAPPER,), device, dtype)
        return module

    def mapper_size(self) -> dict[str, int]:
        """Return the mapper's dimensions, by the shapes of its tensors."""
        width, states = self.shape(f"{MAPPER}.fc.weight", 2)
        prefix = f"{MAPPER}.tfm.encoder.layers."
        inside = (n.removeprefix(prefix) for n in self._tensors if n.startswith(prefix))
        return {
            "states": states,
            "width": width,
            "layers": len({name.partition(".")[0] for name in inside}),
            # No file has the heads of `TextFcLayer` (gill/layers.py).
            "heads": stored("gill")["mapper"]["heads"],
            "inner": self.shape(f"{prefix}0.linear1.weight", 2)[0],
            "queries": self.shape(f"{MAPPER}.query_embs", 3)[1],
            "out": self.shape(f"{MAPPER}.model.weight", 2)[0],
        }

    def fill(
        self,
        module: nn.Module,
        layout: Layout,
        others: tuple[str, ...],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Fill a part of the model strictly; `others` are the keys of other parts."""
        where: dict[str, Any] = {"source": self.source, "device": device, "dtype": dtype}
        unused = (*others, *RETRIEVAL)
        fill(module, self._tensors.items(), layout, **where, tolerated=unused)

    def check_ids(self, tokens: GillTokens) -> None:
        """Check that it was trained with the ids that follow the vocabulary."""
        trained = self.arguments.get("gen_token_idx", list(tokens.vokens))
        if trained != list(tokens.vokens):
            raise CheckpointError(
                f"{self.source} was trained with image tokens {trained} ({ARGUMENTS}), but "
                f"after the language model's vocabulary they are {list(tokens.vokens)}"
            )

    def check_widths(self, added: Additions, width: int, pooled: int) -> None:
        """Check that its parts fit the language model's embeddings and the vision tower."""
        shape = tuple(added.vokens.shape)
        if shape != (self.argument("num_tokens"), width):
            raise CheckpointError(
                f"{CHECKPOINT} of {self.source}: {VOKENS} has the shape {shape}, but the "
                f"language model's embeddings have {width} values each"
            )
        projected = width * self.argument("n_visual_tokens")
        if tuple(added.visual.weight.shape) != (projected, pooled):
            raise CheckpointError(
                f"{self.source} projects images by {tuple(added.visual.weight.shape)}, but "
                f"{ARGUMENTS} and the vision tower require ({projected}, {pooled})"
            )


def opt_config(files: Files) -> Any:
    """Return the `OPTConfig` of a published OPT; CheckpointError when it is not valid."""
    from transformers import OPTConfig

    path = files.need("config.json")
    values = read_json(path)
    count(values, "vocab_size", str(path))
    return configured(OPTConfig, values, str(path))


def fill_opt(
    model: Any,
    files: Files,
    stored_rows: int,
    tokens: GillTokens,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Fill an `OPTModel` whose embeddings have a row for each of `tokens`.

    The file has `stored_rows`. CheckpointError when it does not fit.
    """
    layout = dict(identical(model.state_dict()))
    embeddings = "decoder.embed_tokens.weight"

    def extended(tensor: Tensor) -> Tensor:
        """Return rows of all ids; upstream resizes the table and fills its last rows."""
        if len(tensor) != stored_rows or stored_rows < tokens.vokens[0]:
            raise IndexError
        missing = tensor.new_zeros(max(0, tokens.size - stored_rows), *tensor.shape[1:])
        return torch.cat([tensor[: tokens.size], missing])

    layout[embeddings] = Place(embeddings, extended)
    source = f"language model {files.model!r}"
    where: dict[str, Any] = {"source": source, "device": device, "dtype": dtype}
    fill(model, _opt_tensors(files), layout, **where, tolerated=("lm_head.weight",))


def _opt_tensors(files: Files) -> Iterator[tuple[str, Tensor]]:
    """Read OPT's tensors; files of `OPTModel` and `OPTForCausalLM` differ in a prefix."""
    for name, tensor in stored_tensors(files):
        yield name.removeprefix("model."), tensor


def clip_config(files: Files) -> Any:
    """Return the `CLIPVisionConfig` of a published CLIP."""
    from transformers import CLIPVisionConfig

    path = files.need("config.json")
    config = read_json(path)
    sizes = section({"vision_config": config} | config, "vision_config", str(path))
    return configured(CLIPVisionConfig, sizes, str(path))


def fill_clip(tower: Any, files: Files, device: torch.device, dtype: torch.dtype) -> None:
    """Fill the vision tower of a published CLIP; the text tower is not read."""
    prefix = "vision_model."
    source = f"vision tower of {files.model!r}"
    where: dict[str, Any] = {"source": source, "device": device, "dtype": dtype}
    fill(
        tower,
        stored_tensors(files, lambda name: name.startswith(prefix)),
        identical(tower.state_dict(), prefix),
        **where,
        tolerated=(f"{prefix}embeddings.position_ids",),
    )


def clip_processor(files: Files) -> Any:
    """Return the preprocessing of the published CLIP, with Pillow as in upstream."""
    from transformers import CLIPImageProcessorPil

    values = read_json(files.need("preprocessor_config.json"))
    return CLIPImageProcessorPil.from_dict(values)
