"""Weights, tokenizer and prompts for which `emu2_upstream.npz` holds upstream's results.

The arrays were made by the original program (baaivision/Emu@13c395e, folder Emu2/emu) on
the files that `native_chat` and `native_gen` write, in float32 on a CPU, with
transformers 4.31.0 and diffusers 0.24.0. The program was not changed: it was given the
sizes below as its configuration objects, and torch's global generator was seeded before
each drawing.

Made by frozen generators only, so that the arrays stay valid whatever our own toy models
become; the sentencepiece model stands in the arrays.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from emu2_helpers import (
    State,
    drawing_modules,
    random_state,
    save_chat,
    save_gen,
    save_native,
    shapes,
)
from paths import DATA
from picture_helpers import smooth

from generators.document import Image
from generators.emu2.network import VisionSize
from generators.emu2.tokens import ADDED, ADDED_CHAT

ARRAYS = DATA / "emu2_upstream.npz"

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
"""Contents of a user's turn: texts, and numbers of pictures. For the last two it matters
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
    with np.load(ARRAYS) as stored:
        return stored["pieces"].tobytes()


def state(vision: VisionSize, rows: int, seed: int) -> State:
    """Random, with a sharp head and an end that is likely now and then."""
    made = random_state(shapes(vision, LANGUAGE, rows), seed)
    head = made["decoder.lm.lm_head.weight"]
    head *= 3.0
    # Ids that no text is made of would only lengthen what is compared.
    head[PIECES:] *= 0.0
    head[3:259] *= 0.0
    head[2] *= 1.5
    made["decoder.lm.model.embed_tokens.weight"] *= 0.7
    return made


def chat_state() -> State:
    return state(CHAT_VISION, PIECES + len(ADDED_CHAT), 21)


def gen_state() -> State:
    return state(GEN_VISION, PIECES + len(ADDED), 22)


def drawing() -> dict[str, torch.nn.Module]:
    return drawing_modules(GEN_VISION.width)


def native_chat(folder: Path) -> Path:
    return save_native(folder, chat_state(), CHAT_VISION, LANGUAGE, None, pieces())


def native_gen(folder: Path, **more: torch.nn.Module) -> Path:
    """`more` are components besides UNet and autoencoder."""
    modules = drawing() | more
    return save_native(folder, gen_state(), GEN_VISION, LANGUAGE, modules, pieces())


def hub_chat(folder: Path) -> Path:
    return save_chat(folder, chat_state(), CHAT_VISION, LANGUAGE, pieces())


def hub_gen(folder: Path, **more: torch.nn.Module) -> Path:
    """`more` are components besides UNet and autoencoder."""
    modules = drawing() | more
    return save_gen(folder, gen_state(), GEN_VISION, LANGUAGE, modules, pieces())
