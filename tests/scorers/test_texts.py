"""Metrics of texts against values by hand, and against their formulas written out."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from clipscore_helpers import picture as png
from contents import document, query_of
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.generators.base import Job, NotApplicable, Result
from plait.generators.document import Candidate, Document, Score
from plait.scorers import resolve_scorer
from plait.scorers.texts import Bleu, Chrf, Rouge

WORDS = st.lists(
    st.sampled_from(["cat", "dog", "sat", "on", "the", "mat"]), min_size=1, max_size=12
)


def outcome(text: str, truth: str | None, **settings):
    reference = None if truth is None else document(truth)
    return Bleu(**settings)([Candidate(document(text), reference=reference)])[0]


def value(text: str, truth: str, **settings) -> float:
    return outcome(text, truth, **settings).value.value


def formula(words: list[str], true: list[str]) -> float:
    """Sentence BLEU as Papineni et al. and Chen & Cherry (method 3) write it."""
    if not set(words) & set(true):
        return 0.0
    precisions, smooth = [], 1.0
    for n in range(1, min(4, len(words)) + 1):
        mine, theirs = (
            Counter(tuple(t[i : i + n]) for i in range(len(t) - n + 1))
            for t in (words, true)
        )
        hits, total = sum((mine & theirs).values()), sum(mine.values())
        if not hits:
            smooth *= 2
        precisions.append(hits / total if hits else 1 / (smooth * total))
    brevity = min(1.0, math.exp(1 - len(true) / len(words)))
    logs = sum(math.log(p) for p in precisions) / len(precisions)
    return 100 * brevity * math.exp(logs)


@given(WORDS, WORDS)
def test_values_are_the_formula_in_float64(words, true):
    assert value(" ".join(words), " ".join(true)) == pytest.approx(
        formula(words, true), rel=1e-12, abs=1e-12
    )


def test_settings_reach_sacrebleu():
    assert value("The CAT", "the cat") == 0.0
    assert value("The CAT", "the cat", lowercase=True) == pytest.approx(100.0)
    chinese = "\u732b\u5750\u5728\u57ab\u5b50\u4e0a", "\u732b\u5750\u5728\u6905\u5b50\u4e0a"
    assert value(*chinese) == 0.0
    assert 0 < value(*chinese, tokenize="zh") < 100
    assert value("the dog", "the cat", smooth="none") == 0.0
    signature = outcome("a b", "a b", lowercase=True).value.parts["signature"]
    assert "case:lc" in signature
    assert "eff:yes" in signature
    assert "tok:13a" in signature


def job_of(answer: Document, truth: Document) -> Job:
    asking = query_of("What next?", reference=truth)
    (job,) = next(resolve_scorer("bleu", "tiny", {}).judge(asking, answer))
    return job


def test_one_record_serves_all_pictures_drawn_to_a_text():
    first = job_of(document("a", png(1), "b"), document("c", png(2)))
    second = job_of(document("a", "b", png(3), png(4)), document("c"))
    assert first.key == second.key
    assert first.key != job_of(document("a", "c"), document("c")).key
    assert first.key != job_of(document("a", "b"), document("d")).key


def chrf(text: str, truth: str, order: int = 6, beta: int = 2) -> float:
    """Popović 2015: mean precision and recall over n, those without n-grams left out."""
    own, true = ("".join(t.split()) for t in (text, truth))
    precisions, recalls = [], []
    for n in range(1, order + 1):
        mine, theirs = (
            Counter(t[i : i + n] for i in range(len(t) - n + 1)) for t in (own, true)
        )
        hits = sum((mine & theirs).values())
        if mine and theirs:
            precisions.append(hits / sum(mine.values()))
            recalls.append(hits / sum(theirs.values()))
    if not any(precisions):
        return 0.0
    p, r = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    return 100 * (1 + beta**2) * p * r / (beta**2 * p + r)


def shared(words: list[str], true: list[str], variant: str) -> tuple[int, int, int]:
    """What both have, and what each has: words, pairs of words, or a subsequence."""
    if variant == "rougeL":
        longest = [[0] * (len(true) + 1) for _ in range(len(words) + 1)]
        for i, word in enumerate(words):
            for j, other in enumerate(true):
                longest[i + 1][j + 1] = (
                    longest[i][j] + 1
                    if word == other
                    else max(longest[i][j + 1], longest[i + 1][j])
                )
        return longest[-1][-1], len(words), len(true)
    n = int(variant[-1])
    mine, theirs = (
        Counter(zip(*(t[i:] for i in range(n)), strict=False)) for t in (words, true)
    )
    return sum((mine & theirs).values()), sum(mine.values()), sum(theirs.values())


def scored(name: str, text: str, truth: str, **settings):
    stage = {"chrf": Chrf}.get(name, Rouge)(**settings)
    (outcome,) = stage([Candidate(document(text), reference=document(truth))])
    return resolve_scorer(name, "tiny", settings).read(outcome)


@settings(max_examples=30)
@given(WORDS, WORDS)
def test_chrf_is_its_formula_in_float64(words, true):
    text, truth = " ".join(words), " ".join(true)
    own = scored("chrf", text, truth).value.value
    assert own == pytest.approx(chrf(text, truth), rel=1e-12)


@pytest.mark.models
@pytest.mark.parametrize("name", ["rouge1", "rouge2", "rougeL"])
@settings(max_examples=20)
@given(words=WORDS, true=WORDS)
def test_rouge_is_its_formula(name, words, true):
    outcome = scored(name, ", ".join(words).upper(), " ".join(true) + ".")
    hits, mine, theirs = shared(words, true, name)
    if not theirs:
        assert isinstance(outcome, NotApplicable)
        return
    # 2PR / (P + R); torchmetrics gives float32.
    expected = 2 * hits / (mine + theirs) if mine else 0.0
    assert outcome.value.value == pytest.approx(expected, abs=1e-6)
    about = outcome.value.parts[name]
    assert about["recall"] == pytest.approx(hits / theirs, abs=1e-6)
    assert outcome.value.parts["reference_words"] == len(true)


@pytest.mark.models
def test_settings_reach_chrf_and_words_of_other_scripts_have_no_rouge():
    assert scored("chrf", "CAT", "cat").value.value == 0.0
    assert scored("chrf", "CAT", "cat", lowercase=True).value.value == 100.0
    plus = scored("chrf", "on a mat", "a mat on", word_order=2).value
    assert plus.value != scored("chrf", "on a mat", "a mat on").value.value
    assert "nw:2" in plus.parts["signature"]
    chinese = "\u732b\u5750\u5728\u57ab\u5b50\u4e0a"
    assert isinstance(scored("rougeL", "a cat", chinese), NotApplicable)
    assert scored("rougeL", chinese, "a cat").value.value == 0.0


def test_variants_of_rouge_share_a_record():
    asking = query_of("What next?", reference=document("a cat sat"))
    scorers = [resolve_scorer(n, "tiny", {}) for n in ("rouge1", "rouge2", "rougeL")]
    (jobs,) = {tuple(j.key for j in next(s.judge(asking, document("a")))) for s in scorers}
    assert len(jobs) == 1
    parts = {n: {"f1": i / 4} for i, n in enumerate(("rouge1", "rouge2", "rougeL"))}
    record = Result(Score(0.5, parts | {"reference_words": 2}))
    assert [s.read(record).value.value for s in scorers] == [0.0, 0.25, 0.5]
