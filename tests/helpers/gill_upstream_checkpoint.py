"""The tiny checkpoints, in their published files, on which upstream was run.

Made by frozen generators only, so that the results stay valid whatever our own toy
models become.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

WIDTH, FFN, LAYERS, HEADS = 64, 128, 2, 4
EYES, SIDE, PATCH = 32, 28, 14
MAPPER, OUT, VOKENS, VISUAL = 32, 32, 8, 4
WORDS = ("the", "a", "red", "bird", "house", "river", "quiet", "boat", "then", "shows")
WORDS += ("small", "light")
SPACE, NEWLINE = "\u0120", "\u010a"


def vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """OPT's special tokens, all bytes, the words; and the merges that make the words."""
    from tokenizers import pre_tokenizers

    names = ["<s>", "<pad>", "</s>", "<unk>"]
    names += sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = []
    for word in (SPACE + w for w in WORDS):
        for end in range(1, len(word)):
            if word[: end + 1] not in names:
                names.append(word[: end + 1])
                merges.append((word[:end], word[end]))
    return {name: i for i, name in enumerate(names)}, merges


class _Draws:
    """Tensors from one frozen generator, in the order they are asked for."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.RandomState(seed)

    def normal(self, *shape: int, scale: float | None = None) -> torch.Tensor:
        scale = scale or 1 / math.sqrt(shape[-1])
        return torch.from_numpy(self._random.standard_normal(shape) * scale).float()

    def linear(self, name: str, out: int, inputs: int) -> dict[str, torch.Tensor]:
        weight, bias = self.normal(out, inputs), self.normal(out, scale=0.1)
        return {f"{name}.weight": weight, f"{name}.bias": bias}

    def norm(self, name: str, width: int) -> dict[str, torch.Tensor]:
        weight, bias = self.normal(width, scale=0.2), self.normal(width, scale=0.1)
        return {f"{name}.weight": 1 + weight, f"{name}.bias": bias}


def opt() -> dict[str, torch.Tensor]:
    """`OPTForCausalLM`, with seven unused rows, that asks for images now and then.

    Channel 0 of the residual stream is constant; the tied embeddings read a bias from it.
    """
    draws = _Draws(11)
    ids, _ = vocabulary()
    rows = len(ids) + 7
    tensors = {
        "embed_tokens.weight": draws.normal(rows, WIDTH, scale=0.06),
        "embed_positions.weight": draws.normal(2050, WIDTH, scale=0.06),
    }
    tensors |= draws.norm("final_layer_norm", WIDTH)
    for i in range(LAYERS):
        for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
            tensors |= draws.linear(f"layers.{i}.self_attn.{part}", WIDTH, WIDTH)
        tensors[f"layers.{i}.self_attn.q_proj.weight"] *= 4
        tensors |= draws.linear(f"layers.{i}.fc1", FFN, WIDTH)
        tensors |= draws.linear(f"layers.{i}.fc2", WIDTH, FFN)
        tensors |= draws.norm(f"layers.{i}.self_attn_layer_norm", WIDTH)
        tensors |= draws.norm(f"layers.{i}.final_layer_norm", WIDTH)
        _hold(tensors, f"layers.{i}")
    tensors["embed_positions.weight"][:, 0] = 0.25
    tensors["final_layer_norm.weight"][0], tensors["final_layer_norm.bias"][0] = 400.0, 0.0
    tensors["embed_tokens.weight"][:, 0] = -0.05
    for name, share in [*((SPACE + w, 0.0) for w in WORDS), (".", -0.004), (NEWLINE, 0.0)]:
        tensors["embed_tokens.weight"][ids[name], 0] = share
    stored = {f"model.decoder.{name}": value for name, value in tensors.items()}
    return stored | {"lm_head.weight": tensors["embed_tokens.weight"]}


def _hold(tensors: dict[str, torch.Tensor], layer: str) -> None:
    tensors[f"{layer}.fc2.weight"] -= tensors[f"{layer}.fc2.weight"].mean(1, keepdim=True)
    for name in ("self_attn.out_proj", "fc2"):
        for kind in ("weight", "bias"):
            value = tensors[f"{layer}.{name}.{kind}"]
            value[0] = 0
            value[1:] -= value[1:].mean(0)
    for name in ("self_attn_layer_norm", "final_layer_norm"):
        tensors[f"{layer}.{name}.weight"][0] = tensors[f"{layer}.{name}.bias"][0] = 0


def own() -> dict[str, torch.Tensor]:
    """What GILL trained, by its published names."""
    draws = _Draws(12)
    vokens = draws.normal(VOKENS, WIDTH, scale=0.06)
    vokens[0] *= 0.5
    vokens[:, 0] = 0
    vokens[0, 0] = 0.0035
    tensors = {"logit_scale": torch.tensor(2.6), "input_embeddings.weight": vokens}
    tensors |= draws.linear("visual_embeddings", WIDTH * VISUAL, EYES)
    tensors |= draws.linear("visual_fc", 16, EYES)
    tensors |= draws.linear("ret_text_hidden_fcs.0.model", 16, WIDTH)
    mapper = "gen_text_hidden_fcs.0"
    tensors |= draws.linear(f"{mapper}.fc", MAPPER, WIDTH)
    tensors |= draws.linear(f"{mapper}.model", OUT, MAPPER)
    tensors[f"{mapper}.query_embs"] = draws.normal(1, 77, MAPPER, scale=1.0)
    for i in range(4):
        for side, norms in (("encoder", 2), ("decoder", 3)):
            layer = f"{mapper}.tfm.{side}.layers.{i}"
            for attention in ("self_attn", "multihead_attn")[: norms - 1]:
                projection = draws.linear("in_proj", 3 * MAPPER, MAPPER)
                tensors |= {
                    f"{layer}.{attention}.{n.replace('.', '_')}": t
                    for n, t in projection.items()
                }
                tensors |= draws.linear(f"{layer}.{attention}.out_proj", MAPPER, MAPPER)
            tensors |= draws.linear(f"{layer}.linear1", 4 * MAPPER, MAPPER)
            tensors |= draws.linear(f"{layer}.linear2", MAPPER, 4 * MAPPER)
            for n in range(norms):
                tensors |= draws.norm(f"{layer}.norm{n + 1}", MAPPER)
    for side in ("encoder", "decoder"):
        tensors |= draws.norm(f"{mapper}.tfm.{side}.norm", MAPPER)
    return {f"model.{name}": value for name, value in tensors.items()}


def clip() -> dict[str, torch.Tensor]:
    """The vision tower, and a tensor of the text tower, which is not read."""
    draws = _Draws(13)
    tensors = {
        "embeddings.class_embedding": draws.normal(EYES),
        "embeddings.patch_embedding.weight": draws.normal(EYES, 3, PATCH, PATCH) * 0.05,
        "embeddings.position_embedding.weight": draws.normal(5, EYES),
        "embeddings.position_ids": torch.arange(5)[None],
    }
    for i in range(2):
        layer = f"encoder.layers.{i}"
        for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
            tensors |= draws.linear(f"{layer}.self_attn.{part}", EYES, EYES)
        tensors |= draws.linear(f"{layer}.mlp.fc1", 2 * EYES, EYES)
        tensors |= draws.linear(f"{layer}.mlp.fc2", EYES, 2 * EYES)
        for n in (1, 2):
            tensors |= draws.norm(f"{layer}.layer_norm{n}", EYES)
    tensors |= draws.norm("pre_layrnorm", EYES) | draws.norm("post_layernorm", EYES)
    stored = {f"vision_model.{name}": value for name, value in tensors.items()}
    return stored | {"text_model.final_layer_norm.bias": torch.zeros(16)}


OPT_CONFIG = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "activation_function": "relu",
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "do_layer_norm_before": True,
    "dropout": 0.1,
    "ffn_dim": FFN,
    "hidden_size": WIDTH,
    "max_position_embeddings": 2048,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "prefix": "</s>",
    "torch_dtype": "float16",
    "word_embed_proj_dim": WIDTH,
}
CLIP_CONFIG = {
    "model_type": "clip",
    "vision_config": {
        "hidden_size": EYES,
        "intermediate_size": 2 * EYES,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "image_size": SIDE,
        "patch_size": PATCH,
        "hidden_act": "quick_gelu",
        "model_type": "clip_vision_model",
    },
}
PREPROCESSOR = {
    "crop_size": SIDE,
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "size": SIDE,
}


def checkpoint(folder: Path) -> dict[str, str]:
    """Write GILL, OPT, CLIP and Stable Diffusion; the settings that name them."""
    folders = {
        "model": folder / "gill",
        "language": folder / "facebook" / "opt-tiny",
        "vision": folder / "clip-tiny",
        "diffusion": folder / "sd",
    }
    for place in folders.values():
        place.mkdir(parents=True)
    save_own(folders["model"], own(), folders)
    save_opt(folders["language"])
    save_clip(folders["vision"])
    save_diffusion(folders["diffusion"])
    return {name: str(place) for name, place in folders.items()}


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def save_own(
    folder: Path, tensors: dict[str, torch.Tensor], companions: dict[str, Path]
) -> None:
    """The published files: `model_args.json`, `pretrained_ckpt.pth.tar`."""
    torch.save({"state_dict": tensors}, folder / "pretrained_ckpt.pth.tar")
    first = len(vocabulary()[0]) + 1
    ids = list(range(first, first + VOKENS))
    about = {
        "opt_version": str(companions["language"]),
        "freeze_lm": True,
        "visual_encoder": str(companions["vision"]),
        "freeze_vm": True,
        "n_visual_tokens": VISUAL,
        "ret_emb_dim": 16,
        "gen_emb_dim": OUT,
        "text_emb_layers": [-1],
        "text_fc_mode": "gill_mapper",
        "ret_text_fc_mode": "linear",
        "num_tokens": VOKENS,
        "num_clip_tokens": 77,
        "share_ret_gen": True,
        "retrieval_token_idx": ids,
        "gen_token_idx": ids,
    }
    _write(folder / "model_args.json", about)


def save_opt(folder: Path) -> None:
    """As facebook/opt-6.7b: one pickle (two there), and a slow tokenizer's files."""
    ids, merges = vocabulary()
    _write(folder / "config.json", OPT_CONFIG | {"vocab_size": len(ids) + 7})
    torch.save(opt(), folder / "pytorch_model.bin")
    _write(folder / "vocab.json", ids)
    lines = ["#version: 0.2", *(" ".join(merge) for merge in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n")
    special = {n: _added("</s>") for n in ("bos_token", "eos_token", "unk_token")}
    _write(folder / "special_tokens_map.json", special | {"pad_token": _added("<pad>")})
    about = {"add_bos_token": True, "add_prefix_space": False, "errors": "replace"}
    about |= special | {"pad_token": _added("<pad>"), "tokenizer_class": "GPT2Tokenizer"}
    _write(folder / "tokenizer_config.json", about)


def _added(name: str) -> dict[str, Any]:
    flags = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    return {"content": name} | flags | {"__type": "AddedToken"}


def save_clip(folder: Path) -> None:
    """As openai/clip-vit-large-patch14, of which only the vision tower is read."""
    _write(folder / "config.json", CLIP_CONFIG)
    _write(folder / "preprocessor_config.json", PREPROCESSOR)
    torch.save(clip(), folder / "pytorch_model.bin")


def save_diffusion(folder: Path) -> None:
    """A Stable Diffusion 1.5 pipeline at toy size, in files of diffusers 0.17."""
    import diffusers
    import transformers

    modules = {
        "unet": diffusers.UNet2DConditionModel(
            sample_size=8,
            block_out_channels=(16, 32),
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            layers_per_block=1,
            norm_num_groups=4,
            attention_head_dim=4,
            cross_attention_dim=OUT,
        ),
        "vae": diffusers.AutoencoderKL(
            block_out_channels=(16, 16, 16, 16),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=1,
            latent_channels=4,
            norm_num_groups=4,
            sample_size=64,
            scaling_factor=0.18215,
        ),
        "text_encoder": transformers.CLIPTextModel(
            transformers.CLIPTextConfig(
                vocab_size=514,
                hidden_size=OUT,
                intermediate_size=64,
                num_attention_heads=4,
                num_hidden_layers=2,
                hidden_act="quick_gelu",
                bos_token_id=512,
                eos_token_id=513,
                pad_token_id=513,
            )
        ),
    }
    for seed, (name, module) in enumerate(modules.items()):
        _fill(module, 20 + seed)
        module.save_pretrained(folder / name)
    _prefix(folder / "text_encoder" / "model.safetensors", "text_model.")
    scheduler = diffusers.PNDMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        steps_offset=1,
        skip_prk_steps=True,
        set_alpha_to_one=False,
    )
    scheduler.save_pretrained(folder / "scheduler")
    _save_clip_tokenizer(folder / "tokenizer")
    _write(folder / "model_index.json", MODEL_INDEX)


def _prefix(path: Path, prefix: str) -> None:
    """Published names; transformers 5 leaves the prefix out."""
    tensors = {prefix + k.removeprefix(prefix): v for k, v in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})


