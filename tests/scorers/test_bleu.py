"""BLEU against hand-computed values, its own formula, and sacrebleu's corpus program."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from clipscore_helpers import picture as png
from contents import document, query_of
from hypothesis import given
from hypothesis import strategies as st

from generators.base import Job
from generators.document import Candidate, Document
from scorers import resolve_scorer
from scorers.bleu import Bleu

WORDS = st.lists(
    st.sampled_from(["cat", "dog", "sat", "on", "the", "mat"]), min_size=1, max_size=12
)


def outcome(text: str, truth: str | None, **settings):
    reference = None if truth is None else document(truth)
    return Bleu(**settings)([Candidate(document(text), reference=reference)])[0]


def value(text: str, truth: str, **settings) -> float:
    return outcome(text, truth, **settings).value.value


@pytest.mark.parametrize(
    ("text", "truth", "expected"),
    [
        # precisions 5/6, 3/5, 1/4, and 0/3 smoothed to 1/(2*3)
        (
            "the cat sat on the mat",
            "the cat is on the mat",
            100 * (5 / 6 * 3 / 5 / 4 / 6) ** 0.25,
        ),
        ("the cat", "the cat", 100.0),  # effective order 2
        ("the cat", "the cat sat down", 100 * math.exp(1 - 4 / 2)),  # brevity
        ("the the the the", "the cat", 100 * (1 / 4 / 6 / 8 / 8) ** 0.25),  # clipped
        ("dogs bark", "the cat", 0.0),
    ],
)
def test_values_by_hand(text, truth, expected):
    assert value(text, truth) == pytest.approx(expected, rel=1e-12)


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
