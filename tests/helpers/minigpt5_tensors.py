"""Tensors of tiny MiniGPT-5 checkpoints under their published names.

They come from frozen generators, so that what was computed from them elsewhere stays
valid.
"""

from __future__ import annotations

import math

import numpy as np
import torch

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

SAVED = "modules_to_save.default.weight"
LLAMA_2 = "model.llama_model.base_model.model."
"""How names of stage 2 end and begin."""

Tensors = dict[str, torch.Tensor]


class Dice:
    """Random tensors, norms and biases included, so that swapped names are noticed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.RandomState(seed)

    def normal(self, *shape: int, scale: float | None = None) -> torch.Tensor:
        scale = scale or 1 / math.sqrt(shape[-1])
        return torch.from_numpy(self._random.standard_normal(shape) * scale).float()

    def linear(self, tensors: Tensors, name: str, outputs: int, inputs: int) -> None:
        tensors[f"{name}.weight"] = self.normal(outputs, inputs)
        tensors[f"{name}.bias"] = self.normal(outputs, scale=0.1)

    def norm(self, tensors: Tensors, name: str, width: int) -> None:
        tensors[f"{name}.weight"] = 1 + self.normal(width, scale=0.1)
        tensors[f"{name}.bias"] = self.normal(width, scale=0.1)


def vicuna() -> Tensors:
    """The language model as Vicuna v0 is stored, rotary buffers included."""
    dice, tensors = Dice(1), {}
    tensors["model.embed_tokens.weight"] = dice.normal(PIECES, WIDTH, scale=1.0)
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        for name in "qkvo":
            weight = dice.normal(WIDTH, WIDTH)
            tensors[f"{layer}.self_attn.{name}_proj.weight"] = weight
        tensors[f"{layer}.self_attn.o_proj.weight"][0] = 0
        tensors[f"{layer}.mlp.gate_proj.weight"] = dice.normal(INNER, WIDTH)
        tensors[f"{layer}.mlp.up_proj.weight"] = dice.normal(INNER, WIDTH)
        tensors[f"{layer}.mlp.down_proj.weight"] = dice.normal(WIDTH, INNER)
        tensors[f"{layer}.mlp.down_proj.weight"][0] = 0
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{layer}.{name}.weight"] = 1 + dice.normal(WIDTH, scale=0.1)
            tensors[f"{layer}.{name}.weight"][0] = 0
        tensors[f"{layer}.self_attn.rotary_emb.inv_freq"] = 1 / 10000 ** (
            torch.arange(0, WIDTH // HEADS, 2).float() / (WIDTH // HEADS)
        )
    tensors["model.norm.weight"] = torch.ones(WIDTH)
    tensors["lm_head.weight"] = dice.normal(PIECES, WIDTH)
    return tensors


def tables(dice: Dice) -> tuple[torch.Tensor, torch.Tensor]:
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


def mapper(dice: Dice) -> Tensors:
    """`llm_to_t2i_mapping.*`, written down from `nn.Transformer`'s source."""
    tensors: Tensors = {}

    def attention(name: str) -> None:
        tensors[f"{name}.in_proj_weight"] = dice.normal(3 * OUT, OUT)
        tensors[f"{name}.in_proj_bias"] = dice.normal(3 * OUT, scale=0.1)
        dice.linear(tensors, f"{name}.out_proj", OUT, OUT)

    for side, norms in (("encoder", 2), ("decoder", 3)):
        for i in range(4):
            layer = f"llm_to_t2i_mapping.{side}.layers.{i}"
            attention(f"{layer}.self_attn")
            if side == "decoder":
                attention(f"{layer}.multihead_attn")
            dice.linear(tensors, f"{layer}.linear1", MAPPER_INNER, OUT)
            dice.linear(tensors, f"{layer}.linear2", OUT, MAPPER_INNER)
            for n in range(norms):
                dice.norm(tensors, f"{layer}.norm{n + 1}", OUT)
        dice.norm(tensors, f"llm_to_t2i_mapping.{side}.norm", OUT)
    return tensors


def stage_1() -> Tensors:
    dice, llama = Dice(2), "model.llama_model."
    embeddings, head = tables(dice)
    tensors = {
        f"{llama}model.embed_tokens.weight": embeddings,
        f"{llama}lm_head.weight": head,
        "t2i_decoder_prompt": dice.normal(1, 77, OUT, scale=1.0),
    }
    dice.linear(tensors, "fc.0", OUT, WIDTH)
    dice.linear(tensors, "fc.2", OUT, OUT)
    return tensors | mapper(dice)


def stage_2(seed: int = 3) -> Tensors:
    dice = Dice(seed)
    embeddings, head = tables(dice)
    tensors = {
        f"{LLAMA_2}model.embed_tokens.{SAVED}": embeddings,
        f"{LLAMA_2}lm_head.{SAVED}": head,
    }
    for i in range(LAYERS):
        for name in ("q_proj", "v_proj"):
            update = f"{LLAMA_2}model.layers.{i}.self_attn.{name}.lora_"
            tensors[f"{update}A.default.weight"] = dice.normal(RANK, WIDTH, scale=0.3)
            tensors[f"{update}B.default.weight"] = dice.normal(WIDTH, RANK, scale=0.3)
    return tensors | mapper(dice)


