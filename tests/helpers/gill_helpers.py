"""GILL's checkpoints, prompts and settings on which `gill_upstream.npz` holds results.

The arrays were made by the original program (kohjingyu/gill@4600b71) with transformers
4.30.2 and diffusers 0.17.1 on the weights that `checkpoint` writes, beside the further
files that those versions want, in float32 on a CPU.
Patched there: cuda, bfloat16 and float16; the repository of Stable Diffusion; the widths
of the mapper and of its output, which it fixes at 512 and 768 (32 here); no decision
model; and the random number of each sampled token, which is the first id whose cumulative
probability exceeds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from frozen import Draws, State, picture, published_config, stable_diffusion, write_json
from picture_helpers import png
from safetensors.torch import load_file, save_file

from plait.generators.document import Image, Request, Text, Turn

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


def opt() -> State:
    """`OPTForCausalLM`, with seven unused rows, that asks for images now and then.

    Channel 0 of the residual stream is constant; the tied embeddings read a bias from it.
    """
    draws = Draws(11, norm_scale=0.2)
    ids, _ = vocabulary()
    embed, position = "embed_tokens.weight", "embed_positions.weight"
    tensors = draws.tensors
    tensors[embed] = draws.normal(len(ids) + 7, WIDTH, scale=0.06)
    tensors[position] = draws.normal(2050, WIDTH, scale=0.06)
    draws.norm("final_layer_norm", WIDTH)
    for i in range(LAYERS):
        for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
            draws.linear(f"layers.{i}.self_attn.{part}", WIDTH, WIDTH)
        tensors[f"layers.{i}.self_attn.q_proj.weight"] *= 4
        draws.linear(f"layers.{i}.fc1", FFN, WIDTH)
        draws.linear(f"layers.{i}.fc2", WIDTH, FFN)
        draws.norm(f"layers.{i}.self_attn_layer_norm", WIDTH)
        draws.norm(f"layers.{i}.final_layer_norm", WIDTH)
        _hold(tensors, f"layers.{i}")
    tensors[position][:, 0] = 0.25
    tensors["final_layer_norm.weight"][0], tensors["final_layer_norm.bias"][0] = 400.0, 0.0
    tensors[embed][:, 0] = -0.05
    for name, share in [*((SPACE + w, 0.0) for w in WORDS), (".", -0.004), (NEWLINE, 0.0)]:
        tensors[embed][ids[name], 0] = share
    stored = {f"model.decoder.{name}": value for name, value in tensors.items()}
    return stored | {"lm_head.weight": tensors[embed]}


def _hold(tensors: State, layer: str) -> None:
    tensors[f"{layer}.fc2.weight"] -= tensors[f"{layer}.fc2.weight"].mean(1, keepdim=True)
    for name in ("self_attn.out_proj", "fc2"):
        for kind in ("weight", "bias"):
            value = tensors[f"{layer}.{name}.{kind}"]
            value[0] = 0
            value[1:] -= value[1:].mean(0)
    for name in ("self_attn_layer_norm", "final_layer_norm"):
        tensors[f"{layer}.{name}.weight"][0] = tensors[f"{layer}.{name}.bias"][0] = 0


def own() -> State:
    """What GILL trained, by its published names."""
    draws = Draws(12, norm_scale=0.2)
    vokens = draws.normal(VOKENS, WIDTH, scale=0.06)
    vokens[0] *= 0.5
    vokens[:, 0] = 0
    vokens[0, 0] = 0.0035
    draws.tensors |= {"logit_scale": torch.tensor(2.6), "input_embeddings.weight": vokens}
    draws.linear("visual_embeddings", WIDTH * VISUAL, EYES)
    draws.linear("visual_fc", 16, EYES)
    draws.linear("ret_text_hidden_fcs.0.model", 16, WIDTH)
    mapper = "gen_text_hidden_fcs.0"
    draws.linear(f"{mapper}.fc", MAPPER, WIDTH)
    draws.linear(f"{mapper}.model", OUT, MAPPER)
    draws.tensors[f"{mapper}.query_embs"] = draws.normal(1, 77, MAPPER, scale=1.0)
    for i in range(4):
        for side in ("encoder", "decoder"):
            layer = f"{mapper}.tfm.{side}.layers.{i}"
            draws.layer(layer, MAPPER, 4 * MAPPER, side == "decoder")
    for side in ("encoder", "decoder"):
        draws.norm(f"{mapper}.tfm.{side}.norm", MAPPER)
    return {f"model.{name}": value for name, value in draws.tensors.items()}


def clip() -> State:
    """The vision tower, and a tensor of the text tower, which is not read."""
    draws = Draws(13, norm_scale=0.2)
    draws.tensors |= {
        "embeddings.class_embedding": draws.normal(EYES),
        "embeddings.patch_embedding.weight": draws.normal(EYES, 3, PATCH, PATCH) * 0.05,
        "embeddings.position_embedding.weight": draws.normal(5, EYES),
        "embeddings.position_ids": torch.arange(5)[None],
    }
    for i in range(2):
        layer = f"encoder.layers.{i}"
        for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
            draws.linear(f"{layer}.self_attn.{part}", EYES, EYES)
        draws.linear(f"{layer}.mlp.fc1", 2 * EYES, EYES)
        draws.linear(f"{layer}.mlp.fc2", EYES, 2 * EYES)
        for n in (1, 2):
            draws.norm(f"{layer}.layer_norm{n}", EYES)
    for name in ("pre_layrnorm", "post_layernorm"):
        draws.norm(name, EYES)
    stored = {f"vision_model.{name}": value for name, value in draws.tensors.items()}
    return stored | {"text_model.final_layer_norm.bias": torch.zeros(16)}


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
    save_own(folders["model"])
    save_opt(folders["language"])
    save_clip(folders["vision"])
    save_diffusion(folders["diffusion"])
    return {name: str(place) for name, place in folders.items()}


def save_own(folder: Path) -> None:
    """The published files: `model_args.json`, `pretrained_ckpt.pth.tar`."""
    torch.save({"state_dict": own()}, folder / "pretrained_ckpt.pth.tar")
    first = len(vocabulary()[0]) + 1
    ids = list(range(first, first + VOKENS))
    about = {"n_visual_tokens": VISUAL, "num_tokens": VOKENS}
    about |= {"retrieval_token_idx": ids, "gen_token_idx": ids}
    write_json(folder / "model_args.json", about)


def save_opt(folder: Path) -> None:
    """As facebook/opt-6.7b: one pickle (two there), and a slow tokenizer's vocabulary."""
    ids, merges = vocabulary()
    write_json(folder / "config.json", published_config("opt"))
    torch.save(opt(), folder / "pytorch_model.bin")
    write_json(folder / "vocab.json", ids)
    lines = ["#version: 0.2", *(" ".join(merge) for merge in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n")


def save_clip(folder: Path) -> None:
    """As openai/clip-vit-large-patch14, of which only the vision tower is read."""
    write_json(folder / "config.json", published_config("clip"))
    preprocessor = published_config("clip preprocessor")
    write_json(folder / "preprocessor_config.json", preprocessor)
    torch.save(clip(), folder / "pytorch_model.bin")


def save_diffusion(folder: Path) -> None:
    """A Stable Diffusion 1.5 at toy size, with the published names of its text encoder."""
    text = published_config("gill text encoder")
    unet = {"attention_head_dim": 4, "cross_attention_dim": OUT}
    stable_diffusion(folder, (20, 21, 22), unet, (16,) * 4, text)
    path, prefix = folder / "text_encoder" / "model.safetensors", "text_model."
    tensors = {prefix + k.removeprefix(prefix): v for k, v in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})


RUNS: list[dict[str, Any]] = [
    {"num_words": 32, "max_num_rets": 1, "ret_scale_factor": 1.0},
    {"num_words": 32, "max_num_rets": 1},
    {},
    {"num_words": 50, "min_word_tokens": 9, "gen_scale_factor": 1.1},
    {"num_words": 24, "newline": "upstream", "truncate_caption": True, "max_num_rets": 2},
    {"num_words": 2, "max_num_rets": 1, "ret_scale_factor": 1.0, "gen_scale_factor": 1e5},
    {"temperature": 0.6, "top_p": 0.95, "ret_scale_factor": 1.0},
    {"temperature": 0.6, "top_p": 0.95, "ret_scale_factor": 1.3, "num_words": 40},
    {"temperature": 1.0, "num_words": 40},
]
"""Settings that differ from `BASE`, the settings of all runs."""

BASE: dict[str, Any] = {
    "num_words": 64,
    "max_num_rets": 4,
    "min_word_tokens": 0,
    "ret_scale_factor": 1.4,
    "gen_scale_factor": 1.0,
    "temperature": 0.0,
    "top_p": 1.0,
    "show_vokens": True,
    "history_images": "vokens",
}
STEPS, GUIDANCE = 4, 7.5

PICTURES = {"wide": (100, 66), "tall": (53, 131), "even": (28, 28), "small": (9, 20)}


def image(name: str) -> Image:
    return png(picture(*PICTURES[name]))


def conversations() -> list[tuple[Turn, ...]]:
    """One question; with an image before it; around two; a dialogue with an image."""
    around = (Text("First"), image("tall"), Text(" and then"), image("small"))
    around += (Text("go on"),)
    drawn = (Text(" a red bird. "), image("even"), Text(" then"))
    return [
        (Turn("user", (Text("the bird in the house"),)),),
        (Turn("user", (image("wide"), Text("What is this?"))),),
        (Turn("user", around),),
        (
            Turn("system", (Text("Be quiet. "),)),
            Turn("user", (Text("show the river"),)),
            Turn("assistant", drawn),
            Turn("user", (Text("and the boat"),)),
        ),
    ]


def request(index: int, seed: int) -> Request:
    return Request(conversations()[index], seed)


def seed_of(conversation: int, run: int) -> int:
    """Seed of a run's sampling, and of its images' noise."""
    return 100 * run + conversation
