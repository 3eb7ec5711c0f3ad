"""Weights, tokenizer and prompts for which `anole_upstream.npz` holds upstream's results.

The arrays were made by the original program (GAIR-NLP/anole@af563fa) on the files that
`checkpoint` writes, in float32 on a CPU. Patched there: the number of codes (64 for
1024, side 8 for 32, 64 pixels for 512), cuda and bfloat16, no CUDA graphs, plain torch
for the three xformers functions, and the random number of each sampled token, which is
found as the first id whose cumulative probability exceeds it.

Made by frozen generators only, so that the arrays stay valid whatever our own toy
models become.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from anole_helpers import VQ, save_meta, taming_shapes
from picture_helpers import png
from PIL import Image as Pillow
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from generators.document import Image, Text

RUNS = [
    {"seed": 3},
    {"seed": 4},
    {"seed": 5, "context": 300},
    {"seed": 6, "max_text_tokens": 12},
    {"seed": 22, "context": 165},
    {"seed": 0, "text_greedy": True, "image_greedy": True, "context": 420},
]
"""Settings of the runs for each prompt."""

HEADS, WIDTH, HIDDEN, LAYERS = 4, 64, 128, 2


def tokenizer() -> Tokenizer:
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    digits = ["".join("ABCDEFGHIJ"[int(d)] for d in str(c)) for c in range(128)]
    names += [f"IMGIMG{d}Z" for d in digits]
    names += ["<eoss>", "<racm3:break>", "<reserved08706>"]
    names += sorted(pre_tokenizers.ByteLevel.alphabet())
    model = models.BPE(vocab={n: i for i, n in enumerate(names)}, merges=[])
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([n for n in names if n.startswith("<") and len(n) > 1])
    return made


def state() -> dict[str, Any]:
    """A language model in Meta's layout that begins pictures and ends now and then."""
    random = np.random.RandomState(7)
    vocab = tokenizer().get_vocab()

    def normal(*shape: int, scale: float | None = None) -> torch.Tensor:
        scale = scale or 1 / math.sqrt(shape[-1])
        return torch.from_numpy(random.standard_normal(shape) * scale).float()

    made: dict[str, Any] = {"tok_embeddings.weight": normal(len(vocab), WIDTH, scale=1.0)}
    made["tok_embeddings.weight"][:, 0] = 4.0
    for layer in range(LAYERS):
        weights = {f"attention.w{n}": normal(WIDTH, WIDTH) for n in "qkvo"}
        weights["feed_forward.w1"] = normal(HIDDEN, WIDTH)
        weights["feed_forward.w2"] = normal(WIDTH, HIDDEN)
        weights["feed_forward.w3"] = normal(HIDDEN, WIDTH)
        weights["attention.wo"][0] = weights["feed_forward.w2"][0] = 0.0
        size = WIDTH // HEADS
        for name in ("attention.q_normalization", "attention.k_normalization"):
            weights[name] = 1 + normal(size, scale=0.3)
            made[f"layers.{layer}.{name}.bias"] = normal(size, scale=0.3)
        for name in ("attention_norm", "ffn_norm"):
            weights[name] = 1 + normal(WIDTH, scale=0.2)
            weights[name][0] = 0.0
        made |= {f"layers.{layer}.{n}.weight": w for n, w in weights.items()}
    made["norm.weight"] = 1 + normal(WIDTH, scale=0.2)
    made["norm.weight"][0] = 1.0
    made["output.weight"] = normal(len(vocab), WIDTH)
    made["output.weight"][:, 0] = 0.0
    for name, bias in (("<racm3:break>", 1.45), ("</s>", 0.9)):
        made["output.weight"][vocab[name]] = 0.0
        made["output.weight"][vocab[name], 0] = bias
    made["rope.freqs"] = torch.zeros(8)
    return made


def taming() -> dict[str, torch.Tensor]:
    random = np.random.RandomState(8)
    tensors = {}
    for name, shape in taming_shapes(VQ).items():
        value = random.standard_normal(shape)
        if len(shape) == 1:
            value = 0.2 * value + ("norm" in name and name.endswith("weight"))
        else:
            value = value / math.sqrt(math.prod(shape[1:]))
        tensors[name] = torch.from_numpy(value).float()
    return tensors


def checkpoint(folder: Path) -> Path:
    return save_meta(folder, state(), taming(), tokenizer())


def picture(width: int, height: int, mode: str = "RGB") -> Pillow.Image:
    """Smooth random colours; with mode RGBA also random transparency."""
    random = np.random.RandomState(width * height)
    small = random.randint(0, 256, (7, 5, len(mode))).astype(np.uint8)
    return Pillow.fromarray(small, mode).resize((width, height), Pillow.Resampling.BICUBIC)


PICTURES = {
    "wide": (100, 66, "RGB"),
    "tall": (53, 131, "RGB"),
    "clear": (90, 77, "RGBA"),
    "even": (64, 64, "RGB"),
}


def contents() -> list[list[Text | Image]]:
    """The prompts: text alone, text around two pictures, a picture alone."""
    images = {name: png(picture(*about)) for name, about in PICTURES.items()}
    return [
        [Text("A bird in the house.")],
        [Text("First"), images["wide"], Text(" and then"), images["clear"], Text("go on")],
        [images["tall"]],
    ]


def codes() -> np.ndarray:
    """Codes of two pictures to be drawn: (2, 8, 8)."""
    return np.random.RandomState(9).randint(0, 128, (2, 8, 8)).astype(np.int32)
