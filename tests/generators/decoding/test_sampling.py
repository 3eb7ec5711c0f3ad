"""From logits to tokens by hand, and scripted texts that make room for one another."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from plait.generators.decoding import batch_writer, sampling
from plait.generators.decoding.sampling import (
    NONE,
    NumberCheck,
    Numbers,
    Sampler,
    draw_tokens,
    penalise,
    shortlist,
    sound_tokens,
)
from plait.generators.decoding.streams import Streams
from plait.generators.decoding.texts import TextWriter

pytestmark = pytest.mark.models


def test_penalty_divides_positive_and_multiplies_negative():
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0, -torch.inf]])
    seen = torch.tensor([[True, True, False, False, True]])
    lowered = penalise(logits, seen, 1.25)
    assert lowered.tolist()[0] == pytest.approx([1.6, -2.5, 2.0, -2.0, -torch.inf])


@pytest.mark.parametrize(
    ("draw", "column"),
    [(0.0, 1), (0.1999, 1), (0.2001, 3), (0.4999, 3), (0.5001, 4), (1 - 2**-53, 4)],
)
def test_draw_by_hand(draw, column):
    p = torch.tensor([[0.0, 0.2, 0.0, 0.3, 0.5, 0.0]])
    draws = torch.tensor([draw], dtype=torch.float64)
    assert draw_tokens(p, draws).tolist() == [column]
    assert draw_tokens(0.9 * p, draws).tolist() == [column], (
        "sums differ from one by rounding"
    )


@pytest.fixture
def chosen(monkeypatch):
    """The columns that a sampler chooses by these numbers in [0, 1)."""

    def choose(sampler: Sampler, logits: torch.Tensor, draws: list[float]) -> list[int]:
        uniforms = torch.tensor(draws, dtype=torch.float64)
        monkeypatch.setattr(sampling, "uniforms", lambda generators: uniforms)
        return sampler.sample(logits, []).tolist()

    return choose


def test_temperature_top_p_and_greed(chosen):
    logits = torch.tensor([[3.0, 2.0, 0.0], [-1.0, 1.0, 1.5]])
    draws = [0.99, 0.0]
    assert chosen(Sampler(1.0, 0.9, greedy=True), logits, draws) == [0, 2]
    # At temperature 1 the first row keeps columns 0 and 1 (0.71 + 0.26 > 0.9),
    # the second 1 and 2 (0.95).
    assert chosen(Sampler(1.0, 0.9, greedy=False), logits, draws) == [1, 1]
    # Colder, column 0 alone has 0.92.
    assert chosen(Sampler(0.4, 0.9, greedy=False), logits, draws) == [0, 1]


def test_top_k_keeps_the_most_probable_and_comes_before_top_p(chosen):
    logits = torch.tensor([[0.1, 3.0, 2.0, -1.0], [5.0, 4.0, 3.0, 2.0]])
    assert torch.isfinite(shortlist(logits, 2)).tolist() == [
        [False, True, True, False],
        [True, True, False, False],
    ]
    assert shortlist(logits, 0) is logits
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    # Of the two kept, the first alone reaches 0.5 once they are scaled to sum to one.
    assert chosen(Sampler(1.0, 0.5, greedy=False, top_k=2), logits, [0.999]) == [0]
    assert chosen(Sampler(1.0, 0.5, greedy=False), logits, [0.999]) == [1]


def test_a_row_draws_from_its_own_generator_and_only_where_something_is_drawn():
    logits = torch.zeros(2, 1000)
    one, two = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    sampler = Sampler(temperature=1.0, top_p=1.0, greedy=False)
    both = sampler.sample(logits, [one, two]).tolist()
    alone = torch.Generator().manual_seed(2)
    assert sampler.sample(logits[:1], [alone]).tolist() == both[1:]
    expected = torch.rand(
        (), generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    assert both[0] == int(expected * 1000)
    before = one.get_state()
    Sampler(1.0, 1.0, greedy=True).sample(logits[:1], [one])
    assert torch.equal(one.get_state(), before)


def test_numbers_drawn_ahead_are_those_of_each_generator_one_by_one():
    """Over several blocks, in any order, and again where one was not used."""
    random = np.random.default_rng(3)
    seeds = (5, 6, 5, 2**40)
    numbers = Numbers(seeds)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    following = [torch.rand((), generator=g, dtype=torch.float64) for g in generators]
    for _ in range(5 * sampling._AHEAD):
        records = random.permutation(4)[: random.integers(1, 5)]
        used = torch.from_numpy(random.random(len(records)) < 0.8)
        drawn = numbers.draw(torch.from_numpy(records), used)
        for record, number, is_used in zip(records, drawn, used, strict=True):
            assert number == following[record]
            if is_used:
                following[record] = torch.rand(
                    (), generator=generators[record], dtype=torch.float64
                )


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize(
    "wrong",
    [[torch.nan] * 3, [-torch.inf] * 3, [0.0, torch.nan, 1.0], [0.0, torch.inf, 1.0]],
)
def test_a_row_without_numbers_has_no_token(greedy, wrong):
    logits = torch.tensor([[0.0, 5.0, -torch.inf], wrong, [9.0, 0.0, 1.0]])
    generators = [torch.Generator().manual_seed(i) for i in range(3)]
    columns = Sampler(0.01, 0.9, greedy, top_k=2).sample(logits, generators)
    assert sound_tokens(columns, logits).tolist() == [1, NONE, 0]


def test_what_generate_chooses_by_is_noted_for_every_row_and_step():
    check, first, second = NumberCheck(), torch.zeros(2, 3), torch.zeros(2, 3)
    second[1, 2] = torch.nan
    assert [check(None, scores) is scores for scores in (first, second)] == [True, True]
    assert check.rows == [[True, True], [True, False]]


END = 7
LENGTHS = (4, 0, 8, 2, 3, 6, 3, 5)
"""Tokens of each record before its end."""
LIMITS = (9, 1, 3, 2, 4, 6, 1, 7)
"""Beyond the end, at it, at the token before it, and earlier."""


class EchoingDecoder(torch.nn.Module):
    """Its states are what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(1, 1)

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.embed

    def forward(self, inputs_embeds, past_key_values, **_):
        states = inputs_embeds[:, None]
        past_key_values.update(states, states, 0)
        return SimpleNamespace(last_hidden_state=inputs_embeds)


