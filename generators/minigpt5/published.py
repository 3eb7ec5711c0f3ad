"""MiniGPT-5 as published: stage checkpoints, Vicuna, BLIP-2 and MiniGPT-4's projection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from generators.checkpoints import looks_like_path, with_revision
from generators.errors import CheckpointError
from generators.loading.files import Files, configured, count, read_json, section
from generators.loading.strict import Place, fill, identical
from generators.loading.tensors import in_pickle, shape_of, stored_tensors
from generators.minigpt5.lavis import QFORMER, VIT, Lavis

_ALPHA = 16.0
"""`lora_alpha` of mini_gpt5.py; the files do not hold it."""
_TARGETS = ("q_proj", "v_proj")
_PARTS = {"A": "down", "B": "up"}


class _Update(nn.Module):
    """W + (alpha / rank) B A, of a linear map W."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(rank, linear.in_features))
        self.up = nn.Parameter(torch.empty(linear.out_features, rank))

    @property
    def change(self) -> Tensor:
        return (_ALPHA / len(self.down)) * self.up @ self.down


@torch.no_grad()
def merge(model: Any, stored: Mapping[str, Any], prefix: str, source: str) -> None:
    """Add the updates in `stored` to the weights of a LLaMA.

    Names are peft's below `prefix`; the sum is taken in float32. CheckpointError where a
    layer has none, or where there are others than of queries and values.
    """
    linears = {
        f"layers.{i}.self_attn.{target}": getattr(layer.self_attn, target)
        for i, layer in enumerate(model.model.layers)
        for target in _TARGETS
    }
    rank = _rank(stored, f"{prefix}layers.0.self_attn.q_proj.lora_A.default.weight", source)
    with torch.device("meta"):
        named = {_flat(name): _Update(linear, rank) for name, linear in linears.items()}
        updates = nn.ModuleDict(named)
    fill(
        updates,
        ((k, v) for k, v in stored.items() if k.startswith(f"{prefix}layers.")),
        {
            f"{prefix}{name}.lora_{part}.default.weight": Place(f"{_flat(name)}.{own}")
            for name in linears
            for part, own in _PARTS.items()
        },
        source=source,
        device=model.lm_head.weight.device,
        dtype=torch.float32,
    )
    for name, linear in linears.items():
        merged = linear.weight.float() + updates[_flat(name)].change
        linear.weight.copy_(merged)


def _rank(stored: Mapping[str, Any], name: str, source: str) -> int:
    return shape_of(stored, name, source, 2)[0]


def _flat(name: str) -> str:
    """Names of submodules cannot hold dots."""
    return name.replace(".", "-")


STAGE_1 = "stage1_cc3m.ckpt"
STAGE_2 = {"vist": "stage2_vist.ckpt", "mmdialog": "stage2_mmdialog.ckpt"}
PROJECTION = "prerained_minigpt4_7b.pth"

_LLAMA_1 = "model.llama_model."
_LLAMA_2 = "model.llama_model.base_model.model."
_TABLES = ("model.embed_tokens", "lm_head")
MAPPER = ("fc", "llm_to_t2i_mapping", "t2i_decoder_prompt")
"""What the renderer reads of the stage checkpoints."""


@dataclass(frozen=True)
class Stages:
    """The stage checkpoints of one model."""

    files: Files
    finetuned: str

    def stage_1(self) -> Mapping[str, Any]:
        """The tensors of `stage1_cc3m.ckpt`."""
        return in_pickle(self.files.need(STAGE_1), "state_dict")

    def stage_2(self) -> Mapping[str, Any] | None:
        """Those of the stage-2 checkpoint; None where none is used."""
        if self.finetuned == "none":
            return None
        return in_pickle(self.files.need(STAGE_2[self.finetuned]), "state_dict")

    @property
    def last_source(self) -> str:
        """The file that is laid on last, for errors."""
        return f"{STAGE_2.get(self.finetuned, STAGE_1)} of {self.files.describe()}"

    def rows(self) -> int:
        """Rows of the embedding table."""
        stored, names = self._tables()
        return shape_of(stored, next(iter(names)), self.last_source, 2)[0]

    def fill_language(self, model: Any, device: torch.device, dtype: torch.dtype) -> None:
        """Embeddings and head; the updates of stage 2 are added to the weights there."""
        stored, names = self._tables()
        layers = f"{_LLAMA_2}model.layers"
        fill(
            model,
            stored.items(),
            {stored_name: Place(name) for stored_name, name in names.items()},
            source=self.last_source,
            device=device,
            dtype=dtype,
            tolerated=MAPPER if self.finetuned == "none" else (*MAPPER, layers),
        )
        if self.finetuned != "none":
            merge(model, stored, f"{_LLAMA_2}model.", self.last_source)

    def _tables(self) -> tuple[Mapping[str, Any], dict[str, str]]:
        """The file with embeddings and head, and their names there -> in the model."""
        if (stored := self.stage_2()) is None:
            names = {f"{_LLAMA_1}{t}.weight": f"{t}.weight" for t in _TABLES}
            return self.stage_1(), names
        saved = "modules_to_save.default.weight"
        return stored, {f"{_LLAMA_2}{t}.{saved}": f"{t}.weight" for t in _TABLES}


