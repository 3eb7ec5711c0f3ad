"""A small tokenizer of our own, and random weights that write words and come to an end."""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Sequence
from typing import Any

import sentencepiece
import torch
from torch import Tensor

from generators.loading.llama import AddedToken
from scorers.internvl.template import CONTROLS, END
from scorers.internvl.tokenizer import PhiTokenizer
from scorers.judging.rubrics import OWN

_VERDICTS = """
the a of and to in on with is are was not no but for from this that these it its as by
question answer image picture text story step method score feedback quality criterion
coherence consistency creative style content shows describes matches follows supports
good clear weak strong relevant missing correct wrong complete vivid partly fully does
first second third last one two three each both all some more less than between overall
0 1 2 3 4 5 6 ### . , :
"""
WORDS = tuple(_VERDICTS.split())
"""What toy models write; now and then it looks like a verdict."""

_SPACE = "\u2581"
_PIECES = 1400
"""Most pieces of the toy vocabulary; 259 of them are bytes and SentencePiece's own."""
_REPEATS = 20
"""How often the rubrics are read for every time our words are."""


@functools.cache
def toy_pieces() -> bytes:
    """A SentencePiece model of our words and rubrics, set up as LLaMA's is.

    It spells a rubric in about as many pieces as a published one.
    """
    written = io.BytesIO()
    pairs = [" ".join(pair) for pair in itertools.product(WORDS, WORDS[::7])]
    rubrics = [line for r in OWN.values() for line in r.template.splitlines() if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(pairs + _REPEATS * rubrics),
        model_writer=written,
        model_type="bpe",
        vocab_size=_PIECES,
        hard_vocab_limit=False,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        num_threads=1,
        minloglevel=2,
    )
    return written.getvalue()


def toy_tokenizer() -> tuple[PhiTokenizer, list[int], int]:
    """A tokenizer, the ids of its whole words, and how many ids it has.

    Its chat tokens take the white space after them, as published.
    """
    pieces = sentencepiece.SentencePieceProcessor(model_proto=toy_pieces())
    first = pieces.get_piece_size()
    added = [
        AddedToken(control.name, first + i, strips_right=control.name.startswith("<|"))
        for i, control in enumerate(CONTROLS)
    ]
    config = {"legacy": False, "add_bos_token": False}
    words = [pieces.piece_to_id(_SPACE + word) for word in WORDS]
    known = sorted({i for i in words if i != pieces.unk_id()})
    return PhiTokenizer(toy_pieces(), config, added), known, first + len(added)


@torch.no_grad()
def steered(judge: Any, words: Sequence[int]) -> None:
    """Make a random judge write nothing but `words`, and end its reply now and then.

    All else has the score 0, which the best of so many words always exceeds.
    """
    head: Tensor = judge.model.lm_head.weight
    silent = torch.ones(len(head), dtype=torch.bool)
    silent[[*words, judge.tokenizer.id(END)]] = False
    head[silent.to(head.device)] = 0.0
