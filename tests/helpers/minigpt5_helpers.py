"""MiniGPT-5's checkpoints and questions on which `minigpt5_upstream.npz` holds results.

The arrays were made by the original program
(eric-ai-lab/MiniGPT-5@915ab17, transformers 4.31.0, peft 0.10.0, diffusers 0.27.2) on the
weights that `save_all` writes, in float32 on a CPU. Patched there: sizes of the ViT and of
the Q-Former, paths, cuda and bfloat16, the ids of `###`, and the random number of each
sampled id, which is the first whose cumulative probability exceeds it.

The tokenizer is a SentencePiece model of 400 pieces trained on a page of words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from frozen import (
    Draws,
    State,
    every,
    published_config,
    rotary,
    save_shards,
    stable_diffusion,
    write_json,
)
from paths import DATA
from picture_helpers import png
from PIL import Image as Pillow

from plait.generators.document import Image, Request, Text, Turn

PIECES = 400
ROWS = PIECES + 9
MARKS = ((261,), (259, 361))
"""Ids of `###`, alone and in two pieces."""
WIDTH, LAYERS, HEADS, INNER, CONTEXT = 64, 2, 4, 96, 512
VIT, VIT_HEADS, VIT_LAYERS, VIT_INNER, PATCH, SIDE = 176, 2, 2, 120, 14, 28
QUERIES, QFORMER, QFORMER_LAYERS, QFORMER_INNER = 5, 128, 4, 160
OUT, RANK, MAPPER_INNER = 32, 3, 128
"""The published program takes four times OUT for MAPPER_INNER."""
HELD = 4.0
"""Channel 0 of every position, which no layer writes to; the head reads a bias there."""

NORMS = ("input_layernorm", "post_attention_layernorm")
SAVED = "modules_to_save.default.weight"
LLAMA_2 = "model.llama_model.base_model.model."
"""How names of stage 2 end and begin."""


def vicuna() -> State:
    """The language model as Vicuna v0 is stored, rotary buffers included."""
    dice = Draws(1)
    tensors = dice.tensors
    tensors["model.embed_tokens.weight"] = dice.normal(PIECES, WIDTH, scale=1.0)
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        for name in "qkvo":
            dice.matrix(f"{layer}.self_attn.{name}_proj", WIDTH, WIDTH)
        dice.matrix(f"{layer}.mlp.gate_proj", INNER, WIDTH)
        dice.matrix(f"{layer}.mlp.up_proj", INNER, WIDTH)
        dice.matrix(f"{layer}.mlp.down_proj", WIDTH, INNER)
        for name in NORMS:
            tensors[f"{layer}.{name}.weight"] = 1 + dice.normal(WIDTH, scale=0.1)
        for name in ("self_attn.o_proj", "mlp.down_proj", *NORMS):
            tensors[f"{layer}.{name}.weight"][0] = 0
        tensors[f"{layer}.self_attn.rotary_emb.inv_freq"] = rotary(WIDTH // HEADS)
    tensors["model.norm.weight"] = torch.ones(WIDTH)
    dice.matrix("lm_head", PIECES, WIDTH)
    return tensors


def tables(dice: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings and head that write words, draw now and then and come to an end."""
    embeddings = dice.normal(ROWS, WIDTH, scale=1.0)
    embeddings[:, 0] = HELD
    head = dice.normal(ROWS, WIDTH)
    head[:, 0] = 0.0
    # Bytes, specials and the added ids are rare; channel 0 is about 2.6 after the norm.
    head[:259, 0] = head[PIECES:, 0] = -1.5
    head[PIECES, 0] = 1.3
    head[MARKS[0][0], 0] = 0.4
    return embeddings, head


def mapper(dice: Draws) -> None:
    """Draw `llm_to_t2i_mapping.*`."""
    for side in ("encoder", "decoder"):
        for i in range(4):
            layer = f"llm_to_t2i_mapping.{side}.layers.{i}"
            dice.layer(layer, OUT, MAPPER_INNER, side == "decoder")
        dice.norm(f"llm_to_t2i_mapping.{side}.norm", OUT)


def stage_1() -> State:
    dice, llama = Draws(2), "model.llama_model."
    tensors = dice.tensors
    embeddings, head = tables(dice)
    tensors[f"{llama}model.embed_tokens.weight"] = embeddings
    tensors[f"{llama}lm_head.weight"] = head
    tensors["t2i_decoder_prompt"] = dice.normal(1, 77, OUT, scale=1.0)
    dice.linear("fc.0", OUT, WIDTH)
    dice.linear("fc.2", OUT, OUT)
    mapper(dice)
    return tensors


