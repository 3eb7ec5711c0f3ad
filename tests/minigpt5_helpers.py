"""Tiny MiniGPT-5 checkpoints in the published layouts, and an independent reference.

Tensors come from frozen generators, so that what was computed from them elsewhere stays
valid. The tokenizer is a SentencePiece model of 400 pieces trained on a page of words.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

TOKENIZER = Path(__file__).parent / "minigpt5_tokenizer.model"
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

Tensors = dict[str, torch.Tensor]


class Dice:
    """Random tensors, norms and biases included, so that no swapped name goes unseen."""

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
    dice, llama = Dice(seed), "model.llama_model.base_model.model."
    embeddings, head = tables(dice)
    saved = "modules_to_save.default.weight"
    tensors = {
        f"{llama}model.embed_tokens.{saved}": embeddings,
        f"{llama}lm_head.{saved}": head,
    }
    for i in range(LAYERS):
        for name in ("q_proj", "v_proj"):
            update = f"{llama}model.layers.{i}.self_attn.{name}.lora_"
            tensors[f"{update}A.default.weight"] = dice.normal(RANK, WIDTH, scale=0.3)
            tensors[f"{update}B.default.weight"] = dice.normal(WIDTH, RANK, scale=0.3)
    return tensors | mapper(dice)


def mapper_of_stage_2() -> Tensors:
    return {k: v for k, v in stage_2().items() if k.startswith("llm_to_t2i_mapping.")}


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


def save_model(folder: Path, **changes: Tensors) -> Path:
    """The layout of KZ-ucsc/MiniGPT5, with the projection beside the stages."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "stage1_cc3m": stage_1(),
        "stage2_vist": stage_2(),
        "stage2_mmdialog": stage_2(13),
    }
    for name, tensors in (files | changes).items():
        lightning = {"pytorch-lightning_version": "2.0.2", "epoch": 1, "global_step": 9}
        torch.save(lightning | {"state_dict": tensors}, folder / f"{name}.ckpt")
    torch.save({"model": projection()}, folder / "prerained_minigpt4_7b.pth")
    return folder


VICUNA_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 0,
    "eos_token_id": 1,
    "hidden_act": "silu",
    "hidden_size": WIDTH,
    "initializer_range": 0.02,
    "intermediate_size": INNER,
    "max_position_embeddings": CONTEXT,
    "model_type": "llama",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "pad_token_id": -1,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "transformers_version": "4.29.0.dev0",
    "use_cache": True,
    "vocab_size": PIECES,
}


def save_vicuna(folder: Path) -> Path:
    """The layout of Vision-CAIR/vicuna-7b: pickled shards, a slow tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, names = vicuna(), sorted(vicuna())
    where = {
        n: f"pytorch_model-0000{1 + (i % 2)}-of-00002.bin" for i, n in enumerate(names)
    }
    for file in sorted(set(where.values())):
        torch.save({n: tensors[n] for n in names if where[n] == file}, folder / file)
    index = {"metadata": {"total_size": 0}, "weight_map": where}
    _write(folder / "pytorch_model.bin.index.json", index)
    _write(folder / "config.json", VICUNA_CONFIG)
    _write(
        folder / "generation_config.json",
        {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0},
    )
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    _write(folder / "special_tokens_map.json", special)
    _write(
        folder / "tokenizer_config.json", special | {"tokenizer_class": "LlamaTokenizer"}
    )
    (folder / "tokenizer.model").write_bytes(TOKENIZER.read_bytes())
    return folder


def save_lavis(folder: Path, vit: Tensors | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(vit or eva_vit(), folder / "eva_vit_g.pth")
    torch.save({"model": lavis_qformer()}, folder / "blip2_pretrained_flant5xxl.pth")
    return folder


def save_blip2(folder: Path, change: Any = None) -> Path:
    """Three safetensors shards, of which the last holds nothing but T5."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = hugging_blip2()
    if change is not None:
        change(tensors)
    t5 = [n for n in tensors if n.startswith("language_")]
    own = sorted(set(tensors) - set(t5))
    where = {n: f"model-0000{1 + (i % 2)}-of-00003.safetensors" for i, n in enumerate(own)}
    where |= dict.fromkeys(t5, "model-00003-of-00003.safetensors")
    for file in sorted(set(where.values())):
        part = {n: tensors[n].contiguous() for n in where if where[n] == file}
        save_file(part, folder / file)
    _write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": where})
    config = {
        "model_type": "blip-2",
        "num_query_tokens": QUERIES,
        "vision_config": {
            "model_type": "blip_2_vision_model",
            "hidden_size": VIT,
            "intermediate_size": VIT_INNER,
            "num_hidden_layers": VIT_LAYERS,
            "num_attention_heads": VIT_HEADS,
            "image_size": SIDE,
            "patch_size": PATCH,
            "dropout": 0.0,
            "projection_dim": 512,
        },
        "qformer_config": {
            "model_type": "blip_2_qformer",
            "hidden_size": QFORMER,
            "intermediate_size": QFORMER_INNER,
            "num_hidden_layers": QFORMER_LAYERS,
            "num_attention_heads": QFORMER // 64,
            "encoder_hidden_size": VIT,
            "position_embedding_type": "absolute",
        },
    }
    _write(folder / "config.json", config)
    return folder


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def save_all(folder: Path) -> dict[str, str]:
    """Every checkpoint of the drafting stage; the settings that name them."""
    return {
        "model": str(save_model(folder / "minigpt5")),
        "language": str(save_vicuna(folder / "vicuna")),
        "vision": str(save_lavis(folder / "lavis")),
    }


