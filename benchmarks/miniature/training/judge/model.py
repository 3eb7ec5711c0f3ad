"""The mini judge: InternVL2's architecture at 2.5 million parameters, and its checkpoint.

A picture is one tile of 64 x 64 pixels, cut into 8 x 8 patches, that a downsampling of 1/4
turns into four tokens: one for each place of a scene.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor
from torch import Tensor, nn
from transformers import InternVLForConditionalGeneration

from benchmarks.miniature.training.judge.wording import pieces, tokenizer_config
from benchmarks.miniature.training.saved import save_halves
from generators.files import write_whole
from scorers.internvl.config import model_config, published_layout
from scorers.internvl.models import JudgeModel, LongRope
from scorers.internvl.settings import checkpoint_config
from scorers.internvl.tokenizer import CONTROLS, PhiTokenizer, added_tokens

SIZES: Mapping[str, Mapping[str, Any]] = {
    "vision": {
        "hidden_size": 96,
        "intermediate_size": 288,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "patch_size": 8,
    },
    "language": {
        "hidden_size": 160,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 5,
        "num_key_value_heads": 5,
        "max_position_embeddings": 2048,
        "original_max_position_embeddings": 2048,
        "rope_theta": 10_000.0,
    },
}
TILE = 64


def described(rows: int) -> dict[str, Any]:
    """The checkpoint's `config.json`, for a vocabulary of `rows`."""
    language = {**SIZES["language"], "vocab_size": rows}
    config = checkpoint_config(SIZES["vision"], language, TILE)
    return config | {"downsample_ratio": 0.25}


def new_judge(seed: int) -> tuple[JudgeModel, bytes]:
    """An untrained judge, and its tokenizer's pieces."""
    proto = pieces()
    told = tokenizer_config(proto)
    tokenizer = PhiTokenizer(proto, told, added_tokens(told))
    rows = SentencePieceProcessor(model_proto=proto).get_piece_size() + len(CONTROLS)
    config = model_config(described(rows), "the mini judge")
    torch.manual_seed(seed)
    # On a CPU, in bfloat16, plain attention learns faster than the fused one.
    model = InternVLForConditionalGeneration._from_config(
        config, attn_implementation="eager"
    )
    _initialised(model)
    rope = LongRope(config.text_config, torch.device("cpu"))
    model.model.language_model.rotary_emb = rope
    return JudgeModel(model, tokenizer, rope), proto


@torch.no_grad()
def _initialised(model: nn.Module) -> None:
    """Weights that suit a narrow model: the libraries' defaults are those of wide ones."""
    for name, weight in model.named_parameters():
        if "lambda_" in name:
            weight.fill_(1.0)
        elif weight.ndim == 2 and "embed_tokens" not in name:
            weight.normal_(0.0, 0.7 / math.sqrt(weight.shape[1]))
        elif weight.ndim >= 2:
            weight.normal_(0.0, 0.05)


def save(judge: JudgeModel, proto: bytes, folder: Path) -> None:
    """The checkpoint in the published layout, as float16."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = judge.model.config.text_config.vocab_size
    tensors = published(judge.model)
    save_halves(tensors, folder / "model.safetensors", format="pt")
    write_whole(folder / "tokenizer.model", proto)
    for name, values in (
        ("config.json", described(rows)),
        ("tokenizer_config.json", tokenizer_config(proto)),
    ):
        text = json.dumps(values, indent=2, sort_keys=True) + "\n"
        write_whole(folder / name, text.encode())


def published(model: nn.Module) -> dict[str, Tensor]:
    """The model's tensors under their published names, attention's projections joined."""
    state = model.state_dict()
    ours = {name: state[place.name] for name, place in published_layout(state).items()}
    joint = {name[:-3] for name in ours if re.search(r"\[[qkv]\]$", name)}
    tensors = {n: t.contiguous() for n, t in ours.items() if not n.endswith("]")}
    return tensors | {n: torch.cat([ours[f"{n}[{p}]"] for p in "qkv"]) for n in joint}
