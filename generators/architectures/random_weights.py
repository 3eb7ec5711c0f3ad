"""Vision-language models with random weights, full-size and tiny, and their tokenizer.

What the checkpoints publish beside their weights (`config.json`, the preprocessing, the
special tokens and the chat template) lies in `generators/architectures`.

The tokenizer's vocabulary consists of whole English words, so that a random model writes
words; anything else is encoded byte by byte, so that every text can be encoded.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from plait.generators.architectures import config_of, read_config
from plait.generators.errors import UsageError
from plait.generators.loading.strict import silence_transformers

SPACE = "\u0120"
"""How byte-level vocabularies write the space before a word."""
WORDS: tuple[str, ...] = tuple(" ".join(read_config("words")["english"]).split())
"""Common English words, one token each."""
PUBLISHED: Mapping[str, str] = {
    "Qwen/Qwen2-VL-72B-Instruct": "qwen2-vl-72b",
    "Qwen/Qwen2-VL-7B-Instruct": "qwen2-vl-7b",
    "llava-hf/llava-v1.6-34b-hf": "llava-1.6-34b",
    # Its reader is a Qwen3-VL (transformers, modular_cosmos3_omni.py), of the 8B's size.
    "nvidia/Cosmos3-Nano": "cosmos3-nano",
    "InterleaveThinker/InterleaveThinker-Planner-8B": "qwen3-vl-8b",
    "InterleaveThinker/InterleaveThinker-Critic-8B": "qwen3-vl-8b",
    "Qwen/Qwen2.5-VL-7B-Instruct": "qwen2.5-vl-7b-instruct",
    "Qwen/Qwen2.5-VL-72B-Instruct": "qwen2.5-vl-72b-instruct",
    "Qwen/Qwen3-VL-8B-Instruct": "qwen3-vl-8b",
    "Qwen/Qwen3-VL-32B-Instruct": "qwen3-vl-32b",
    "google/gemma-3-27b-it": "gemma-3-27b",
    # Trained on from Qwen3-VL 8B, whose files they keep.
    "CodeGoat24/UnifiedReward-2.0-qwen3vl-8b": "qwen3-vl-8b",
    "CodeGoat24/UnifiedReward-Think-qwen3vl-8b": "qwen3-vl-8b",
}
"""Hub id -> what is stored of the checkpoint."""


def dummy(name: str, dtype: torch.dtype, device_map: Any) -> tuple[Any, Any]:
    """Return the full-size model, its values made on its devices, and its processor.

    Raises UsageError for a model whose architecture is not known.
    """
    if name not in PUBLISHED:
        raise UsageError(
            f"no full-size configuration of {name!r} is known for dummy weights; "
            f"valid are {', '.join(PUBLISHED)}"
        )
    files = config_of(PUBLISHED[name], tiny=False)
    processor = processor_of(files)
    return model_of(files, processor.tokenizer, dtype, device_map, seed=0), processor


def tiny(name: str) -> tuple[Any, Any]:
    """Return a toy model in float32 on the CPU, seeded by its name, and its processor.

    A model whose architecture is not known gets that of Qwen2-VL.
    """
    files = config_of(PUBLISHED.get(name, "qwen2-vl-7b"), tiny=True)
    processor = processor_of(files)
    seed = zlib.crc32(name.encode())
    # On the CPU, since another device draws other numbers from the same seed.
    model = model_of(files, processor.tokenizer, torch.float32, {"": "cpu"}, seed)
    _write_words_only(model, processor.tokenizer)
    return model, processor


def processor_of(files: Mapping[str, Any]) -> Any:
    """Return the published preprocessing, with a word tokenizer."""
    about = dict(files["preprocessor_config"])
    whole = getattr(transformers, about.pop("processor_class"))
    images = getattr(transformers, about.pop("image_processor_type"))
    videos = about.pop("video_processor_type", None)
    return whole(
        images(**about),
        tokenizer(**files["tokenizer"]),
        **({"video_processor": getattr(transformers, videos)()} if videos else {}),
        **files.get("processor_config", {}),
        chat_template=files["chat_template"],
    )


def tokenizer(
    specials: Sequence[str],
    first_special: int | None = None,
    named: Mapping[str, str] | None = None,
    **roles: str,
) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer whose `specials` take ids from `first_special` on.

    The ids before them are filled with pairs of words; with None there are no pairs and
    the special tokens follow the words at once. `roles` are `eos_token=...` and the like,
    `named` the special tokens that the model's processor knows by names of its own.
    """
    vocabulary = {token: number for number, token in enumerate(_tokens(first_special))}
    # With merges ignored, a whole word found in the vocabulary is one token.
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(specials))
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        padding_side="left",
        extra_special_tokens=dict(named) if named else list(specials),
        **roles,
    )


def _tokens(count: int | None) -> Iterator[str]:
    """Yield bytes and words, and of pairs of words as many as make `count` tokens."""
    words = [SPACE + word for word in WORDS]
    whole = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *words]
    if count is None:
        return iter(whole)
    return islice(chain(whole, _word_pairs()), count)


def _word_pairs() -> Iterator[str]:
    for first in WORDS:
        for second in WORDS:
            yield f"{SPACE}{first}-{second}"


def model_class_of(files: Mapping[str, Any]) -> Any:
    """Return the class of transformers that `config.json` names."""
    return getattr(transformers, files["config"]["architectures"][0])


def configuration_of(files: Mapping[str, Any], words: PreTrainedTokenizerFast) -> Any:
    """Return the configuration, with the ids of the tokenizer's special tokens."""
    text = files["config"]["text_config"]
    own = {
        "vocab_size": text["vocab_size"] or len(words),
        "bos_token_id": None,
        "eos_token_id": words.eos_token_id,
    }
    ids: dict[str, int] = {}
    for field, token in files["token_ids"].items():
        ids[field] = words.convert_tokens_to_ids(token)
    fields = {**files["config"], "text_config": {**text, **own}, **ids}
    return model_class_of(files).config_class(**fields)


def model_of(
    files: Mapping[str, Any],
    words: PreTrainedTokenizerFast,
    dtype: torch.dtype,
    device_map: Any,
    seed: int,
) -> Any:
    """Return the model loaded from an empty checkpoint.

    The library then initialises each missing weight on its device by the model's own
    rules, and computes what is not a weight (rotary frequencies) as usual.
    """
    config = configuration_of(files, words)
    with (
        silence_transformers(),
        torch.random.fork_rng(devices=range(torch.cuda.device_count())),
    ):
        torch.manual_seed(seed)
        return model_class_of(files).from_pretrained(
            None, config=config, state_dict={}, dtype=dtype, device_map=device_map
        )


@torch.no_grad()
def _write_words_only(model: Any, tokens: PreTrainedTokenizerFast) -> None:
    """Give all tokens but words and the end the score 0, so that some word beats them."""
    keep = torch.zeros(model.lm_head.weight.shape[0], dtype=torch.bool)
    vocabulary = tokens.get_vocab()
    ids = [vocabulary[token] for token in vocabulary if token.startswith(SPACE)]
    keep[[*ids, tokens.eos_token_id]] = True
    model.lm_head.weight[~keep] = 0.0
