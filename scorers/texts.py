"""The text of an answer against the text of the ground truth.

Each compares the whole text of a document with that of the ground truth. The mean of these
values over documents is no corpus figure, for which counts are added before they are
divided. All but `bertscore` compare letters: a right answer in other words scores low.

`bleu` (Papineni et al. 2002): sentence BLEU as sacrebleu computes it (Post 2018, WMT):
n-grams up to the longest the document has, at most 4 (effective order), exponential
smoothing, 0 to 100.

`chrf` (Popović 2015, WMT): F-score of the n-grams of characters, n from 1 to 6, recall
counting twice, as sacrebleu computes it, 0 to 100. With `word_order` 2 it is chrF++.

`rouge1`, `rouge2`, `rougeL` (Lin 2004): F1 of shared words, pairs of words, and of the
longest common subsequence of words, as torchmetrics computes it, 0 to 1. Words are runs of
a to z and 0 to 9 in lower case, not stemmed, as in Google's `rouge_score`: other scripts
have none. Line breaks end no sentence (rougeLsum). The three read one record.

`bertscore` (Zhang et al., ICLR 2020): F1 of the cosines of tokens that are most alike, by a
layer of an encoder; about 0.8 to 1 by RoBERTa-large, as it is not rescaled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from plait.generators.base import Kind, NotApplicable, Outcome, Result, Unscored, Weights
from plait.generators.document import Candidate, Document, Query, Score, Text
from plait.generators.extras import Extra
from plait.generators.settings import unkeyed
from plait.generators.work import SCORED, FigureRange, Work
from plait.scorers.base import (
    NO_TRUTH,
    DocumentSettings,
    NoScore,
    Preset,
    Presets,
    Scorer,
    SmallModelSettings,
)
from plait.scorers.parts import PartScale, PartTable

Tokenize = Literal["13a", "intl", "zh", "char", "none"]
Smooth = Literal["exp", "floor", "none"]
ORDER = 4
"""The longest n-grams that BLEU counts (Papineni et al. 2002, section 2.3)."""
ROUGE = {"rouge1": 1, "rouge2": 2, "rougeL": 1}
"""Variant -> the fewest words that it compares."""
_NO_TEXT = "the document holds no text"
_WORD = re.compile("[a-z0-9]+")


class BleuSettings(DocumentSettings):
    """How texts are cut into words and compared, in sacrebleu's terms."""

    stage: ClassVar[str] = "bleu"
    target: ClassVar[str] = "plait.scorers.texts:Bleu"

    tokenize: Tokenize = "13a"
    """`13a` cuts at blanks and punctuation; `zh` and `char` suit Chinese and scripts
    without blanks."""
    lowercase: bool = False
    """Whether upper and lower case count as the same."""
    smooth: Smooth = "exp"
    """What replaces a precision of 0 (Chen and Cherry 2014)."""


class ChrfSettings(DocumentSettings):
    """Which n-grams count, in sacrebleu's terms."""

    stage: ClassVar[str] = "chrf"
    target: ClassVar[str] = "plait.scorers.texts:Chrf"

    char_order: int = Field(default=6, ge=1)
    """The longest n-grams of characters, which leave out blanks."""
    word_order: int = Field(default=0, ge=0)
    """The longest n-grams of words; 2 for chrF++."""
    beta: int = Field(default=2, ge=0)
    """How many times as much recall counts as precision."""
    lowercase: bool = False
    """Whether upper and lower case count as the same."""


class RougeSettings(DocumentSettings):
    """ROUGE has no choices."""

    stage: ClassVar[str] = "rouge"
    target: ClassVar[str] = "plait.scorers.texts:Rouge"
    extra: ClassVar[Extra | None] = "models"


LAYERS: Mapping[str, int] = {
    "FacebookAI/roberta-base": 10,
    "FacebookAI/roberta-large": 17,
    "google-bert/bert-base-chinese": 8,
    "google-bert/bert-base-multilingual-cased": 9,
    "google-bert/bert-base-uncased": 9,
    "google-bert/bert-large-uncased": 18,
}
"""The layer of each model that agrees best with people (`model2layers` of bert_score)."""


