"""MiniGPT-5 as published: stage checkpoints, Vicuna and MiniGPT-4's projection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from generators.checkpoints import looks_like_path, with_revision
from generators.errors import CheckpointError
from generators.loading.files import (
    Files,
    configured,
    in_pickle,
    read_json,
    shape_of,
    stored_tensors,
)
from generators.loading.strict import Place, fill, identical

STAGE_1 = "stage1_cc3m.ckpt"
STAGE_2 = {"vist": "stage2_vist.ckpt", "mmdialog": "stage2_mmdialog.ckpt"}
PROJECTION = "prerained_minigpt4_7b.pth"

_LLAMA_1 = "model.llama_model."
_LLAMA_2 = "model.llama_model.base_model.model."
_TABLES = ("model.embed_tokens", "lm_head")
MAPPER = ("fc", "llm_to_t2i_mapping", "t2i_decoder_prompt")
"""The parts of the stage checkpoints that the renderer reads."""

_ALPHA = 16.0
"""`lora_alpha` of mini_gpt5.py; the files do not hold it."""
_TARGETS = ("q_proj", "v_proj")
_PARTS = {"A": "down", "B": "up"}


class _Update(nn.Module):
    """The low-rank update of a linear map W: W + (alpha / rank) B A."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(rank, linear.in_features))
        self.up = nn.Parameter(torch.empty(linear.out_features, rank))

    def merge(self, linear: nn.Linear) -> None:
        change = (_ALPHA / len(self.down)) * self.up @ self.down
        linear.weight.copy_(linear.weight.float() + change)


@torch.no_grad()
def merge(model: Any, stored: Mapping[str, Any], prefix: str, source: str) -> None:
    """Add the low-rank updates in `stored` to the weights of a LLaMA.

    Names are peft's below `prefix`; the sum is computed in float32. CheckpointError where
    a layer has no update, or where others than queries and values have one.
    """
    linears = {
        f"layers.{i}.self_attn.{target}": getattr(layer.self_attn, target)
        for i, layer in enumerate(model.model.layers)
        for target in _TARGETS
    }
    first = f"{prefix}layers.0.self_attn.q_proj.lora_A.default.weight"
    rank = shape_of(stored, first, source, 2)[0]
    with torch.device("meta"):
        updates = nn.ModuleList(_Update(linear, rank) for linear in linears.values())
    layout = {
        f"{prefix}{name}.lora_{part}.default.weight": Place(f"{i}.{own}")
        for i, name in enumerate(linears)
        for part, own in _PARTS.items()
    }
    low_rank = ((k, v) for k, v in stored.items() if k.startswith(f"{prefix}layers."))
    device = model.lm_head.weight.device
    fill(updates, low_rank, layout, source=source, device=device, dtype=torch.float32)
    for linear, update in zip(linears.values(), updates, strict=True):
        update.merge(linear)


@dataclass(frozen=True)
class StageCheckpoints:
    """The stage checkpoints of one model."""

    files: Files
    finetuned: str

    def stage_1(self) -> Mapping[str, Any]:
        """Return the tensors of `stage1_cc3m.ckpt`."""
        return in_pickle(self.files.need(STAGE_1), "state_dict")

    def stage_2(self) -> Mapping[str, Any] | None:
        """Return the tensors of the stage-2 checkpoint; None where none is used."""
        if self.finetuned == "none":
            return None
        return in_pickle(self.files.need(STAGE_2[self.finetuned]), "state_dict")

    @property
    def last_source(self) -> str:
        """The file that is applied last, for errors."""
        return f"{STAGE_2.get(self.finetuned, STAGE_1)} of {self.files.describe()}"

    def rows(self) -> int:
        """Return the rows of the embedding table."""
        stored, names = self._tables()
        return shape_of(stored, next(iter(names)), self.last_source, 2)[0]

    def fill_language(self, model: Any, device: torch.device, dtype: torch.dtype) -> None:
        """Fill embeddings and head, and add the updates of stage 2 to the other weights."""
        stored, names = self._tables()
        layers = f"{_LLAMA_2}model.layers"
        layout = {stored_name: Place(name) for stored_name, name in names.items()}
        unused = MAPPER if self.finetuned == "none" else (*MAPPER, layers)
        where: dict[str, Any] = {"device": device, "dtype": dtype, "tolerated": unused}
        fill(model, stored.items(), layout, source=self.last_source, **where)
        if self.finetuned != "none":
            merge(model, stored, f"{_LLAMA_2}model.", self.last_source)

    def _tables(self) -> tuple[Mapping[str, Any], dict[str, str]]:
        """Return the tensors with embeddings and head, and their names -> the model's."""
        if (stored := self.stage_2()) is None:
            names = {f"{_LLAMA_1}{t}.weight": f"{t}.weight" for t in _TABLES}
            return self.stage_1(), names
        saved = "modules_to_save.default.weight"
        return stored, {f"{_LLAMA_2}{t}.{saved}": f"{t}.weight" for t in _TABLES}


def vicuna_config(files: Files, rows: int) -> Any:
    """Return the `LlamaConfig` of a Vicuna whose tables have `rows` rows."""
    from transformers import LlamaConfig

    path = files.need("config.json")
    # Vicuna v0 names the padding id -1, which no token has; nothing is padded here.
    fields = read_json(path) | {"vocab_size": rows, "pad_token_id": None}
    return configured(LlamaConfig, fields, str(path))


def fill_vicuna(
    model: Any, files: Files, config: Any, device: torch.device, dtype: torch.dtype
) -> None:
    """Fill everything but embeddings and head, which the stage checkpoints replace."""
    tables = tuple(f"{table}." for table in _TABLES)
    layout = identical(n for n in model.state_dict() if not n.startswith(tables))
    tensors = stored_tensors(files, lambda name: not name.startswith(tables))
    rotary = [
        f"model.layers.{i}.self_attn.rotary_emb.inv_freq"
        for i in range(config.num_hidden_layers)
    ]
    where: dict[str, Any] = {"device": device, "dtype": dtype, "tolerated": rotary}
    fill(model, tensors, layout, source=files.describe(), **where)


def projection_file(model: Files, name: str | None) -> Path:
    """Return the file with `llama_proj`; CheckpointError says where it is published."""
    if name is not None and looks_like_path(name) and Path(name).expanduser().is_file():
        return Path(name).expanduser()
    files = model if name is None else Files(*with_revision(name))
    for place in (PROJECTION, f"config/{PROJECTION}"):
        if (path := files.find(place)) is not None:
            return path
    raise CheckpointError(
        f"{files.describe()} has no file {PROJECTION!r}: it is in the folder `config` "
        "of the repository eric-ai-lab/MiniGPT-5; set `projection` to it"
    )


def fill_projection(
    encoder: Any, path: Path, device: torch.device, dtype: torch.dtype
) -> None:
    """Fill `llama_proj` from MiniGPT-4's file."""
    layout = identical(n for n in encoder.state_dict() if n.startswith("llama_proj."))
    stored = in_pickle(path, "model").items()
    fill(encoder, stored, layout, source=str(path), device=device, dtype=dtype)