UNET = {
    "sample_size": 8,
    "block_out_channels": (16, 32),
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "attention_head_dim": (2, 4),
    "cross_attention_dim": OUT,
    "use_linear_projection": True,
}
VAE = {
    "block_out_channels": (8, 8, 16, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 1,
    "latent_channels": 4,
    "norm_num_groups": 4,
    "sample_size": 64,
}
SCHEDULE = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "steps_offset": 1,
    "skip_prk_steps": True,
    "set_alpha_to_one": False,
}


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


def save_diffusion(folder: Path) -> Path:
    """The layout of stable-diffusion-2-1-base, drawing 64 pixels."""
    from diffusers import (
        AutoencoderKL,
        PNDMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextConfig, CLIPTextModel

    from generators.diffusion.tokenizers import small_tokenizer

    text = CLIPTextConfig(
        vocab_size=600,
        hidden_size=OUT,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        bos_token_id=512,
        eos_token_id=513,
    )
    pipeline = StableDiffusionPipeline(
        vae=frozen(AutoencoderKL(**VAE), 7),
        text_encoder=frozen(CLIPTextModel(text), 8),
        tokenizer=small_tokenizer("clip"),
        unet=frozen(UNet2DConditionModel(**UNET), 9),
        scheduler=PNDMScheduler(**SCHEDULE),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder)
    return folder


@functools.cache
def pieces() -> Any:
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_file=str(TOKENIZER))


@torch.inference_mode()
def upstream_loop(
    language: Any,
    vocabulary: Any,
    settings: Any,
    prompt: torch.Tensor,
    seed: int,
    cached: bool = True,
) -> tuple[list[int], list[torch.Tensor]]:
    """One record by the rules of the paper's program: ids, and states (8, width).

    Prompt (positions, width). A picture's eight vokens go in together. With `cached`
    each pass takes only new positions, as upstream's; else it recomputes everything.
    """
    from transformers import DynamicCache

    model = language.model
    table = model.embed_tokens.weight
    vokens = list(range(len(table) - 9, len(table) - 1))
    generator = torch.Generator().manual_seed(seed)
    cache = DynamicCache() if cached else None
    fed, sequence = prompt.to(table), prompt.to(table)
    ids, pictures, last = [settings.leading_id], [], None
    while True:
        inputs = fed if cached else sequence
        out = model(inputs_embeds=inputs[None], past_key_values=cache, use_cache=cached)
        states = out.last_hidden_state[0][-len(fed) :]
        if ids[-1] == vokens[0]:
            pictures.append(torch.cat([last, states[:-1]]))
        if _ends(ids, settings, vocabulary.stops):
            return ids[1:], pictures
        last = states[-1:]
        logits = language.lm_head(last)[0].double().numpy()
        token = _next_id(logits, ids, settings, vokens[0], len(pictures), generator)
        ids.append(token)
        if token != vokens[0] and _ends(ids, settings, vocabulary.stops):
            return ids[1:], pictures
        fed = table[vokens] if token == vokens[0] else table[[token]]
        sequence = torch.cat([sequence, fed])


def _ends(ids: list[int], settings: Any, stops: Any) -> bool:
    marked = any(tuple(ids[-len(stop) :]) == tuple(stop) for stop in stops)
    over = len(ids) - 1 >= settings.max_new_tokens
    return marked or ids[-1] == settings.end_id or over


def _next_id(
    logits: np.ndarray,
    ids: list[int],
    settings: Any,
    begin: int,
    drawn: int,
    generator: torch.Generator,
) -> int:
    for i in set(ids):
        factor = settings.repetition_penalty
        logits[i] = logits[i] * factor if logits[i] < 0 else logits[i] / factor
    if drawn == settings.max_images:
        logits[begin] = -np.inf
    if settings.force_image and begin not in ids:
        logits[:begin] = logits[begin + 1 :] = -np.inf
    if settings.greedy:
        return int(logits.argmax())
    scaled = logits / settings.temperature
    if settings.top_k:
        scaled[scaled < np.sort(scaled)[-settings.top_k]] = -np.inf
    p = np.exp(scaled - scaled.max())
    p /= p.sum()
    order = np.argsort(p, kind="stable")
    p[order[:-1][np.cumsum(p[order])[:-1] <= 1 - settings.top_p]] = 0
    draw = float(torch.rand((), generator=generator, dtype=torch.float64))
    return int(np.searchsorted(np.cumsum(p), draw * p.sum(), side="right"))