def eva_vit(blocks: int = VIT_LAYERS) -> Tensors:
    """`eva_vit_g.pth`, with the head of EVA-CLIP."""
    dice, tensors = Dice(4), {}
    tensors["cls_token"] = dice.normal(1, 1, VIT, scale=1.0)
    tensors["pos_embed"] = dice.normal(1, (SIDE // PATCH) ** 2 + 1, VIT, scale=0.5)
    patches = dice.normal(VIT, 3 * PATCH * PATCH).view(VIT, 3, PATCH, PATCH)
    tensors["patch_embed.proj.weight"] = patches
    tensors["patch_embed.proj.bias"] = dice.normal(VIT, scale=0.1)
    for i in range(blocks):
        block = f"blocks.{i}"
        dice.norm(tensors, f"{block}.norm1", VIT)
        tensors[f"{block}.attn.q_bias"] = dice.normal(VIT, scale=0.1)
        tensors[f"{block}.attn.v_bias"] = dice.normal(VIT, scale=0.1)
        tensors[f"{block}.attn.qkv.weight"] = dice.normal(3 * VIT, VIT)
        dice.linear(tensors, f"{block}.attn.proj", VIT, VIT)
        dice.norm(tensors, f"{block}.norm2", VIT)
        dice.linear(tensors, f"{block}.mlp.fc1", VIT_INNER, VIT)
        dice.linear(tensors, f"{block}.mlp.fc2", VIT, VIT_INNER)
    dice.norm(tensors, "norm", VIT)
    dice.linear(tensors, "head", 10, VIT)
    return tensors


def lavis_qformer() -> Tensors:
    """`blip2_pretrained_flant5xxl.pth`, below `model`."""
    dice, tensors = Dice(5), {}
    tensors["query_tokens"] = dice.normal(1, QUERIES, QFORMER, scale=1.0)
    dice.norm(tensors, "ln_vision", VIT)
    bert = "Qformer.bert."
    tensors[f"{bert}embeddings.position_ids"] = torch.arange(512)[None]
    dice.norm(tensors, f"{bert}embeddings.LayerNorm", QFORMER)
    for i in range(QFORMER_LAYERS):
        layer = f"{bert}encoder.layer.{i}"
        kinds = {"attention": QFORMER} | ({"crossattention": VIT} if i % 2 == 0 else {})
        for kind, width in kinds.items():
            dice.linear(tensors, f"{layer}.{kind}.self.query", QFORMER, QFORMER)
            dice.linear(tensors, f"{layer}.{kind}.self.key", QFORMER, width)
            dice.linear(tensors, f"{layer}.{kind}.self.value", QFORMER, width)
            dice.linear(tensors, f"{layer}.{kind}.output.dense", QFORMER, QFORMER)
            dice.norm(tensors, f"{layer}.{kind}.output.LayerNorm", QFORMER)
        dice.linear(tensors, f"{layer}.intermediate_query.dense", QFORMER_INNER, QFORMER)
        dice.linear(tensors, f"{layer}.output_query.dense", QFORMER, QFORMER_INNER)
        dice.norm(tensors, f"{layer}.output_query.LayerNorm", QFORMER)
    dice.linear(tensors, "t5_proj", 24, QFORMER)
    return tensors


def hugging_blip2() -> Tensors:
    """The same weights as `Salesforce/blip2-flan-t5-xxl` stores them, T5's left out."""
    vit, rest = eva_vit(), lavis_qformer()
    new: Tensors = {"query_tokens": rest["query_tokens"]}
    vision = "vision_model."
    new[f"{vision}embeddings.class_embedding"] = vit["cls_token"]
    new[f"{vision}embeddings.position_embedding"] = vit["pos_embed"]
    for part in ("weight", "bias"):
        patch = vit[f"patch_embed.proj.{part}"]
        new[f"{vision}embeddings.patch_embedding.{part}"] = patch
        new[f"{vision}post_layernorm.{part}"] = rest[f"ln_vision.{part}"]
        new[f"qformer.layernorm.{part}"] = rest[f"Qformer.bert.embeddings.LayerNorm.{part}"]
    for i in range(VIT_LAYERS):
        old, layer = f"blocks.{i}.", f"{vision}encoder.layers.{i}."
        q, v = vit[f"{old}attn.q_bias"], vit[f"{old}attn.v_bias"]
        new[f"{layer}self_attn.qkv.weight"] = vit[f"{old}attn.qkv.weight"]
        new[f"{layer}self_attn.qkv.bias"] = torch.cat([q, torch.zeros(VIT), v])
        for part in ("weight", "bias"):
            new[f"{layer}self_attn.projection.{part}"] = vit[f"{old}attn.proj.{part}"]
            new[f"{layer}layer_norm1.{part}"] = vit[f"{old}norm1.{part}"]
            new[f"{layer}layer_norm2.{part}"] = vit[f"{old}norm2.{part}"]
            new[f"{layer}mlp.fc1.{part}"] = vit[f"{old}mlp.fc1.{part}"]
            new[f"{layer}mlp.fc2.{part}"] = vit[f"{old}mlp.fc2.{part}"]
    for name, value in rest.items():
        if name.startswith("Qformer.bert.encoder."):
            tail = name.removeprefix("Qformer.bert.").replace(".self.", ".attention.")
            new[f"qformer.{tail}"] = value
    new["language_model.shared.weight"] = torch.zeros(3, 3)
    new["language_projection.weight"] = torch.zeros(3, 3)
    return new


def projection() -> Tensors:
    dice, tensors = Dice(6), {}
    dice.linear(tensors, "llama_proj", WIDTH, QFORMER)
    tensors["llama_proj.weight"][0] = 0
    tensors["llama_proj.bias"][0] = HELD
    return tensors


def frozen(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The module with values that only its parameters' names and shapes decide."""
    dice = Dice(seed)
    with torch.no_grad():
        for name, value in sorted(module.named_parameters()):
            if value.dim() > 1:
                new = dice.normal(*value.shape, scale=value[0].numel() ** -0.5)
            else:
                new = dice.normal(*value.shape, scale=0.1) + name.endswith("weight")
            value.copy_(new)
    return module.eval()
