"""BAGEL's checkpoint and requests on which `bagel_upstream.npz` holds results.

The arrays were made by the original program (ByteDance-Seed/Bagel@056b5fd) on the files
that `checkpoint` writes, in float32 on a CPU, with transformers 4.49.0. Of the program only
this was changed: flash-attn, which needs a GPU, was replaced by exact attention, and its
casts to bfloat16 by casts to float32. Its sizes, which it has in code, were those below.
torch's global generator was seeded before each image. The tokenizer stands in the arrays.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from frozen import Shape, State, random_state, write_json
from paths import DATA
from picture_helpers import smooth
from safetensors.torch import save_file

from plait.generators.document import Image, ImageRequest, Request, Text, Turn

LANGUAGE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "model_type": "qwen2",
    "tie_word_embeddings": False,
}
VISION = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 56,
    "patch_size": 7,
    "model_type": "siglip_vision_model",
}
"""Of which the last layer is not stored."""
SIDE, PATCH, CHANNELS, WIDTHS, BLOCKS = 6, 2, 4, (32, 64, 64), 1
"""Patches along a side, latents along a patch's, and the autoencoder's sizes."""
SEED = 7

Part = str | int
ASKED: list[list[Part]] = [
    ["What is near the old house?"],
    [0, "Describe the garden. "],
    ["First", 1, " and then ", 2, "go on"],
    [2],
]
"""What is answered in text: texts, and numbers of images."""
DRAWN: list[list[Part]] = [
    ["a red boat on the river"],
    [0, "make it a quiet street"],
    ["Take", 1, "and this ", 2, "as one"],
    ["under the bridge", 2],
    ["a bird", "in a tree"],
]
"""What is drawn."""
THINKING = {"max_think_token_n": 9}
RUNS: list[dict[str, Any]] = [
    {"num_timesteps": 6},
    {
        "num_timesteps": 5,
        "cfg_text_scale": 4.0,
        "cfg_img_scale": 2.0,
        "cfg_interval": (0.0, 1.0),
        "cfg_renorm_type": "text_channel",
    },
    {
        "num_timesteps": 4,
        "cfg_img_scale": 1.0,
        "cfg_renorm_min": 0.3,
        "cfg_renorm_type": "channel",
        "timestep_shift": 1.0,
    },
    {"num_timesteps": 4, "cfg_text_scale": 1.0},
    {"num_timesteps": 24, "timestep_shift": 1.0},
    {"num_timesteps": 4, "think": True},
]
"""Settings under which all of `DRAWN` was drawn."""


def pictures() -> list[Image]:
    return [smooth(1, 90, 60), smooth(2, 41, 77), smooth(3, 40, 40)]


def requests() -> list[Request]:
    return [Request((Turn("user", content(parts)),)) for parts in ASKED]


def drawings() -> list[ImageRequest]:
    return [ImageRequest(context=content(parts), seed=SEED) for parts in DRAWN]


def content(parts: list[Part]) -> tuple[Text | Image, ...]:
    images = pictures()
    return tuple(Text(p) if isinstance(p, str) else images[p] for p in parts)


@functools.cache
def tokenizer() -> str:
    with np.load(DATA / "bagel_upstream.npz") as stored:
        return stored["tokenizer"].tobytes().decode()


# Shapes under the authors' names, written down from modeling/ of the repository.


def network_shapes(rows: int) -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    width, inner = LANGUAGE["hidden_size"], LANGUAGE["intermediate_size"]
    size = width // LANGUAGE["num_attention_heads"]
    pairs = size * LANGUAGE["num_key_value_heads"]

    def linear(name: str, outputs: int, inputs: int, bias: bool = True) -> None:
        found[f"{name}.weight"] = (outputs, inputs)
        if bias:
            found[f"{name}.bias"] = (outputs,)

    found["language_model.model.embed_tokens.weight"] = (rows, width)
    found["language_model.lm_head.weight"] = (rows, width)
    for twin in ("", "_moe_gen"):
        found[f"language_model.model.norm{twin}.weight"] = (width,)
        for i in range(LANGUAGE["num_hidden_layers"]):
            layer = f"language_model.model.layers.{i}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                found[f"{layer}.{norm}{twin}.weight"] = (width,)
            attention = f"{layer}.self_attn"
            linear(f"{attention}.q_proj{twin}", width, width)
            linear(f"{attention}.k_proj{twin}", pairs, width)
            linear(f"{attention}.v_proj{twin}", pairs, width)
            linear(f"{attention}.o_proj{twin}", width, width, bias=False)
            for norm in ("q_norm", "k_norm"):
                found[f"{attention}.{norm}{twin}.weight"] = (size,)
            for name in ("gate_proj", "up_proj"):
                linear(f"{layer}.mlp{twin}.{name}", inner, width, bias=False)
            linear(f"{layer}.mlp{twin}.down_proj", width, inner, bias=False)
    seen, patch = VISION["hidden_size"], VISION["patch_size"]
    places = (VISION["image_size"] // patch) ** 2
    tower = "vit_model.vision_model"
    linear(f"{tower}.embeddings.patch_embedding", seen, 3 * patch**2)
    found[f"{tower}.embeddings.position_embedding.weight"] = (places, seen)
    for i in range(VISION["num_hidden_layers"] - 1):
        layer = f"{tower}.encoder.layers.{i}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            linear(f"{layer}.self_attn.{name}", seen, seen)
        linear(f"{layer}.mlp.fc1", VISION["intermediate_size"], seen)
        linear(f"{layer}.mlp.fc2", seen, VISION["intermediate_size"])
        for norm in ("layer_norm1", "layer_norm2"):
            _norm(found, f"{layer}.{norm}", seen)
    _norm(found, f"{tower}.post_layernorm", seen)
    linear("connector.fc1", width, seen)
    linear("connector.fc2", width, width)
    found["vit_pos_embed.pos_embed"] = (places, width)
    found["latent_pos_embed.pos_embed"] = (SIDE**2, width)
    linear("time_embedder.mlp.0", width, 256)
    linear("time_embedder.mlp.2", width, width)
    values = PATCH**2 * CHANNELS
    linear("vae2llm", width, values)
    linear("llm2vae", values, width)
    return found


def autoencoder_shapes() -> dict[str, Shape]:
    found: dict[str, Shape] = {}

    def kernel(name: str, outputs: int, inputs: int, side: int = 3) -> None:
        found[f"{name}.weight"] = (outputs, inputs, side, side)
        found[f"{name}.bias"] = (outputs,)

    def block(name: str, inputs: int, outputs: int) -> None:
        _norm(found, f"{name}.norm1", inputs)
        kernel(f"{name}.conv1", outputs, inputs)
        _norm(found, f"{name}.norm2", outputs)
        kernel(f"{name}.conv2", outputs, outputs)
        if inputs != outputs:
            kernel(f"{name}.nin_shortcut", outputs, inputs, 1)

    last = WIDTHS[-1]
    for half in ("encoder", "decoder"):
        block(f"{half}.mid.block_1", last, last)
        block(f"{half}.mid.block_2", last, last)
        _norm(found, f"{half}.mid.attn_1.norm", last)
        for name in ("q", "k", "v", "proj_out"):
            kernel(f"{half}.mid.attn_1.{name}", last, last, 1)
    kernel("encoder.conv_in", WIDTHS[0], 3)
    inputs = WIDTHS[0]
    for level, width in enumerate(WIDTHS):
        for i in range(BLOCKS):
            block(f"encoder.down.{level}.block.{i}", inputs, width)
            inputs = width
        if level < len(WIDTHS) - 1:
            kernel(f"encoder.down.{level}.downsample.conv", width, width)
    _norm(found, "encoder.norm_out", last)
    kernel("encoder.conv_out", 2 * CHANNELS, last)
    kernel("decoder.conv_in", last, CHANNELS)
    inputs = last
    for level, width in reversed([*enumerate(WIDTHS)]):
        for i in range(BLOCKS + 1):
            block(f"decoder.up.{level}.block.{i}", inputs, width)
            inputs = width
        if level > 0:
            kernel(f"decoder.up.{level}.upsample.conv", width, width)
    _norm(found, "decoder.norm_out", inputs)
    kernel("decoder.conv_out", 3, inputs)
    return found


def _norm(found: dict[str, Shape], name: str, width: int) -> None:
    found[f"{name}.weight"] = found[f"{name}.bias"] = (width,)


def network_state(rows: int, end: int) -> State:
    """Random, with a sharp head and an end that is likely now and then."""
    state = random_state(sorted(network_shapes(rows).items()), 41)
    head = state["language_model.lm_head.weight"]
    head *= 3.0
    head[end] *= 1.5
    return state


def checkpoint(folder: Path) -> Path:
    """Write it in the layout of ByteDance-Seed/BAGEL-7B-MoT."""
    from tokenizers import Tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    words = Tokenizer.from_str(tokenizer())
    rows = words.get_vocab_size() + 3
    (folder / "tokenizer.json").write_text(tokenizer())
    write_json(folder / "llm_config.json", LANGUAGE | {"vocab_size": rows})
    write_json(folder / "vit_config.json", VISION)
    state = network_state(rows, words.token_to_id("<|im_end|>"))
    save_file(state, folder / "ema.safetensors", {"format": "pt"})
    autoencoder = random_state(sorted(autoencoder_shapes().items()), 42)
    save_file(autoencoder, folder / "ae.safetensors", {"format": "pt"})
    return folder
