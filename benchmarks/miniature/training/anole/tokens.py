"""The mini Anole's tokenizer: Chameleon's special names, then the world's few words."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.tasks.miniature.queries import query
from benchmarks.tasks.mmie.prompts import PROMPTS, QUESTION
from generators.anole.sizes import MARKS, SPECIALS
from generators.anole.tokens import image_name

WORDS = 640
"""Most entries of the vocabulary beside special names, codes and prompts."""


def prompt_pieces() -> list[str]:
    """Texts before and after a question in MMIE's wording, one token each."""
    wordings = [texts["interleaved"] for texts in PROMPTS.values()]
    pieces = itertools.chain.from_iterable(words.split(QUESTION) for words in wordings)
    return list(dict.fromkeys(piece for piece in pieces if piece))


def world_texts(count: int) -> Iterable[str]:
    """Texts of the first `count` queries of the train split."""
    for index in range(count):
        asked = query(index, 0, "train")
        yield from (p for p in (*asked.question, *asked.answer) if isinstance(p, str))


def mini_tokenizer(codes: int, queries: int = 600) -> Tokenizer:
    """Byte-level BPE of the queries' words; ids in Chameleon's order."""
    names = [*SPECIALS, *(image_name(code) for code in range(codes)), *MARKS]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=len(names) + WORDS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=names,
        show_progress=False,
    )
    trained.train_from_iterator(world_texts(queries), trainer)
    # Codes are ordinary names in the published vocabulary, not special ones.
    tokenizer = Tokenizer(trained.model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIALS, *MARKS])
    tokenizer.add_tokens([AddedToken(p, normalized=False) for p in prompt_pieces()])
    return tokenizer
