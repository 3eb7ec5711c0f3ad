"""BERTScore against its published formula, on tiny encoders in their published layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contents import document
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import RobertaProcessing
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

from plait.generators.base import Failure, NotApplicable, Result, Unscored
from plait.generators.document import Candidate
from plait.generators.errors import CheckpointError, UsageError
from plait.scorers import resolve_scorer
from plait.scorers.bertscore import BertScore
from plait.scorers.imagereward import word_tokenizer
from plait.scorers.texts import LAYERS, BertScoreSettings

pytestmark = pytest.mark.models

TRUTH = "the large river stands near a boat"
TEXTS = ["a boat", "the river", TRUTH, "red house, old table and " * 20, "cat"]
SIZES = {
    "vocab_size": 1000,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "max_position_embeddings": 130,
    "initializer_range": 0.5,
}
LAYER = 2
TOLERANCE = 2e-6
"""Of cosines: in another batch float32 sums are rounded otherwise."""


def byte_tokenizer() -> Tokenizer:
    """As RoBERTa's: bytes with their spaces."""
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("\u0120" + w for w in "abr")]
    tokens = ["<s>", "<pad>", "</s>", *words]
    merges = [("\u0120", w) for w in "abr"]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


KINDS = {
    "bert": (BertForMaskedLM, BertConfig, word_tokenizer, 0, ""),
    "roberta": (RobertaForMaskedLM, RobertaConfig, byte_tokenizer, 1, " "),
}


@pytest.fixture(scope="module", params=KINDS)
def saved(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    kind, config, tokenizer, pad, space = KINDS[request.param]
    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(3)
    model = kind(config(**SIZES, pad_token_id=pad)).eval()
    model.save_pretrained(folder)
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder, model.base_model, tokenizer(), space


def settings(folder: Path) -> dict[str, Any]:
    return {"model": str(folder), "layer": LAYER, "max_tokens": 128, "device": "cpu"}


def against_truth(text: str) -> Candidate:
    return Candidate(document(text), reference=document(TRUTH))


def direct(saved: tuple[Any, ...], text: str) -> tuple[float, float, float]:
    """`greedy_cos_idf` of bert_score/utils.py, of two texts, each encoded by itself."""
    _, model, tokenizer, space = saved
    states, weights = [], []
    for one in (text, TRUTH):
        ids = tokenizer.encode(space + one.strip()).ids[:127]
        ids = [*ids, tokenizer.encode("a").ids[-1]] if len(ids) == 127 else ids
        with torch.no_grad():
            out = model(torch.tensor([ids]), output_hidden_states=True)
        own = out.hidden_states[LAYER][0].double().numpy()
        states.append(own / np.linalg.norm(own, axis=1, keepdims=True))
        weights.append(np.array([float(i not in (ids[0], ids[-1])) for i in ids]))
    cosines = states[0] @ states[1].T
    shares = [w / w.sum() for w in weights]
    p = float(cosines.max(1) @ shares[0])
    r = float(cosines.max(0) @ shares[1])
    return p, r, 2 * p * r / (p + r)


def test_bertscore_is_the_published_formula(saved: tuple[Any, ...]) -> None:
    stage = BertScore(**settings(saved[0]))
    together = stage([against_truth(text) for text in TEXTS])
    for text, outcome in zip(TEXTS, together, strict=True):
        p, r, f = direct(saved, text)
        (alone,) = stage([against_truth(text)])
        for own in (outcome, alone):
            assert isinstance(own, Result)
            assert own.value.value == pytest.approx(f, abs=TOLERANCE)
            found = own.value.parts["precision"], own.value.parts["recall"]
            assert found == pytest.approx((p, r), abs=TOLERANCE)
        tokens = len(saved[2].encode(saved[3] + text.strip()).ids)
        assert own.value.parts["truncated"] is (tokens > 128)
    assert np.ptp([outcome.value.value for outcome in together]) > 100 * TOLERANCE


def test_what_does_not_fit_is_named(saved: tuple[Any, ...]) -> None:
    folder = saved[0]
    with pytest.raises(CheckpointError, match="3 layers"):
        BertScore(**settings(folder) | {"layer": 4})
    with pytest.raises(UsageError, match="layer"):
        resolve_scorer("bertscore", "tiny", {"model": str(folder)})
    assert (
        BertScoreSettings().key_fields("tiny")["layer"]
        == LAYERS["FacebookAI/roberta-large"]
    )


def test_missing_weights_are_named(tmp_path: Path) -> None:
    model = BertForMaskedLM(BertConfig(**SIZES))
    state = model.state_dict()
    state["bert.extra.weight"] = state.pop("bert.encoder.layer.2.output.dense.bias")
    model.save_pretrained(tmp_path, state_dict=state)
    expected = r"missing: 1 \(encoder\.layer\.2.*unexpected: 1 \(\S*extra\.weight"
    with pytest.raises(CheckpointError, match=expected):
        BertScore(**settings(tmp_path))


def test_texts_that_cannot_be_compared_say_why(saved: tuple[Any, ...]) -> None:
    stage = BertScore(**settings(saved[0]))
    bare = Candidate(document("a cat"))
    none = Candidate(document(" "), reference=document(TRUTH))
    outcomes = stage([bare, none, against_truth("a boat")])
    assert [type(o) for o in outcomes] == [NotApplicable, Unscored, Result]
    stage._model.encoder.layer[0].output.dense.weight.data[:] = torch.nan
    assert isinstance(stage([against_truth("a boat")])[0], Failure)