@pytest.mark.parametrize("behind", [0, 1, 2])
@pytest.mark.parametrize("rows", [None, 1, 3, 8])
def test_each_record_reads_its_own_tokens_and_ends_at_its_own_limit(
    rows, behind, monkeypatch
):
    """Wherever the host reads, a record that has ended writes and reads nothing more."""
    monkeypatch.setattr(batch_writer, "steps_behind", lambda device: behind)
    scripts = [[*range(100 * i, 100 * i + n), END] for i, n in enumerate(LENGTHS, start=1)]
    prompts = [[-i, -i - 0.5] for i in range(len(scripts))]
    fed = [prompt[-1] for prompt in prompts]
    streams = Streams(EchoingDecoder(), context=99)
    tokens = [min(len(s), limit) for s, limit in zip(scripts, LIMITS, strict=True)]
    written = [0] * len(scripts)

    def choose(states, records):
        if behind == 0:
            unfinished = [i for i, n in enumerate(tokens) if written[i] < n]
            assert sorted(records.tolist()) == unfinished[:rows], "the first that are left"
        chosen = []
        for state, record in zip(states[0].tolist(), records.tolist(), strict=True):
            assert state == [fed[record]]
            chosen.append((scripts[record] + [END])[written[record]])
            written[record] += written[record] < tokens[record]
            if written[record] < tokens[record]:
                fed[record] = chosen[-1]
        return torch.tensor(chosen)

    write = TextWriter(
        streams,
        lambda records: streams.open([torch.tensor(prompts[r])[:, None] for r in records]),
        choose,
        lambda tokens: tokens[:, None].float(),
        {END},
        rows,
    )
    for track, script, limit in zip(write(LIMITS), scripts, LIMITS, strict=True):
        ended = len(script) <= limit
        assert track.ids == (script[:-1] if ended else script[:limit])
        assert track.stop == ("stop" if ended else "length")
        assert track.tokens == min(len(script), limit)
    assert written == tokens
    assert len(streams) == 0
