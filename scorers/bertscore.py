"""The stage of BERTScore: how alike the tokens of two texts are, as an encoder reads them.

As in `greedy_cos_idf` of bert_score/utils.py (Tiiiger/bert_score, MIT): each token is
matched with the token of the other text that is most alike, the first and the last one
included; these two themselves do not count, and all others count the same. Neither values
are rescaled nor tokens weighted by how rare they are. That package does not put the space
before RoBERTa's texts under transformers 5; here it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, pre_tokenizers
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel

from plait.generators.architectures import config_of
from plait.generators.base import (
    Failure,
    Fault,
    NotApplicable,
    Outcome,
    Result,
    Unscored,
    Weights,
)
from plait.generators.document import Candidate, Score
from plait.generators.errors import CheckpointError
from plait.generators.loading.files import Files, config_of_class, read_tokenizer
from plait.generators.loading.strict import device_of, load_model, randomise
from plait.scorers.imagereward import word_tokenizer
from plait.scorers.texts import BertScoreSettings, texts_of

UNUSED = ("pooler", "lm_head", "cls", "classifier")
"""Modules of a checkpoint that take no part in a score."""
SEED = 9


class _Read(NamedTuple):
    """A text as the encoder reads it."""

    states: Tensor
    """(tokens, width), of length 1."""
    counted: Tensor
    """(tokens,), whether each is one of the text's own."""
    truncated: bool


class BertScore:
    """Scores documents against the ground truth's text. The value is F1.

    `parts` hold `precision`, `recall` and `truncated`: whether either text is longer than
    the encoder reads.
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = BertScoreSettings(**settings)
        self._device = device_of(config.device)
        load = _load_published(config) if weights == "pretrained" else _random(weights)
        self._model, self._tokenizer = load
        self._model.to(self._device).eval().requires_grad_(False)
        self._tokenizer.enable_truncation(config.max_tokens)
        self._tokenizer.no_padding()
        before = self._tokenizer.pre_tokenizer
        self._space = " " if isinstance(before, pre_tokenizers.ByteLevel) else ""

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """One score per document; each text of a batch is read once."""
        pairs = [texts_of(given.document, given.reference) for given in inputs]
        texts: dict[str, None] = {}
        for pair in pairs:
            if isinstance(pair, tuple):
                texts |= dict.fromkeys(pair)
        read = dict(zip(texts, self._read(list(texts)), strict=True)) if texts else {}
        outcomes: list[Outcome[Score]] = []
        for pair in pairs:
            if isinstance(pair, tuple):
                own, true = pair
                outcomes.append(_score(read[own], read[true]))
            else:
                outcomes.append(pair)
        return outcomes

    def _read(self, texts: Sequence[str]) -> list[_Read]:
        """Return each text as the encoder reads it, all in one pass."""
        encoded = self._tokenizer.encode_batch([self._space + text for text in texts])
        rows = [torch.tensor(text.ids) for text in encoded]
        ids = pad_sequence(rows, True, self._model.config.pad_token_id).to(self._device)
        mask = pad_sequence([torch.ones_like(row) for row in rows], True).to(self._device)
        with torch.inference_mode():
            states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
            states = normalize(states.float(), dim=-1).cpu()
        read = []
        for own, row, text in zip(states, rows, encoded, strict=True):
            # The first and the last token are the encoder's, and not of the text.
            counted = (row != row[0]) & (row != row[-1])
            read.append(_Read(own[: len(row)], counted, bool(text.overflowing)))
        return read


def _score(own: _Read, true: _Read) -> Outcome[Score]:
    """Return precision, recall and F1 of a document's text against the ground truth's."""
    if not own.counted.any():
        return Unscored("the encoder has no token for the document's text")
    if not true.counted.any():
        return NotApplicable("the encoder has no token for the ground truth's text")
    # Tokens that do not count may still be what another is most like, as in the original.
    cosines = own.states @ true.states.T
    precision = float(cosines.amax(1)[own.counted].mean())
    recall = float(cosines.amax(0)[true.counted].mean())
    if not math.isfinite(precision * recall):
        return Failure("the encoder's states are not finite numbers", Fault.ERROR)
    total = precision + recall
    parts = {
        "precision": precision,
        "recall": recall,
        "truncated": own.truncated or true.truncated,
    }
    value = 2 * precision * recall / total if total else 0.0
    return Result(Score(value, parts), {"texts": 2})


def _load_published(settings: BertScoreSettings) -> tuple[Any, Tokenizer]:
    """Load the checkpoint up to its layer; CheckpointError where it does not fit."""
    name = settings.model
    source = (settings.model, settings.revision)
    model = load_model("AutoModel", *source, tolerated=UNUSED, dtype=torch.float32)
    files = Files(name, settings.revision)
    layers = getattr(getattr(model, "encoder", None), "layer", ())
    wanted = settings.reads
    if len(layers) < wanted:
        raise CheckpointError(
            f"checkpoint {name!r} has {len(layers)} layers of an encoder; layer is {wanted}"
        )
    model.encoder.layer = layers[:wanted]
    return model, read_tokenizer(files.need("tokenizer.json"))


def _random(weights: Weights) -> tuple[Any, Tokenizer]:
    tokenizer = word_tokenizer()
    pad = {"pad_token_id": tokenizer.token_to_id("[PAD]")}
    fields = config_of("roberta-large", tiny=weights == "tiny")
    model = AutoModel.from_config(
        config_of_class("RobertaConfig", fields | pad, "roberta-large")
    )
    randomise(model, device=torch.device("cpu"), dtype=torch.float32, seed=SEED)
    return model, tokenizer
