"""Drawing tokens and penalising repetition, row by row."""

import numpy as np
import pytest
import torch
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pipelines.vlm.decoding import DrawToken, RepetitionPenalty, Sampling
from pipelines.vlm.reading import ReadPrompt
from pipelines.vlm.streaming import TokenChooser

pytestmark = pytest.mark.models


def sampled(scores, seeds, steps=1):
    draw = DrawToken(seeds)
    return torch.stack([draw(None, scores).argmax(-1) for _ in range(steps)], 1)


def test_tokens_are_drawn_as_often_as_their_probability_says():
    """Expected counts n * p, within 5 standard deviations of the binomial."""
    scores = torch.tensor([0.0, 1.0, -torch.inf, 2.0, -1.0])
    n = 20_000
    tokens = sampled(scores.repeat(n, 1), range(n))[:, 0]
    counts = torch.bincount(tokens, minlength=5).double()
    p = scores.double().exp() / scores.double().exp().sum()
    assert counts[2] == 0
    assert torch.all((counts - n * p).abs() <= 5 * (n * p * (1 - p)).sqrt())


def test_a_row_draws_the_same_whatever_its_neighbours():
    scores = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    together = sampled(scores, [5, 6, 7], steps=20)
    for row, seed in enumerate([5, 6, 7]):
        alone = sampled(scores[row : row + 1], [seed], steps=20)
        assert torch.equal(together[row], alone[0])
    moved = sampled(scores.flip(0), [7, 6, 5], steps=20)
    assert torch.equal(moved.flip(0), together)


def test_a_token_without_probability_is_never_drawn(monkeypatch):
    """Not even where the random number is exactly 0 and the token comes first."""
    monkeypatch.setattr(
        torch, "rand", lambda *size, dtype, **_: torch.zeros(size, dtype=dtype)
    )
    assert sampled(torch.tensor([[-torch.inf, -torch.inf, 0.0, 1.0]]), [0]).tolist() == [
        [2]
    ]


def test_the_penalty_is_the_librarys_without_the_padding():
    pad, ids = 0, torch.tensor([[0, 0, 3, 4, 4], [0, 1, 2, 3, 0]])
    mask = torch.tensor([[0, 0, 1], [1, 1, 1]])
    scores = torch.tensor([[1.0, -1.0, 2.0, -2.0, 3.0, 0.5]]).repeat(2, 1)
    penalised = RepetitionPenalty(1.5, mask)(ids, scores)
    library = RepetitionPenaltyLogitsProcessor(1.5)
    assert torch.equal(penalised[0], library(ids[:1, 2:], scores[:1])[0])
    assert torch.equal(penalised[1], library(ids[1:], scores[1:])[0])
    assert penalised[0, pad] == 1.0
    assert penalised[1, pad] == pytest.approx(1 / 1.5)
    assert penalised[0, 3] == -3.0
    assert penalised[0, 4] == 2.0
    assert ids.tolist() == [[0, 0, 3, 4, 4], [0, 1, 2, 3, 0]]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(repetition_penalty=0.6),
        Sampling(repetition_penalty=1.8),
        Sampling(temperature=1.3, top_p=0.8, top_k=6, repetition_penalty=1.4),
        Sampling(temperature=0.7, top_p=0.6),
        Sampling(temperature=2.0, top_k=3),
        Sampling(temperature=0.5, repetition_penalty=0.8),
    ],
    ids=str,
)
def test_streams_choose_as_the_library_does_for_each_record_alone(sampling):
    """Records of all ages come in any order; a token is drawn in float64 by the formula."""
    random = np.random.default_rng(2)
    torch.manual_seed(2)
    head, seeds = torch.nn.Linear(8, 20, bias=False).requires_grad_(False), (5, 6, 5, 9)
    texts = [torch.from_numpy(random.integers(0, 20, n)) for n in (1, 4, 9, 3)]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    prompts = [ReadPrompt(torch.empty(len(ids), 8), torch.empty(0), ids) for ids in texts]
    choose = TokenChooser(head, sampling, prompts, seeds)
    for _ in range(30):
        records = random.permutation(4)[: random.integers(1, 5)].tolist()
        states = 3 * torch.randn(len(records), 8)
        chosen = choose(states, records)
        for state, record, token in zip(states, records, chosen, strict=True):
            scores = by_the_library(head(state[None]), texts[record][None], sampling)
            assert token == drawn_alone(scores[0], sampling, generators[record])
            texts[record] = torch.cat([texts[record], torch.tensor([token])])


def by_the_library(scores, ids, sampling):
    if sampling.repetition_penalty != 1:
        scores = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)(ids, scores)
    if sampling.temperature:
        scores = TemperatureLogitsWarper(sampling.temperature)(ids, scores)
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(ids, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(ids, scores)
    return scores


def drawn_alone(scores, sampling, generator) -> int:
    if not sampling.temperature:
        return int(scores.argmax())
    sums = np.cumsum(scores.double().softmax(-1).numpy())
    number = torch.rand((), generator=generator, dtype=torch.float64).item()
    return int(np.searchsorted(sums, number * sums[-1], side="right"))
