"""Vision-language models with random weights: published ones at full and at toy size."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from transformers import (
    LlavaNextForConditionalGeneration,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2VLForConditionalGeneration,
)

from pipelines.vlm import llava, qwen2
from pipelines.vlm.tokenizer import SPACE, tokenizer

TINY_SPREAD = 0.4
"""Standard deviation of tiny weights: with the usual 0.02 a model of two layers writes
one word over and over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a published model is built without its weights."""

    model_class: type[Any]
    full_config: Callable[[PreTrainedTokenizerFast], PreTrainedConfig]
    tiny_config: Callable[[PreTrainedTokenizerFast], PreTrainedConfig]
    processor: Callable[[PreTrainedTokenizerFast, bool], Any]
    specials: Sequence[str]
    first_special: int
    roles: dict[str, str]

    def tokenizer(self, tiny: bool) -> PreTrainedTokenizerFast:
        """Our own tokenizer, with as many entries as the published one or few."""
        first = None if tiny else self.first_special
        return tokenizer(first, self.specials, **self.roles)


def _qwen2(size: str) -> Recipe:
    return Recipe(
        model_class=Qwen2VLForConditionalGeneration,
        full_config=partial(qwen2.full_config, size=size),
        tiny_config=qwen2.tiny_config,
        processor=qwen2.processor,
        specials=qwen2.SPECIAL_TOKENS,
        first_special=qwen2.FIRST_SPECIAL_ID,
        roles=qwen2.ROLES,
    )


_LLAVA = Recipe(
    model_class=LlavaNextForConditionalGeneration,
    full_config=llava.full_config,
    tiny_config=llava.tiny_config,
    processor=llava.processor,
    specials=llava.SPECIAL_TOKENS,
    first_special=llava.FIRST_SPECIAL_ID,
    roles=llava.ROLES,
)
RECIPES: dict[str, Recipe] = {
    "Qwen/Qwen2-VL-72B-Instruct": _qwen2("72b"),
    "Qwen/Qwen2-VL-7B-Instruct": _qwen2("7b"),
    "llava-hf/llava-v1.6-34b-hf": _LLAVA,
}


def dummy(model: str, dtype: torch.dtype, device_map: Any) -> tuple[Any, Any]:
    """The full-size model with random values made on its devices, and its processor.

    Raises ValueError for a model whose architecture is not held here.
    """
    if model not in RECIPES:
        raise ValueError(
            f"no full-size configuration of {model!r} is held here for dummy weights; "
            f"there is one of each of {', '.join(RECIPES)}"
        )
    recipe = RECIPES[model]
    own = recipe.tokenizer(tiny=False)
    filled = _filled(recipe, recipe.full_config(own), dtype, device_map, seed=0)
    return filled, recipe.processor(own, False)


def tiny(model: str) -> tuple[Any, Any]:
    """A toy model in float32 on the CPU, seeded by the model's name, and its processor.

    A model whose architecture is not held here gets that of Qwen2-VL.
    """
    recipe = RECIPES.get(model, RECIPES["Qwen/Qwen2-VL-7B-Instruct"])
    own = recipe.tokenizer(tiny=True)
    config = recipe.tiny_config(own)
    config.get_text_config().initializer_range = TINY_SPREAD
    seed = zlib.crc32(model.encode())
    # Made on the CPU, for another device would draw other numbers from the same seed.
    filled = _filled(recipe, config, torch.float32, {"": "cpu"}, seed)
    _write_words_only(filled, own)
    return filled, recipe.processor(own, True)


def _filled(
    recipe: Recipe,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    device_map: Any,
    seed: int,
) -> Any:
    """The model loaded from a checkpoint that holds nothing.

    The library then makes each missing weight on the device where it belongs, by the
    model's own rules, and computes what is not a weight (rotary frequencies) as always.
    """
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            return recipe.model_class.from_pretrained(
                None, config=config, state_dict={}, dtype=dtype, device_map=device_map
            )
    finally:
        transformers.logging.set_verbosity(verbosity)


@torch.no_grad()
def _write_words_only(model: Any, own: PreTrainedTokenizerFast) -> None:
    """Give all tokens but words and the end the score 0, so that some word beats them."""
    keep = torch.zeros(model.lm_head.weight.shape[0], dtype=torch.bool)
    words = [i for token, i in own.get_vocab().items() if token.startswith(SPACE)]
    keep[[*words, own.eos_token_id]] = True
    model.lm_head.weight[~keep] = 0.0