MODEL_INDEX = {
    "_class_name": "StableDiffusionPipeline",
    "_diffusers_version": "0.17.1",
    "feature_extractor": [None, None],
    "requires_safety_checker": False,
    "safety_checker": [None, None],
    "scheduler": ["diffusers", "PNDMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}


def _fill(module: torch.nn.Module, seed: int) -> None:
    """Unit gain for matrices and kernels, norms about 1, small biases, by sorted name."""
    draws = _Draws(seed)
    for name, value in sorted(module.state_dict().items()):
        if not value.is_floating_point():
            continue
        fan_in = math.prod(value.shape[1:])
        if value.dim() > 1:
            value.copy_(draws.normal(*value.shape, scale=fan_in**-0.5))
        else:
            value.copy_(draws.normal(*value.shape, scale=0.1) + name.endswith("weight"))


def _save_clip_tokenizer(folder: Path) -> None:
    from tokenizers import pre_tokenizers

    folder.mkdir()
    inside = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*inside, *(c + "</w>" for c in inside), "<|startoftext|>", "<|endoftext|>"]
    _write(folder / "vocab.json", {name: i for i, name in enumerate(names)})
    (folder / "merges.txt").write_text("#version: 0.2\n")
    end = dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    about = end | {"bos_token": "<|startoftext|>", "model_max_length": 77}
    _write(folder / "special_tokens_map.json", end | {"bos_token": "<|startoftext|>"})
    _write(folder / "tokenizer_config.json", about | {"tokenizer_class": "CLIPTokenizer"})
