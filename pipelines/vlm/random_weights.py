"""Vision-language models with random weights, full-size and tiny, and their tokenizer.

The tokenizer's vocabulary consists of whole English words, so that a random model writes
words; anything else is encoded byte by byte, so that every text can be encoded.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlavaNextForConditionalGeneration,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2VLForConditionalGeneration,
)

from pipelines.vlm import published

SPACE = "\u0120"
"""How byte-level vocabularies write the space before a word."""

_COMMON = """
a about above across act after again air all along also always am an and animal another
any apple are arm around art as ask at away back ball bank base be bear because become
bed been before began begin behind being believe below best better between big bird black
blue board boat body bone book both bowl box boy branch bread bridge bright bring brother
brown build built but buy by call came can car care carry case cat catch cause change
child circle city class clean clear climb close cloud coat cold colour come common cook
corner could count country course cover cow cross cry cup cut dance dark day deep did
different dog done door down draw dream dress drink drive drop dry duck each ear early
earth east easy eat edge egg eight end enough even evening ever every eye face fact fall
family far farm fast father feel feet few field fill find fine finger fire first fish
five floor flower fly follow food foot for form found four free fresh friend from front
fruit full game garden gave get girl give glass go gold good grass great green grew
ground group grow had hair half hand hard has hat have he head hear heart heat heavy held
help her here high hill him his hold home horse hot hour house how idea if in inside into
iron is island it its join jump just keep kept kind king kitchen knew know lake land large
last late laugh lead leaf learn leave left leg less let letter life light like line list
listen little live long look lost love low made make man many map mark may mean measure
meet metal might milk mind moon more morning most mother mountain mouth move much music
must name near neck need never new next night nine no north nose not note nothing now
number of off often old on once one only open or orange order other our out over own page
paint pair paper part pass path pattern people person picture piece place plain plan plant
plate play point pot pull push put quick quiet rain raise ran reach read ready real red
rest ride right ring rise river road rock roof room root rose round row run said sail salt
same sand saw say scale school sea seat second see seed seen seven shape she ship shirt
shoe shop short should show side silver simple sing sister sit six size skin sky sleep
slow small smell smile snow so soft some song soon sound soup south space speak spoon
spring square stand star start stay step still stone stood stop story street strong such
sugar summer sun sure swim table tail take tall taste tea tell ten than thank that the
their them then there these they thin thing think third this those three through time tin
to together told too took top touch toward town train tree tried true try turn two under
until up us use very voice walk wall want warm was wash watch water wave way we wear
weather week well went were west wet what wheel when where which while white who why wide
will wind window wing winter wish with without wolf woman wood word work world would write
yard year yellow yes yet you young your
"""
WORDS = tuple(_COMMON.split())
"""Common English words, one token each."""


def tokenizer(
    first_special: int | None, specials: Sequence[str], **roles: str
) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer whose `specials` take ids from `first_special` on.

    The ids before them are filled with pairs of words; with None there are no pairs and
    the special tokens follow the words at once. `roles` are `eos_token=...` and the like.
    """
    vocabulary = {token: i for i, token in enumerate(_tokens(first_special))}
    # With merges ignored, a whole word found in the vocabulary is one token.
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(specials))
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        padding_side="left",
        extra_special_tokens=list(specials),
        **roles,
    )


def _tokens(count: int | None) -> Iterator[str]:
    whole = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(SPACE + w for w in WORDS)]
    if count is None:
        return iter(whole)
    pairs = (f"{SPACE}{a}-{b}" for a in WORDS for b in WORDS)
    return islice((t for part in (whole, pairs) for t in part), count)


TINY_SPREAD = 0.4
"""Standard deviation of tiny weights: with the usual 0.02 a model of two layers repeats
one word."""


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
        """The word tokenizer, as large as the published one, or with few entries."""
        first = None if tiny else self.first_special
        return tokenizer(first, self.specials, **self.roles)


def _qwen2(size: str) -> Recipe:
    return Recipe(
        model_class=Qwen2VLForConditionalGeneration,
        full_config=partial(published.qwen2_full_config, size=size),
        tiny_config=published.qwen2_tiny_config,
        processor=published.qwen2_processor,
        specials=published.QWEN2_SPECIAL_TOKENS,
        first_special=published.QWEN2_FIRST_SPECIAL_ID,
        roles=published.QWEN2_ROLES,
    )


_LLAVA = Recipe(
    model_class=LlavaNextForConditionalGeneration,
    full_config=published.llava_full_config,
    tiny_config=published.llava_tiny_config,
    processor=published.llava_processor,
    specials=published.LLAVA_SPECIAL_TOKENS,
    first_special=published.LLAVA_FIRST_SPECIAL_ID,
    roles=published.LLAVA_ROLES,
)
RECIPES: dict[str, Recipe] = {
    "Qwen/Qwen2-VL-72B-Instruct": _qwen2("72b"),
    "Qwen/Qwen2-VL-7B-Instruct": _qwen2("7b"),
    "llava-hf/llava-v1.6-34b-hf": _LLAVA,
}


def dummy(name: str, dtype: torch.dtype, device_map: Any) -> tuple[Any, Any]:
    """The full-size model with random values made on its devices, and its processor.

    Raises ValueError for a model whose architecture is not known.
    """
    if name not in RECIPES:
        raise ValueError(
            f"no full-size configuration of {name!r} is known for dummy weights; "
            f"valid are {', '.join(RECIPES)}"
        )
    recipe = RECIPES[name]
    words = recipe.tokenizer(tiny=False)
    model = _random_model(recipe, recipe.full_config(words), dtype, device_map, seed=0)
    return model, recipe.processor(words, False)


def tiny(name: str) -> tuple[Any, Any]:
    """A toy model in float32 on the CPU, seeded by the model's name, and its processor.

    A model whose architecture is not known gets that of Qwen2-VL.
    """
    recipe = RECIPES.get(name, RECIPES["Qwen/Qwen2-VL-7B-Instruct"])
    seed = zlib.crc32(name.encode())
    return toy(recipe, recipe.tiny_config, TINY_SPREAD, seed)


def toy(
    recipe: Recipe,
    config_of: Callable[[PreTrainedTokenizerFast], PreTrainedConfig],
    spread: float,
    seed: int,
) -> tuple[Any, Any]:
    """A model of a configuration of one's own, as `tiny`, and its processor.

    `spread` is the standard deviation of the language model's weights.
    """
    words = recipe.tokenizer(tiny=True)
    config = config_of(words)
    config.get_text_config().initializer_range = spread
    # On the CPU, since another device draws other numbers from the same seed.
    model = _random_model(recipe, config, torch.float32, {"": "cpu"}, seed)
    _write_words_only(model, words)
    return model, recipe.processor(words, True)


def _random_model(
    recipe: Recipe,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    device_map: Any,
    seed: int,
) -> Any:
    """The model loaded from an empty checkpoint.

    The library then initialises each missing weight on its device by the model's own
    rules, and computes what is not a weight (rotary frequencies) as usual.
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
def _write_words_only(model: Any, tokens: PreTrainedTokenizerFast) -> None:
    """Give all tokens but words and the end the score 0, so that some word beats them."""
    keep = torch.zeros(model.lm_head.weight.shape[0], dtype=torch.bool)
    ids = [i for token, i in tokens.get_vocab().items() if token.startswith(SPACE)]
    keep[[*ids, tokens.eos_token_id]] = True
    model.lm_head.weight[~keep] = 0.0