class BertScoreSettings(SmallModelSettings):
    """The encoder, and how it is run."""

    kind: ClassVar[Kind] = Kind.SCORE
    stage: ClassVar[str] = "bertscore"
    target: ClassVar[str] = "plait.scorers.bertscore:BertScore"

    batch_size: int = unkeyed(32, ge=1)
    """Documents scored at once."""
    model: str = unkeyed("FacebookAI/roberta-large")
    """A Hub id or folder of a BERT or RoBERTa with its `tokenizer.json`. The default is
    bert_score's for English; google-bert/bert-base-multilingual-cased is for others."""
    dtype: Literal["float32"] = "float32"
    """As the official code computes."""
    layer: int | None = Field(default=None, ge=1)
    """Whose states are compared; by default the one that bert_score gives for the model."""
    max_tokens: int = Field(default=512, ge=3)
    """Tokens of a text that are read, the first and the last one included."""
    params_b: float | None = unkeyed(0.355, gt=0)

    @model_validator(mode="after")
    def _has_layer(self) -> "BertScoreSettings":
        if self.layer is None and self.model not in LAYERS:
            raise ValueError(
                f"no layer of {self.model!r} is published: set `layer`, or name one of "
                f"{', '.join(LAYERS)}"
            )
        return self

    @property
    def reads(self) -> int:
        """The layer whose states are compared."""
        return self.layer or LAYERS[self.model]

    def key_fields(self, weights: Weights) -> dict[str, Any]:
        """As for every model, with the layer made explicit."""
        return super().key_fields(weights) | {"layer": self.reads}

    def _work(self) -> Work:
        """Two texts as long as most answers meet the layers, most of the parameters."""
        flops = 2e9 * (self.params_b or 0.0) * 2
        return Work(
            weight_bytes=self.weight_bytes,
            flops=FigureRange.between(115 * flops, 330 * flops),
            usage=SCORED,
        )


class TextStage:
    """Scores texts against the ground truth's, one by one."""

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """One score per document; what cannot be compared is Unscored or NotApplicable."""
        return [self._outcome(candidate) for candidate in inputs]

    def _outcome(self, candidate: Candidate) -> Outcome[Score]:
        texts = texts_of(candidate.document, candidate.reference)
        if not isinstance(texts, tuple):
            return texts
        return Result(self._score(*texts), {"texts": 1})

    def _score(self, text: str, truth: str) -> Score:
        raise NotImplementedError


class Bleu(TextStage):
    """Scores by BLEU. `parts` hold what it is made of, and `signature`.

    `counts` and `totals` are the n-grams shared with the reference and all n-grams, for n
    from 1 to 4; `document_words` and `reference_words` are lengths in words.
    """

    def __init__(self, *, weights: Weights | None = None, **settings: Any) -> None:
        from sacrebleu.metrics.bleu import BLEU

        own = BleuSettings(**settings)
        self._bleu = BLEU(
            tokenize=own.tokenize,
            lowercase=own.lowercase,
            smooth_method=own.smooth,
            effective_order=True,
            max_ngram_order=ORDER,
        )

    def _score(self, text: str, truth: str) -> Score:
        bleu = self._bleu.sentence_score(text, [truth])
        parts = {
            "counts": [int(n) for n in bleu.counts],
            "totals": [int(n) for n in bleu.totals],
            "brevity_penalty": float(bleu.bp),
            "document_words": int(bleu.sys_len),
            "reference_words": int(bleu.ref_len),
            "signature": str(self._bleu.get_signature()),
        }
        return Score(float(bleu.score), parts)


class Chrf(TextStage):
    """Scores by chrF. `parts` hold its `signature`."""

    def __init__(self, *, weights: Weights | None = None, **settings: Any) -> None:
        from sacrebleu.metrics.chrf import CHRF

        own = ChrfSettings(**settings)
        self._chrf = CHRF(own.char_order, own.word_order, own.beta, own.lowercase)

    def _score(self, text: str, truth: str) -> Score:
        chrf = self._chrf.sentence_score(text, [truth])
        return Score(float(chrf.score), {"signature": str(self._chrf.get_signature())})


