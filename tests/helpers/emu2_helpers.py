"""Emu2's checkpoints and prompts on which `emu2_upstream.npz` holds results.

The arrays were made by the original program (baaivision/Emu@13c395e, folder Emu2/emu) on
the files that `native_chat` and `native_gen` write, in float32 on a CPU, with
transformers 4.31.0 and diffusers 0.24.0. The program was not changed: it was given the
sizes below as its configuration objects, and torch's global generator was seeded before
each drawing. The sentencepiece model stands in the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from frozen import (
    State,
    every,
    published_config,
    random_state,
    rotary,
    save_shards,
    write_json,
)
from paths import DATA
from picture_helpers import smooth
from safetensors.torch import save_file

from plait.generators.diffusion.builds import module_class
from plait.generators.diffusion.designs import DESIGNS
from plait.generators.document import Image
from plait.generators.emu2.network import ADDED, ADDED_CHAT, VisionSize

CHAT_VISION = VisionSize(
    width=48, layers=2, heads=3, mlp_width=96, patch=4, grid=8, queries=16
)
GEN_VISION = replace(CHAT_VISION, queries=4)
LANGUAGE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
}
PIECES = 480

QUESTIONS: list[list[str | int]] = [
    ["A red house near the river."],
    [0, "What is in the picture? "],
    ["First \n", 0, " and then ", 1, "\n go on "],
    ["the old boat ", 1],
    ["7 + 5 = ? <grounding> find it"],
    ["quiet morning light holds the garden"],
    ["a cup of bird house house red"],
    ["7 large 7 small . red river road"],
]
"""Contents of a user's turn: texts, and numbers of images. For the last two it matters
in runs 4 and 5 how the length of an answer is counted that the token limit cuts."""
DIALOGUE: list[list[str | int]] = [
    ["What is here? ", 0],
    [" A bird stands . "],
    ["And then ? ", 1],
]
"""Turns of user and assistant by turns."""
REQUESTS: list[list[str | int]] = [
    ["a small red boat \n"],
    [0, "with a bird on the table ."],
    [" \n the old house ", 1, " in the garden ", 0, ""],
]
"""What Gen is asked to draw."""
BEAMS = [
    {"num_beams": 5, "length_penalty": -1.0},
    {"num_beams": 1, "length_penalty": -1.0},
    {"num_beams": 3, "length_penalty": 0.0},
    {"num_beams": 4, "length_penalty": -1.0, "repetition_penalty": 1.3},
    {"num_beams": 5, "length_penalty": -1.0, "max_new_tokens": 20},
    {"num_beams": 4, "length_penalty": 1.0, "max_new_tokens": 15},
]
MOST_TOKENS = 12
SIDE, STEPS, NOISE_SEED = 64, 3, 11


def pictures() -> list[Image]:
    return [smooth(1, 90, 60), smooth(2, 41, 77)]


def pieces() -> bytes:
    with np.load(DATA / "emu2_upstream.npz") as stored:
        return stored["pieces"].tobytes()


def state(vision: VisionSize, added: tuple[str, ...], seed: int) -> State:
    """Random, with a sharp head and an end that is likely now and then."""
    sizes = shapes(vision, LANGUAGE, PIECES + len(added))
    made = random_state(sorted(sizes.items()), seed)
    head = made["decoder.lm.lm_head.weight"]
    head *= 3.0
    # Ids that no text is made of would only lengthen what is compared.
    head[PIECES:] *= 0.0
    head[3:259] *= 0.0
    head[2] *= 1.5
    made["decoder.lm.model.embed_tokens.weight"] *= 0.7
    return made


CHAT, GEN = (CHAT_VISION, ADDED_CHAT, 21), (GEN_VISION, ADDED, 22)


def drawing() -> dict[str, torch.nn.Module]:
    """A small UNet on the vectors of Gen, and a small autoencoder."""
    design, width = DESIGNS["emu2"], GEN_VISION.width
    made: dict[str, torch.nn.Module] = {}
    for name, (kind, _) in design.modules.items():
        config = dict(design.config(name, tiny=True))
        if name == "unet":
            time = 6 * config["addition_time_embed_dim"]
            config |= {
                "cross_attention_dim": width,
                "projection_class_embeddings_input_dim": time + width,
            }
        module = module_class(kind)(**config).eval()
        sizes = sorted((k, tuple(v.shape)) for k, v in module.state_dict().items())
        module.load_state_dict(random_state(sizes, 3))
        made[name] = module
    return made


def native_chat(folder: Path) -> Path:
    return save_native(folder, state(*CHAT), CHAT_VISION)


def native_gen(folder: Path, **more: torch.nn.Module) -> Path:
    """`more` are components besides UNet and autoencoder."""
    return save_native(folder, state(*GEN), GEN_VISION, drawing() | more)


def hub_chat(folder: Path) -> Path:
    return save_chat(folder, state(*CHAT), CHAT_VISION)


def hub_gen(folder: Path, **more: torch.nn.Module) -> Path:
    return save_gen(folder, state(*GEN), drawing() | more)


# Shapes under the authors' names, written down from emu/eva_vit.py and emu/emu.py.


def shapes(
    vision: VisionSize, language: Mapping[str, Any], rows: int
) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    width, hidden = vision.width, language["hidden_size"]

    def linear(name: str, inputs: int, outputs: int, bias: bool = False) -> None:
        found[f"{name}.weight"] = (outputs, inputs)
        if bias:
            found[f"{name}.bias"] = (outputs,)

    found["visual.cls_token"] = (1, 1, width)
    found["visual.pos_embed"] = (1, vision.grid**2 + 1, width)
    found["visual.patch_embed.proj.weight"] = (width, 3, vision.patch, vision.patch)
    found["visual.patch_embed.proj.bias"] = (width,)
    for i in range(vision.layers):
        block = f"visual.blocks.{i}"
        for norm in ("norm1", "norm2"):
            found[f"{block}.{norm}.weight"] = found[f"{block}.{norm}.bias"] = (width,)
        linear(f"{block}.attn.qkv", width, 3 * width)
        found[f"{block}.attn.q_bias"] = found[f"{block}.attn.v_bias"] = (width,)
        linear(f"{block}.attn.proj", width, width, bias=True)
        linear(f"{block}.mlp.fc1", width, vision.mlp_width, bias=True)
        linear(f"{block}.mlp.fc2", vision.mlp_width, width, bias=True)
    linear("project_up", width, hidden)
    linear("project_down", hidden, width)
    found["decoder.lm.model.embed_tokens.weight"] = (rows, hidden)
    for i in range(language["num_hidden_layers"]):
        layer = f"decoder.lm.model.layers.{i}"
        for name in "qkvo":
            linear(f"{layer}.self_attn.{name}_proj", hidden, hidden)
        linear(f"{layer}.mlp.gate_proj", hidden, language["intermediate_size"])
        linear(f"{layer}.mlp.up_proj", hidden, language["intermediate_size"])
        linear(f"{layer}.mlp.down_proj", language["intermediate_size"], hidden)
        found[f"{layer}.input_layernorm.weight"] = (hidden,)
        found[f"{layer}.post_attention_layernorm.weight"] = (hidden,)
    found["decoder.lm.model.norm.weight"] = (hidden,)
    linear("decoder.lm.lm_head", hidden, rows)
    return found


def buffers(language: Mapping[str, Any]) -> State:
    """What LLaMA's layers of transformers 4.31 stored besides."""
    frequencies = rotary(language["hidden_size"] // language["num_attention_heads"])
    layers = (f"decoder.lm.model.layers.{i}" for i in range(language["num_hidden_layers"]))
    return {f"{layer}.self_attn.rotary_emb.inv_freq": frequencies for layer in layers}


def hub_state(native: State) -> State:
    """The same under the names of the Hub's layout."""
    return {n if n.startswith("project_") else f"model.{n}": t for n, t in native.items()}


def hub_config(
    vision: VisionSize, language: Mapping[str, Any], rows: int
) -> dict[str, Any]:
    """`config.json` with the fields the Hub's modeling_emu.py reads."""
    about = {
        "head_width": vision.width // vision.heads,
        "image_size": vision.side,
        "layer_norm_eps": vision.norm_eps,
        "mlp_ratio": vision.mlp_width / vision.width,
        "n_query": vision.queries,
        "patch_size": vision.patch,
    }
    about |= {name: getattr(vision, name) for name in ("layers", "width")}
    config = {"d_model": vision.width, "pad_token_id": rows - 272, "vocab_size": rows}
    config |= {"torch_dtype": "bfloat16", "vision_config": about}
    return dict(language) | config


def save_tokenizer(folder: Path, added: tuple[str, ...]) -> None:
    """As the slow tokenizer of transformers 4.31 saves itself."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(pieces())
    ids = {name: PIECES + i for i, name in enumerate(added)}
    write_json(folder / "added_tokens.json", ids)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer"})


def save_chat(
    folder: Path,
    native: State,
    vision: VisionSize,
    language: Mapping[str, Any] = LANGUAGE,
) -> Path:
    """The layout of BAAI/Emu2-Chat: pickled shards with an index, tokenizer beside."""
    save_tokenizer(folder, ADDED_CHAT)
    config = hub_config(vision, language, len(native["decoder.lm.lm_head.weight"]))
    write_json(folder / "config.json", config)
    state = hub_state(native | buffers(language))
    save_shards(folder, every(state, 3), "pytorch_model*.bin", ".bin.index.json")
    return folder


def save_gen(folder: Path, native: State, modules: Mapping[str, torch.nn.Module]) -> Path:
    """The layout of BAAI/Emu2-Gen: a folder for each component, in the variant bf16."""
    save_tokenizer(folder / "tokenizer", ADDED)
    encoder = folder / "multimodal_encoder"
    files = "model.bf16*.safetensors"
    shards = every(hub_state(native), 2)
    save_shards(encoder, shards, files, ".safetensors.index.bf16.json")
    config = hub_config(GEN_VISION, LANGUAGE, len(native["decoder.lm.lm_head.weight"]))
    write_json(encoder / "config.json", config)
    for name, module in modules.items():
        module.save_pretrained(folder / name, variant="bf16")
    save_scheduler(folder)
    write_json(folder / "model_index.json", published_config("emu2 index"))
    return folder


def save_scheduler(folder: Path) -> None:
    """emu/conf/diffusion_config/scheduler of baaivision/Emu."""
    (folder / "scheduler").mkdir(parents=True, exist_ok=True)
    config = published_config("emu2 scheduler")
    write_json(folder / "scheduler" / "scheduler_config.json", config)


def save_native(
    folder: Path,
    native: State,
    vision: VisionSize | None,
    modules: Mapping[str, Any] | None = None,
) -> Path:
    """One file in the authors' layout, beside the files of upstream's emu/conf.

    With `vision` its heads and queries are told; with `modules` it is a file of Gen.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(pieces())
    config: dict[str, Any] = LANGUAGE | {"vocab_size": 32000, "pad_token_id": 0}
    if vision is not None:
        head = vision.width // vision.heads
        config["vision_config"] = {"head_width": head, "n_query": vision.queries}
    write_json(folder / "config.json", config)
    native = native | {n: t.clone() for n, t in buffers(LANGUAGE).items()}
    if modules is None:
        torch.save(native, folder / "Emu2-Chat_pytorch_model.bf16.bin")
        return folder
    state = {f"multimodal_encoder.{n}": t.contiguous() for n, t in native.items()}
    for name, module in modules.items():
        stored = module.state_dict()
        if name == "safety_checker":
            stored, config = older_checker(module)
        else:
            config = {k: v for k, v in dict(module.config).items() if k[0] != "_"}
        state |= {f"{name}.{n}": t.contiguous() for n, t in stored.items()}
        (folder / name).mkdir()
        write_json(folder / name / "config.json", config)
    save_scheduler(folder)
    save_file(state, folder / "Emu2-Gen_pytorch_model.bf16.safetensors")
    return folder


def older_checker(checker: Any) -> tuple[State, dict[str, Any]]:
    """Tensors and configuration of a safety checker as transformers 4.31 wrote them.

    The names are those of the published single file, the settings of generation those of
    upstream's emu/conf/diffusion_config/safety_checker/config.json.
    """
    tower = "vision_model."
    stored = {
        n.replace(tower, tower * 2, 1) if n.startswith(tower) else n: t
        for n, t in checker.state_dict().items()
    }
    positions = checker.vision_model.embeddings.num_positions
    stored[f"{tower * 2}embeddings.position_ids"] = torch.arange(positions)[None]
    config = checker.config.to_dict()
    generation = {"bad_words_ids": None, "max_length": 20, "num_beams": 1, "top_k": 50}
    older = generation | {"torchscript": False, "tf_legacy_loss": False, "prefix": None}
    for part in ("text_config", "vision_config"):
        config[part] = config[part] | older | {"transformers_version": "4.31.0"}
    return stored, config | {"torch_dtype": "bfloat16", "transformers_version": None}