def opened(name: str) -> Files:
    """The folder or Hub repository of a companion."""
    return Files(*with_revision(name))


def vicuna_config(files: Files, rows: int) -> Any:
    """The `LlamaConfig` of a Vicuna whose tables have `rows` rows."""
    from transformers import LlamaConfig

    path = files.need("config.json")
    # Vicuna v0 names the padding id -1, which no token has; nothing is padded here.
    fields = read_json(path) | {"vocab_size": rows, "pad_token_id": None}
    return configured(LlamaConfig, fields, str(path))


def fill_vicuna(
    model: Any, files: Files, config: Any, device: torch.device, dtype: torch.dtype
) -> None:
    """Everything but embeddings and head, which the stage checkpoints replace."""
    tables = tuple(f"{table}." for table in _TABLES)
    names = [n for n in model.state_dict() if not n.startswith(tables)]
    fill(
        model,
        stored_tensors(files, lambda name: not name.startswith(tables)),
        identical(names),
        source=files.describe(),
        device=device,
        dtype=dtype,
        tolerated=[
            f"model.layers.{i}.self_attn.rotary_emb.inv_freq"
            for i in range(config.num_hidden_layers)
        ],
    )


def projection_file(model: Files, told: str | None) -> Path:
    """The file with `llama_proj`; CheckpointError says where it can be had."""
    if told is not None and looks_like_path(told) and Path(told).expanduser().is_file():
        return Path(told).expanduser()
    files = model if told is None else opened(told)
    for name in (PROJECTION, f"config/{PROJECTION}"):
        if (path := files.find(name)) is not None:
            return path
    raise CheckpointError(
        f"{files.describe()} has no file {PROJECTION!r}: it stands in the folder `config` "
        "of the repository eric-ai-lab/MiniGPT-5; name it as `projection`"
    )


def fill_projection(
    encoder: Any, path: Path, device: torch.device, dtype: torch.dtype
) -> None:
    """`llama_proj` of MiniGPT-4."""
    names = [n for n in encoder.state_dict() if n.startswith("llama_proj.")]
    fill(
        encoder,
        in_pickle(path, "model").items(),
        identical(names),
        source=str(path),
        device=device,
        dtype=dtype,
    )


@dataclass(frozen=True)
class Blip2:
    """A picture encoder in either layout."""

    files: Files

    def configs(self) -> tuple[dict[str, Any], dict[str, Any], int]:
        """Fields of `Blip2VisionConfig` and `Blip2QFormerConfig`, and the queries."""
        if (path := self.files.find("config.json")) is None:
            return self._lavis().configs()
        stored = read_json(path)
        if "qformer_config" not in stored:
            raise CheckpointError(f"{path} describes no BLIP-2: it has no qformer_config")
        qformer = section(stored, "qformer_config", str(path))
        vision = section({"vision_config": {}} | stored, "vision_config", str(path))
        queries = count({"num_query_tokens": 32} | stored, "num_query_tokens", str(path))
        return dict(vision), dict(qformer), queries

    def _lavis(self) -> Lavis:
        if self.files.find(VIT) is None:
            raise CheckpointError(
                f"{self.files.describe()} holds no BLIP-2: neither config.json with "
                f"model.safetensors, nor LAVIS's {VIT} and {QFORMER}"
            )
        return Lavis(self.files)

    def fill(self, encoder: Any, device: torch.device, dtype: torch.dtype) -> None:
        """Fill a `PictureEncoder`, but for its projection."""
        names = [n for n in encoder.state_dict() if not n.startswith("llama_proj.")]
        if self.files.find("config.json") is None:
            self._lavis().fill(encoder, names, device, dtype)
            return
        wanted = ("vision_model.", "qformer.", "query_tokens")
        fill(
            encoder,
            stored_tensors(self.files, lambda name: name.startswith(wanted)),
            identical(names),
            source=self.files.describe(),
            device=device,
            dtype=dtype,
        )
