"""A vision-language model of 25 million random parameters, and requests as MMIE's look."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import transformers
from PIL import Image as Pillow
from safetensors import safe_open
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig

from generators.document import Image, Request, Text, Turn
from generators.pictures import encode
from pipelines.vlm.published import qwen2_config
from pipelines.vlm.random_weights import RECIPES, WORDS, toy

CONTEXT = 4096
_TEXT_SIZE = {
    "max_position_embeddings": CONTEXT,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
_VISION_SIZE = {"depth": 6, "embed_dim": 256, "num_heads": 4, "mlp_ratio": 4}
_MROPE = [8, 12, 12]
_SPREAD = 0.15
"""Of the weights: with less, texts repeat a word; with more, rounding changes them."""
_MOST_PIXELS = 224 * 224
_WIDTHS, _HEIGHTS = (150, 224, 300), (120, 224, 260)
_QUESTION_WORDS = (15, 90)
_INSTRUCTION = "Answer the question with text and pictures in turn. " * 4


def save_model(folder: Path) -> None:
    """The model, a Qwen2-VL, in the published layout with its processor."""
    transformers.logging.disable_progress_bar()
    recipe = RECIPES["Qwen/Qwen2-VL-7B-Instruct"]
    model, processor = toy(recipe, _config, _SPREAD, seed=0)
    pixels = {"shortest_edge": 28 * 28, "longest_edge": _MOST_PIXELS}
    processor.image_processor.size = pixels
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def described(folder: Path) -> str:
    """Kind and size of the model in a folder, as "a qwen2_vl of 25 M parameters"."""
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    count = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="np") as tensors:
            slices = map(tensors.get_slice, list(tensors.keys()))
            count += sum(math.prod(part.get_shape()) for part in slices)
    return f"a {kind} of {count / 1e6:.0f} M parameters"


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLConfig:
    text = {"vocab_size": len(tokenizer), **_TEXT_SIZE}
    return qwen2_config(tokenizer, text, _MROPE, _VISION_SIZE)


def requests_of(count: int, seed: int) -> list[Request]:
    """Requests of one instruction, one or two pictures, and a question.

    Another seed gives other pictures and questions. Every third request has a picture of
    another one too.
    """
    source = random.Random(seed)
    pictures = [_noise(source) for _ in range(count)]
    return [
        _request([pictures[i], *([] if i % 3 else [pictures[i * 7 % count]])], source)
        for i in range(count)
    ]


def _request(pictures: Sequence[Image], source: random.Random) -> Request:
    length = source.randint(*_QUESTION_WORDS)
    question = " ".join(source.choice(WORDS) for _ in range(length))
    content: tuple[Text | Image, ...] = (Text(_INSTRUCTION), *pictures, Text(question))
    return Request((Turn("user", content),))


def _noise(source: random.Random) -> Image:
    shape = (source.choice(_HEIGHTS), source.choice(_WIDTHS), 3)
    pixels = np.random.default_rng(source.getrandbits(32)).integers(0, 255, shape, np.uint8)
    return encode(Pillow.fromarray(pixels))
