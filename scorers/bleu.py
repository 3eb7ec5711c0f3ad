"""BLEU against the ground truth: the baseline that reads text alone.

A document's value is sentence BLEU of its whole text against the whole text of the ground
truth, as sacrebleu computes it (Post 2018, WMT; Papineni et al. 2002): n-grams up to the
longest the document has, at most 4 (effective order), exponential smoothing, 0 to 100.
A mean of these values is not corpus BLEU, which adds up n-grams before it divides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from generators.base import Kind, NotApplicable, Outcome, Result, Unscored, Weights
from generators.document import Candidate, Document, Sample, Score, Text
from generators.settings import WeightlessSettings, unkeyed
from scorers.base import Scorer

Tokenize = Literal["13a", "intl", "zh", "char", "none"]
Smooth = Literal["exp", "floor", "none"]
ORDER = 4
"""The longest n-grams that count (Papineni et al. 2002, section 2.3)."""


class BleuSettings(WeightlessSettings):
    """How texts are cut into words and compared, in sacrebleu's terms."""

    kind: ClassVar[Kind] = Kind.SCORE
    stage: ClassVar[str] = "bleu"
    target: ClassVar[str] = "scorers.bleu:Bleu"

    batch_size: int = unkeyed(256, ge=1)
    """Documents scored at once."""
    num_cpus: float = unkeyed(0.5, ge=0)
    """CPU cores of one replica."""
    tokenize: Tokenize = "13a"
    """`13a` cuts at blanks and punctuation; `zh` and `char` suit Chinese and scripts
    without blanks."""
    lowercase: bool = False
    """Whether upper and lower case count as the same."""
    smooth: Smooth = "exp"
    """What replaces a precision of 0 (Chen and Cherry 2014)."""


class Bleu:
    """Scores texts. A result's `parts` hold what BLEU is made of, and `signature`.

    `counts` and `totals` are the n-grams shared with the reference and all n-grams, for n
    from 1 to 4; `document_words` and `reference_words` are lengths in words.
    """

    def __init__(self, *, weights: Weights | None = None, **settings: Any) -> None:
        self._bleu = _metric(BleuSettings(**settings))

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """One score per document; what cannot be compared is Unscored or NotApplicable."""
        return [self._outcome(candidate) for candidate in inputs]

    def _outcome(self, candidate: Candidate) -> Outcome[Score]:
        texts = _texts(candidate.document, candidate.reference)
        if not isinstance(texts, tuple):
            return texts
        text, truth = texts
        bleu = self._bleu.sentence_score(text, [truth])
        parts = {
            "counts": [int(n) for n in bleu.counts],
            "totals": [int(n) for n in bleu.totals],
            "brevity_penalty": float(bleu.bp),
            "document_words": int(bleu.sys_len),
            "reference_words": int(bleu.ref_len),
            "signature": str(self._bleu.get_signature()),
        }
        return Result(Score(float(bleu.score), parts), {"texts": 1})


def _texts(
    document: Document, truth: Document | None
) -> tuple[str, str] | Unscored | NotApplicable:
    """Return both texts on one line each, or why there is nothing to compare.

    Line breaks and boundaries of segments do not count.
    """
    if truth is None:
        return NotApplicable("the query has no ground truth")
    own, true = (" ".join(d.text.split()) for d in (document, truth))
    if not true:
        return NotApplicable("the ground truth holds no text")
    return (own, true) if own else Unscored("the document holds no text")


def _metric(settings: BleuSettings) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(
        tokenize=settings.tokenize,
        lowercase=settings.lowercase,
        smooth_method=settings.smooth,
        effective_order=True,
        max_ngram_order=ORDER,
    )


@dataclass(frozen=True, slots=True)
class BleuScorer(Scorer):
    """Scores the text of a document against the text of the ground truth."""

    settings = BleuSettings
    scale: str = "0-100"
    unit: str = "BLEU"

    def candidate(
        self, query: Sample, document: Document
    ) -> Candidate | Unscored | NotApplicable:
        """Return the texts alone: systems that draw other images to them share it."""
        texts = _texts(document, query.reference)
        if not isinstance(texts, tuple):
            return texts
        answer, reference = (Document((Text(text),)) for text in texts)
        return Candidate(answer, reference=reference)
