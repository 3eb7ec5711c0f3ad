"""The mini judge's tokenizer: fixed wording in one piece, everything else in words.

A SentencePiece model set up as LLaMA's is, with byte fallback, so that it reads any text.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from string import Formatter
from typing import Any

import sentencepiece

from benchmarks.miniature.training.judge.corruptions import damaged
from benchmarks.miniature.training.judge.verdicts import REMARKS, compared, reply
from generators.loading.pieces import trained_pieces
from scorers.internvl.settings import SYSTEM
from scorers.internvl.tokenizer import CONTROLS
from scorers.judging.rubrics import OWN
from scorers.truth.language import NUMBERS
from scorers.truth.scene import BACKGROUNDS, PLACES, SHAPES

_SPACE = "\u2581"
"""How SentencePiece writes a space."""
_PIECES = 800
"""Most pieces; 259 of them are bytes and SentencePiece's own."""
_TEXTS = 600
"""Queries and replies whose words the vocabulary is made of."""
CAPTION = "Describe the picture."
"""The request of the auxiliary task."""

_PENALTY = (
    "\n7. Emotional Impact (penalty): 0\n### Score\n",
    "\n7. Emotional Impact (penalty): 1\n### Score\n",
)


def fixed() -> list[str]:
    """Wording that is the same in every request or reply of a category."""
    texts = [SYSTEM, CAPTION]
    for rubric in OWN.values():
        texts += [text for text, *_ in Formatter().parse(rubric.template) if text]
        lines = [line for line in rubric.form.splitlines() if line[:1].isdigit()]
        names = [line.partition(":")[0] for line in lines]
        texts += [f"\n{name}: {value}" for name in names[:6] for value in (0, 1)]
    texts += ["### Feedback\n", "\n### Verdicts", "\n### Score\n", *_PENALTY]
    texts += [f" {to} the {place}" for place in PLACES for to in ("at", "to")]
    texts += [f" on a {ground} background" for ground in BACKGROUNDS]
    texts += [f" ({how}wrong)," for how in ("", "1 ", "2 ", "3 ")]
    texts += [f" {thing}," for thing in (*SHAPES, "nothing")]
    texts += [f" on {ground}{end}" for ground in BACKGROUNDS for end in (".", " (wrong).")]
    texts += ["Now there is", "There is", " a large", " a small", "Step "]
    texts += [f" {word}" for word in (*NUMBERS, *SHAPES)] + ["The picture shows"]
    texts += ["Image-", " Image-", " shows", "Expected", " Expected", " The text tells"]
    texts += [" A picture is missing.", *REMARKS]
    return list(dict.fromkeys(texts))


def pieces() -> bytes:
    """The SentencePiece model; the same on every machine."""
    return trained_pieces(
        _texts(),
        _PIECES,
        hard_vocab_limit=False,
        split_digits=True,
        character_coverage=1.0,
        user_defined_symbols=[text.replace(" ", _SPACE) for text in fixed()],
    )


def _texts() -> Iterator[str]:
    """Lines of queries, answers and replies, each word behind a space."""
    rng = random.Random("the judge's words")
    for k in range(_TEXTS):
        answer = damaged(rng, "train", ("SA", "PBL", "MSR")[k % 3])
        parts = [p for p in answer.query.question if isinstance(p, str)]
        parts += [p.told.text for p in answer.parts if p.told]
        # A comparison repeats the answers' words, which are counted already.
        written = reply(answer).replace(f"{compared(answer)} ", "")
        for text in (*parts, answer.text, written):
            yield from text.splitlines()


def tokenizer_config(model: bytes) -> dict[str, Any]:
    """The `tokenizer_config.json` beside the pieces `model`."""
    first = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
    added = {
        str(first + i): {
            "content": control.name,
            "lstrip": False,
            "rstrip": control.name.startswith("<|"),
            "special": True,
        }
        for i, control in enumerate(CONTROLS)
    }
    return {
        "tokenizer_class": "LlamaTokenizer",
        "legacy": False,
        "add_bos_token": False,
        "add_eos_token": False,
        "model_max_length": 4096,
        "added_tokens_decoder": added,
    }