class Rouge(TextStage):
    """Scores by ROUGE. `parts` hold `precision`, `recall` and `f1` of each variant.

    The value is F1 of ROUGE-L; `document_words` and `reference_words` are lengths.
    """

    def __init__(self, *, weights: Weights | None = None, **settings: Any) -> None:
        RougeSettings(**settings)

    def _score(self, text: str, truth: str) -> Score:
        from torchmetrics.functional.text import rouge_score

        found = rouge_score(text, truth, rouge_keys=tuple(ROUGE))
        parts: dict[str, Any] = {}
        for variant in ROUGE:
            parts[variant] = {
                "precision": float(found[f"{variant}_precision"]),
                "recall": float(found[f"{variant}_recall"]),
                "f1": float(found[f"{variant}_fmeasure"]),
            }
        parts["document_words"] = len(_WORD.findall(text.lower()))
        parts["reference_words"] = len(_WORD.findall(truth.lower()))
        return Score(parts["rougeL"]["f1"], parts)


def texts_of(document: Document, truth: Document | None) -> tuple[str, str] | NoScore:
    """Return both texts on one line each, or why there is nothing to compare.

    Line breaks and boundaries of segments do not count.
    """
    true = _true_text(truth)
    if not isinstance(true, str):
        return true
    own = " ".join(document.text.split())
    return (own, true) if own else Unscored(_NO_TEXT)


def _true_text(truth: Document | None) -> str | NotApplicable:
    """Return the ground truth's text on one line, or why there is none."""
    if truth is None:
        return NotApplicable(NO_TRUTH)
    true = " ".join(truth.text.split())
    return true or NotApplicable("the ground truth holds no text")


@dataclass(frozen=True, slots=True)
class TextScorer(Scorer):
    """Scores the text of a document against the text of the ground truth."""

    presets: ClassVar[Presets] = {
        "bertscore": Preset(
            BertScoreSettings(),
            {"scale": "-1-1", "unit": "F1 of cosines", "licence": "MIT"},
        ),
        "bleu": Preset(BleuSettings(), {"scale": "0-100", "unit": "BLEU"}),
        "chrf": Preset(ChrfSettings(), {"scale": "0-100", "unit": "chrF"}),
    }
    declared_parts: ClassVar[PartTable] = PartTable.of(
        # Of BERTScore:
        PartScale("precision", "cosine", "-1-1"),
        PartScale("recall", "cosine", "-1-1"),
        PartScale("truncated", "boolean", "0-1"),
        # Of BLEU:
        PartScale("counts/*", "n-grams"),
        PartScale("totals/*", "n-grams"),
        PartScale("brevity_penalty", "factor", "0-1"),
        PartScale("document_words", "words"),
        PartScale("reference_words", "words"),
    )

    no_text: ClassVar[str] = _NO_TEXT

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs text of the ground truth."""
        true = _true_text(query.reference)
        return None if isinstance(true, str) else true

    def candidate(self, query: Query, document: Document) -> Candidate | NoScore:
        """Return the texts alone: systems that draw other images to them share it."""
        texts = texts_of(document, query.reference)
        if not isinstance(texts, tuple):
            return texts
        answer, reference = (Document((Text(text),)) for text in texts)
        return Candidate(answer, reference=reference)


@dataclass(frozen=True, slots=True)
class RougeScorer(TextScorer):
    """Reads one variant of ROUGE from the record of all."""

    presets: ClassVar[Presets] = dict.fromkeys(
        ROUGE, Preset(RougeSettings(), {"scale": "0-1", "unit": "F1"})
    )
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("*/precision", "share", "0-1"),
        PartScale("*/recall", "share", "0-1"),
        PartScale("*/f1"),
        PartScale("document_words", "words"),
        PartScale("reference_words", "words"),
    )

    def read(self, outcome: Outcome[Score]) -> Outcome[Score]:
        """Return F1 of the variant; NotApplicable where it has nothing to compare with."""
        if not isinstance(outcome, Result):
            return outcome
        parts = outcome.value.parts
        if parts["reference_words"] < ROUGE[self.name]:
            return NotApplicable(
                f"the ground truth has {parts['reference_words']} words of a to z and 0 to "
                f"9; {self.name} needs {ROUGE[self.name]}"
            )
        return replace(outcome, value=Score(parts[self.name]["f1"], parts))