def stage_2(seed: int = 3) -> State:
    dice = Draws(seed)
    tensors = dice.tensors
    embeddings, head = tables(dice)
    tensors[f"{LLAMA_2}model.embed_tokens.{SAVED}"] = embeddings
    tensors[f"{LLAMA_2}lm_head.{SAVED}"] = head
    for i in range(LAYERS):
        for name in ("q_proj", "v_proj"):
            update = f"{LLAMA_2}model.layers.{i}.self_attn.{name}.lora_"
            dice.matrix(f"{update}A.default", RANK, WIDTH, 0.3)
            dice.matrix(f"{update}B.default", WIDTH, RANK, 0.3)
    mapper(dice)
    return tensors


def eva_vit(blocks: int = VIT_LAYERS) -> State:
    """`eva_vit_g.pth`, with the head of EVA-CLIP."""
    dice = Draws(4)
    tensors = dice.tensors
    tensors["cls_token"] = dice.normal(1, 1, VIT, scale=1.0)
    tensors["pos_embed"] = dice.normal(1, (SIDE // PATCH) ** 2 + 1, VIT, scale=0.5)
    patches = dice.normal(VIT, 3 * PATCH * PATCH).view(VIT, 3, PATCH, PATCH)
    tensors["patch_embed.proj.weight"] = patches
    tensors["patch_embed.proj.bias"] = dice.normal(VIT, scale=0.1)
    for i in range(blocks):
        block = f"blocks.{i}"
        dice.norm(f"{block}.norm1", VIT)
        tensors[f"{block}.attn.q_bias"] = dice.normal(VIT, scale=0.1)
        tensors[f"{block}.attn.v_bias"] = dice.normal(VIT, scale=0.1)
        tensors[f"{block}.attn.qkv.weight"] = dice.normal(3 * VIT, VIT)
        dice.linear(f"{block}.attn.proj", VIT, VIT)
        dice.norm(f"{block}.norm2", VIT)
        dice.linear(f"{block}.mlp.fc1", VIT_INNER, VIT)
        dice.linear(f"{block}.mlp.fc2", VIT, VIT_INNER)
    dice.norm("norm", VIT)
    dice.linear("head", 10, VIT)
    return tensors


def lavis_qformer() -> State:
    """`blip2_pretrained_flant5xxl.pth`, below `model`."""
    dice = Draws(5)
    tensors = dice.tensors
    tensors["query_tokens"] = dice.normal(1, QUERIES, QFORMER, scale=1.0)
    dice.norm("ln_vision", VIT)
    bert = "Qformer.bert."
    tensors[f"{bert}embeddings.position_ids"] = torch.arange(512)[None]
    dice.norm(f"{bert}embeddings.LayerNorm", QFORMER)
    for i in range(QFORMER_LAYERS):
        layer = f"{bert}encoder.layer.{i}"
        kinds = {"attention": QFORMER} | ({"crossattention": VIT} if i % 2 == 0 else {})
        for kind, width in kinds.items():
            dice.linear(f"{layer}.{kind}.self.query", QFORMER, QFORMER)
            dice.linear(f"{layer}.{kind}.self.key", QFORMER, width)
            dice.linear(f"{layer}.{kind}.self.value", QFORMER, width)
            dice.linear(f"{layer}.{kind}.output.dense", QFORMER, QFORMER)
            dice.norm(f"{layer}.{kind}.output.LayerNorm", QFORMER)
        dice.linear(f"{layer}.intermediate_query.dense", QFORMER_INNER, QFORMER)
        dice.linear(f"{layer}.output_query.dense", QFORMER, QFORMER_INNER)
        dice.norm(f"{layer}.output_query.LayerNorm", QFORMER)
    dice.linear("t5_proj", 24, QFORMER)
    return tensors


_RENAMED = {
    "cls_token": "embeddings.class_embedding",
    "pos_embed": "embeddings.position_embedding",
    "patch_embed.proj": "embeddings.patch_embedding",
    "blocks.": "encoder.layers.",
    "attn.proj": "self_attn.projection",
    "attn.qkv": "self_attn.qkv",
    ".norm": ".layer_norm",
}


def hugging_blip2() -> State:
    """The same weights as `Salesforce/blip2-flan-t5-xxl` stores them, T5's left out."""
    vit, rest = eva_vit(), lavis_qformer()
    new: State = {"query_tokens": rest["query_tokens"]}
    for i in range(VIT_LAYERS):
        q, v = (vit.pop(f"blocks.{i}.attn.{x}_bias") for x in "qv")
        vit[f"blocks.{i}.attn.qkv.bias"] = torch.cat([q, torch.zeros(VIT), v])
    for name, value in vit.items():
        for old, other in _RENAMED.items():
            name = name.replace(old, other)
        if not name.startswith(("norm.", "head.")):
            new[f"vision_model.{name}"] = value
    for part in ("weight", "bias"):
        new[f"vision_model.post_layernorm.{part}"] = rest[f"ln_vision.{part}"]
        new[f"qformer.layernorm.{part}"] = rest[f"Qformer.bert.embeddings.LayerNorm.{part}"]
    for name, value in rest.items():
        if name.startswith("Qformer.bert.encoder."):
            tail = name.removeprefix("Qformer.bert.").replace(".self.", ".attention.")
            new[f"qformer.{tail}"] = value
    new["language_model.shared.weight"] = torch.zeros(3, 3)
    new["language_projection.weight"] = torch.zeros(3, 3)
    return new


def projection() -> State:
    dice = Draws(6)
    tensors = dice.tensors
    dice.linear("llama_proj", WIDTH, QFORMER)
    tensors["llama_proj.weight"][0] = 0
    tensors["llama_proj.bias"][0] = HELD
    return tensors


TOKENIZER = DATA / "minigpt5_tokenizer.model"


def save_model(folder: Path) -> Path:
    """The layout of KZ-ucsc/MiniGPT5, with the projection beside the stages."""
    folder.mkdir(parents=True, exist_ok=True)
    stages = {"1_cc3m": stage_1(), "2_vist": stage_2(), "2_mmdialog": stage_2(13)}
    for name, tensors in stages.items():
        lightning = {"pytorch-lightning_version": "2.0.2", "epoch": 1, "global_step": 9}
        torch.save(lightning | {"state_dict": tensors}, folder / f"stage{name}.ckpt")
    torch.save({"model": projection()}, folder / "prerained_minigpt4_7b.pth")
    return folder


def save_vicuna(folder: Path) -> Path:
    """The layout of Vision-CAIR/vicuna-7b: pickled shards, a slow tokenizer."""
    save_shards(folder, every(vicuna(), 2), "pytorch_model*.bin", ".bin.index.json")
    write_json(folder / "config.json", published_config("vicuna"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    write_json(folder / "special_tokens_map.json", special)
    write_json(
        folder / "tokenizer_config.json", special | {"tokenizer_class": "LlamaTokenizer"}
    )
    (folder / "tokenizer.model").write_bytes(TOKENIZER.read_bytes())
    return folder


def save_lavis(folder: Path, vit: State | None = None) -> Path:
    """The two files of LAVIS."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(vit or eva_vit(), folder / "eva_vit_g.pth")
    torch.save({"model": lavis_qformer()}, folder / "blip2_pretrained_flant5xxl.pth")
    return folder


def save_blip2(folder: Path) -> Path:
    """Three safetensors shards, of which the last holds nothing but T5."""
    state = hugging_blip2()
    t5 = {n: state.pop(n) for n in list(state) if n.startswith("language_")}
    save_shards(folder, [*every(state, 2), t5])
    write_json(folder / "config.json", published_config("blip-2"))
    return folder


def save_all(folder: Path) -> dict[str, str]:
    """Every checkpoint of the drafting stage; the settings that name them."""
    return {
        "model": str(save_model(folder / "minigpt5")),
        "language": str(save_vicuna(folder / "vicuna")),
        "vision": str(save_lavis(folder / "lavis")),
    }


def save_diffusion(folder: Path) -> Path:
    """The layout of stable-diffusion-2-1-base."""
    text = published_config("minigpt5 text encoder")
    unet = {"attention_head_dim": (2, 4), "use_linear_projection": True}
    unet |= {"cross_attention_dim": OUT}
    return stable_diffusion(folder, (9, 7, 8), unet, (8, 8, 16, 16), text)


PICTURES = {"wide": (50, 31), "tall": (23, 60), "square": (28, 28), "odd": (37, 36)}
"""Name -> width and height."""

QUESTIONS: list[list[str]] = [
    ["the quiet old river", "wide", " grows under the house.", "tall", "\n"],
    ["Tell me of the garden, slowly"],
    ["square", "a bird  and\n### a boat", "odd", "wide", " then"],
]
"""Text, and names of images."""

RUNS: list[dict[str, Any]] = [
    {"seed": 3},
    {"seed": 4},
    {"seed": 15, "force_image": True},
    {"seed": 6, "max_new_tokens": 24},
    {"seed": 7, "finetuned": "mmdialog"},
    {"seed": 8, "finetuned": "none"},
]
"""Settings of the runs, each over all questions."""

STEPS = 12
NOISE_SEED = 77


def picture(name: str) -> Pillow.Image:
    """Smooth colours with some noise."""
    width, height = PICTURES[name]
    random = np.random.RandomState(sum(map(ord, name)))
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (3 + c) + c) * np.cos(y / (5 - c)) for c in range(3)]
    values = 128 + 90 * np.stack(waves, axis=-1) + random.normal(0, 12, (height, width, 3))
    return Pillow.fromarray(values.clip(0, 255).astype(np.uint8))


def encoded(name: str) -> Image:
    return png(picture(name))


def request(question: list[str], seed: int) -> Request:
    content = tuple(encoded(s) if s in PICTURES else Text(s) for s in question)
    return Request((Turn("user", content),), seed=seed)
