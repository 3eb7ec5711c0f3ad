"""Tiny MiniGPT-5 checkpoints in the published layouts.

The tokenizer is a SentencePiece model of 400 pieces trained on a page of words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from minigpt5_tensors import (
    CONTEXT,
    HEADS,
    INNER,
    LAYERS,
    OUT,
    PATCH,
    PIECES,
    QFORMER,
    QFORMER_INNER,
    QFORMER_LAYERS,
    QUERIES,
    SIDE,
    VIT,
    VIT_HEADS,
    VIT_INNER,
    VIT_LAYERS,
    WIDTH,
    Tensors,
    eva_vit,
    frozen,
    hugging_blip2,
    lavis_qformer,
    projection,
    stage_1,
    stage_2,
    vicuna,
)
from paths import DATA
from safetensors.torch import save_file

from generators.minigpt5.draft import MiniGPT5Draft
from generators.minigpt5.render import MiniGPT5Render

TOKENIZER = DATA / "minigpt5_tokenizer.model"


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


def save_diffusion(folder: Path) -> Path:
    """The layout of stable-diffusion-2-1-base, drawing 64 pixels."""
    from diffusers import (
        AutoencoderKL,
        PNDMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextConfig, CLIPTextModel

    from generators.diffusion.builds import small_tokenizer

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


def drafting(places: Mapping[str, str], **settings: Any) -> MiniGPT5Draft:
    """The drafting stage of the checkpoints that `places` names."""
    named = {k: places[k] for k in ("model", "language", "vision")}
    own = {"device": "cpu", "dtype": "float32"}
    return MiniGPT5Draft(weights="pretrained", **(named | own | settings))


def rendering(places: Mapping[str, str], **settings: Any) -> MiniGPT5Render:
    """The drawing stage of the checkpoints that `places` names."""
    named = {k: places[k] for k in ("model", "diffusion")}
    own = {"device": "cpu", "dtype": "float32", "steps": 2, "height": 64, "width": 64}
    return MiniGPT5Render(weights="pretrained", **(named | own | settings))
