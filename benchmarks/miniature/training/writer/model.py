"""The mini Qwen2-VL: its tokenizer, processor and architecture, as they are published."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

from benchmarks.tasks.miniature.queries import query
from benchmarks.tasks.mmie.prompts import PROMPTS, QUESTION
from generators.document import Text, Turn
from pipelines.chat.turns import ControlTokens
from pipelines.composition import OUTLINE_INSTRUCTION
from pipelines.vlm.published import (
    QWEN2_CHAT_TEMPLATE,
    QWEN2_ROLES,
    QWEN2_SPECIAL_TOKENS,
    qwen2_config,
)
from scorers.truth.language import LEADS, NUMBERS
from scorers.truth.scene import BACKGROUNDS, COLOURS, PLACES, SHAPES, SIZES

SIDE = 112
"""Pixels of a picture's side as the model sees it: four by four tokens."""
CAPTION_PROMPT = "Describe the picture."
MARKS = ("<image>", "</image>")
_CORPUS = 3000
"""Queries whose words become tokens."""
_WORD = r" ?[A-Za-z]+|[^A-Za-z]"
_FIRST_WORDS = ("system\nYou are a helpful assistant.", "system\n", "user\n", "assistant\n")
"""What the chat template writes between special tokens."""
_TEXT_SIZE = {
    "hidden_size": 160,
    "intermediate_size": 448,
    "num_hidden_layers": 5,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
_VISION_SIZE = {"depth": 3, "embed_dim": 96, "num_heads": 3, "mlp_ratio": 4}
_ROPE_THETA = 100.0
"""Far below the published one, with which four columns of a picture would look alike: in
heads of 32 dimensions the slowest frequencies are theirs. Smaller still, words far apart
would not find each other by what they mean."""


def writer_tokenizer() -> PreTrainedTokenizerFast:
    """Tokens are whole phrases of the prompts and words of the world, else bytes."""
    phrases = sorted(_phrases(), key=lambda p: (-len(p), p))
    words = sorted(_words() - set(phrases))
    pieces = [_as_bytes(text) for text in (*phrases, *words) if len(text.encode()) > 1]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate((*alphabet, *pieces))}
    # With merges ignored, a whole piece found in the vocabulary is one token.
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    pattern = "|".join([*map(_escaped, phrases), _WORD])
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(QWEN2_SPECIAL_TOKENS))
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        padding_side="left",
        extra_special_tokens=list(QWEN2_SPECIAL_TOKENS),
        **QWEN2_ROLES,
    )


def writer_processor(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLProcessor:
    """The published preprocessing; all square pictures become 112 x 112."""
    return Qwen2VLProcessor(
        Qwen2VLImageProcessor(min_pixels=SIDE * SIDE, max_pixels=SIDE * SIDE),
        tokenizer,
        Qwen2VLVideoProcessor(),
        chat_template=QWEN2_CHAT_TEMPLATE,
    )


def writer_model(
    tokenizer: PreTrainedTokenizerFast, seed: int = 0
) -> Qwen2VLForConditionalGeneration:
    """The untrained model in float32; `seed` draws its weights."""
    text: dict[str, Any] = {"vocab_size": len(tokenizer), **_TEXT_SIZE}
    config = qwen2_config(tokenizer, text, [4, 6, 6], _VISION_SIZE, _ROPE_THETA)
    config.tie_word_embeddings = True
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen2VLForConditionalGeneration(config)


def _phrases() -> set[str]:
    """Wording that never changes: one token each, however long."""
    control = ControlTokens((*QWEN2_SPECIAL_TOKENS, MARKS[0]))
    wording = [OUTLINE_INSTRUCTION.format(max_images=4)]
    for variants in PROMPTS.values():
        for template in variants.values():
            wording += template.split(QUESTION)
    return {
        *(sentence for text in wording for sentence in _sentences(control, text)),
        *_FIRST_WORDS,
        *(f" {place}" for place in PLACES),
        *(f" on a {background} background" for background in BACKGROUNDS),
        *(" at the", " to the", "Step 1:", "Step 2:", "Answer:", CAPTION_PROMPT),
        *(f"{MARKS[1]}\n", *MARKS, *LEADS, *(f" {lead}" for lead in LEADS)),
    }


def _sentences(control: ControlTokens, text: str) -> Iterable[str]:
    (turn,), _ = control.neutralise([Turn("system", (Text(text),))])
    (plain,) = [s.text for s in turn.content if isinstance(s, Text)]
    # Sentences with a number in them differ from run to run.
    return [s for s in re.findall(r"[^.\n]*[.\n]", plain) if not re.search(r"\d", s)]


def _words() -> set[str]:
    """Words of the world and of its queries, with the space before them and without."""
    words = {*COLOURS, *SHAPES, *SIZES, *BACKGROUNDS, *NUMBERS}
    for index in range(_CORPUS):
        example = query(index, seed=0, split="train")
        for part in (*example.question, *example.answer):
            if isinstance(part, str):
                words |= set(re.findall(r"[A-Za-z]+", part))
    words |= set(re.findall(r"[A-Za-z]+", OUTLINE_INSTRUCTION))
    return {form for word in words for form in (word, f" {word}")}


def _as_bytes(text: str) -> str:
    ((piece, _),) = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    ).pre_tokenize_str(text)
    return piece


def _escaped(phrase: str) -> str:
    return re.escape(phrase).replace("\\\n", "\\n")
