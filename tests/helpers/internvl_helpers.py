"""Tiny checkpoints in the layout of MMIE/MMIE-Score, after its sources."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from contents import turn_of
from frozen import every, save_shards
from paths import DATA
from PIL import Image as Pillow

from plait.generators.document import Image, Request
from plait.generators.images import encode
from plait.scorers.internvl.tokenizer import toy_pieces

Tensors = dict[str, torch.Tensor]

CHAT = ("<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>")
"""Phi-3's own added tokens; they take the white space after them."""
PICTURES = ("<img>", "</img>", "<IMG_CONTEXT>")
"""What InternVL adds to them."""


def config(vocabulary: int) -> dict[str, Any]:
    """`config.json` of a toy with every field of a published one."""
    about: dict[str, Any] = json.loads((DATA / "internvl_config.json").read_text())
    about["llm_config"]["vocab_size"] = vocabulary
    return about


def shapes(settings: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the stored tensors, from the published modules' sources."""
    v, t = settings["vision_config"], settings["llm_config"]
    width, inner, patch = v["hidden_size"], v["intermediate_size"], v["patch_size"]
    positions = (settings["force_image_size"] // patch) ** 2 + 1
    result: dict[str, tuple[int, ...]] = {
        "vision_model.embeddings.class_embedding": (1, 1, width),
        "vision_model.embeddings.position_embedding": (1, positions, width),
        "vision_model.embeddings.patch_embedding.weight": (width, 3, patch, patch),
        "vision_model.embeddings.patch_embedding.bias": (width,),
    }

    def linear(name: str, outputs: int, inputs: int, bias: bool = True) -> None:
        result[f"{name}.weight"] = (outputs, inputs)
        if bias:
            result[f"{name}.bias"] = (outputs,)

    def norm(name: str, size: int, bias: bool = True) -> None:
        result[f"{name}.weight"] = (size,)
        if bias:
            result[f"{name}.bias"] = (size,)

    for i in range(v["num_hidden_layers"]):
        layer = f"vision_model.encoder.layers.{i}"
        linear(f"{layer}.attn.qkv", 3 * width, width)
        linear(f"{layer}.attn.proj", width, width)
        linear(f"{layer}.mlp.fc1", inner, width)
        linear(f"{layer}.mlp.fc2", width, inner)
        norm(f"{layer}.norm1", width)
        norm(f"{layer}.norm2", width)
        result[f"{layer}.ls1"] = result[f"{layer}.ls2"] = (width,)
    hidden, joint = t["hidden_size"], 4 * width
    norm("mlp1.0", joint)
    linear("mlp1.1", hidden, joint)
    linear("mlp1.3", hidden, hidden)
    language = "language_model.model"
    result[f"{language}.embed_tokens.weight"] = (t["vocab_size"], hidden)
    for i in range(t["num_hidden_layers"]):
        layer = f"{language}.layers.{i}"
        linear(f"{layer}.self_attn.qkv_proj", 3 * hidden, hidden, bias=False)
        linear(f"{layer}.self_attn.o_proj", hidden, hidden, bias=False)
        linear(f"{layer}.mlp.gate_up_proj", 2 * t["intermediate_size"], hidden, bias=False)
        linear(f"{layer}.mlp.down_proj", hidden, t["intermediate_size"], bias=False)
        norm(f"{layer}.input_layernorm", hidden, bias=False)
        norm(f"{layer}.post_attention_layernorm", hidden, bias=False)
    norm(f"{language}.norm", hidden, bias=False)
    linear("language_model.lm_head", t["vocab_size"], hidden, bias=False)
    return result


def tensors(settings: dict[str, Any], end: int, seed: int = 5) -> Tensors:
    """Random tensors, norms and biases included; `end` is likelier than other tokens."""
    random = np.random.RandomState(seed)
    weights: Tensors = {}
    for name, shape in shapes(settings).items():
        value = torch.from_numpy(random.standard_normal(shape)).float()
        is_scale = "norm" in name or ".ls" in name or name == "mlp1.0.weight"
        if "embed" in name and len(shape) < 4:
            weights[name] = value
        elif len(shape) == 1:
            weights[name] = 0.2 * value + (is_scale and name.endswith(("weight", "1", "2")))
        else:
            weights[name] = value * 1.5 / math.sqrt(math.prod(shape[1:]))
    weights["language_model.lm_head.weight"][end] *= 1.5
    return weights


def tokenizer_config(pieces: bytes, **settings: Any) -> dict[str, Any]:
    """`tokenizer_config.json` of a toy: Phi-3's with the tokens of InternVL."""
    first = sentencepiece.SentencePieceProcessor(model_proto=pieces).get_piece_size()
    roles = [("<unk>", 0, False), ("<s>", 1, False), ("</s>", 2, True)]
    names = [*CHAT, *PICTURES]
    roles += [(name, first + i, name in CHAT) for i, name in enumerate(names)]
    added = {
        str(i): {
            "content": name,
            "lstrip": False,
            "normalized": False,
            "rstrip": rstrip,
            "single_word": False,
            "special": name != "</s>",
        }
        for name, i, rstrip in roles
    }
    return {
        "add_bos_token": True,
        "add_eos_token": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": list(PICTURES),
        "bos_token": "<s>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "legacy": False,
        "model_max_length": 4096,
        "pad_token": "<|endoftext|>",
        "padding_side": "right",
        "tokenizer_class": "LlamaTokenizer",
        "unk_token": "<unk>",
        "use_default_system_prompt": False,
    } | settings


def save(
    folder: Path,
    change: Callable[[Tensors, dict[str, Any]], None] = lambda tensors, config: None,
    pieces: bytes | None = None,
    **tokenizer: Any,
) -> Path:
    """A checkpoint in two shards, with an index, configuration and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = pieces or toy_pieces()
    own = tokenizer_config(pieces, **tokenizer)
    ids = {t["content"]: int(i) for i, t in own["added_tokens_decoder"].items()}
    settings = config(max(ids.values()) + 1)
    weights = tensors(settings, ids["<|end|>"])
    change(weights, settings)
    save_shards(folder, every(weights, 2))
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
    (folder / "tokenizer.model").write_bytes(pieces)
    return folder


def picture(seed: int, width: int, height: int) -> Image:
    """Random colours that change slowly, so that small copies differ from one another."""
    few = np.random.RandomState(seed).randint(0, 256, (4, 5, 3)).astype(np.uint8)
    large = Pillow.fromarray(few).resize((width, height), Pillow.Resampling.BICUBIC)
    return encode(large)


def request(*content: str | Image) -> Request:
    """One question."""
    return Request((turn_of(*content),))
