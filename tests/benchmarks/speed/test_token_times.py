"""Token times against models that take known times, on a clock that the test moves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from speed_helpers import FakeTime
from transformers import (
    GenerationMixin,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
)

from benchmarks.speed.instruments.tokens import BEAMS, TokenTimes
from generators.decoding.streams import Streams

PREFILL, STEP = 0.5, 0.125
END, FIRST_ROW_ENDS_AFTER = 3, 2


class Decoder(torch.nn.Module):
    """As a decoder of transformers: a prompt takes PREFILL seconds, a step STEP."""

    def __init__(self, time: FakeTime) -> None:
        super().__init__()
        self.embed, self.time = torch.nn.Embedding(10, 4), time

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.embed

    def forward(self, inputs_embeds, past_key_values, **_):
        positions = inputs_embeds.shape[1]
        self.time.pass_(STEP if positions == 1 else PREFILL)
        key = torch.zeros(len(inputs_embeds), 1, positions, 2)
        past_key_values.update(key, key, 0)
        return SimpleNamespace(last_hidden_state=inputs_embeds)


def test_the_decoding_loop_tells_when_each_stream_has_its_tokens() -> None:
    time = FakeTime()
    times = TokenTimes(time)
    with times.watching():
        times.begin()
        time.pass_(0.25)  # reading the question
        streams = Streams(Decoder(time), context=64)
        short, long = streams.open([torch.zeros(5, 4), torch.ones(5, 4)])
        for number in range(5):
            streams.step()
            time.pass_(0.0625)  # sampling
            if number == 2:
                streams.close(short)
                # A stream that joins later guides a picture: it is not a request.
                streams.open([torch.ones(1, 4)])
            if number < 4:
                streams.feed([long], torch.zeros(1, 4))
        streams.close(long)
        time.pass_(7.0)  # decoding the text
        times.end()
    assert times.first == [0.25 + PREFILL + STEP + 0.0625] * 2
    assert times.between == [STEP + 0.0625] * (2 + 4)
    assert times.reason is None


def test_an_unclosed_stream_has_its_last_token_when_the_call_returns() -> None:
    time = FakeTime()
    times = TokenTimes(time)
    with times.watching():
        times.begin()
        streams = Streams(Decoder(time), context=64)
        streams.open([torch.zeros(4, 4)])
        streams.step()
        times.end()
    assert times.first == [PREFILL + STEP]


class EndsFirstRow(LogitsProcessor):
    """The first row ends after some tokens; others never do."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, END] = -torch.inf
        if input_ids.shape[1] == 4 + FIRST_ROW_ENDS_AFTER - 1:
            scores[0] = -torch.inf
            scores[0, END] = 0.0
        return scores


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=20, num_hidden_layers=1, **sizes)
    made = LlamaForCausalLM(config).eval()
    made.generation_config.eos_token_id = END
    made.generation_config.pad_token_id = 0
    return made


@pytest.mark.models
def test_transformers_streams_each_token_of_each_row(model: LlamaForCausalLM) -> None:
    time = FakeTime()
    times = TokenTimes(time)
    hook = model.register_forward_hook(lambda *_: time.pass_(0.25))
    with times.watching():
        times.begin()
        model.generate(
            torch.ones(2, 4, dtype=torch.long),
            attention_mask=torch.ones(2, 4, dtype=torch.long),
            max_new_tokens=5,
            do_sample=False,
            logits_processor=LogitsProcessorList([EndsFirstRow()]),
        )
        times.end()
    hook.remove()
    assert times.first == [0.25] * 2
    # Row 1 ends with its second token; its padding is no token. Row 2 has five.
    assert times.between == [0.25] * (1 + 4)


@pytest.mark.models
def test_beam_search_has_no_token_times_and_says_so(model: LlamaForCausalLM) -> None:
    times = TokenTimes(FakeTime())
    with times.watching():
        times.begin()
        prompt = torch.ones(1, 4, dtype=torch.long)
        model.generate(
            prompt, attention_mask=prompt, max_new_tokens=3, num_beams=2, do_sample=False
        )
        times.end()
    assert (times.first, times.between, times.reason) == ([], [], BEAMS)


def test_nothing_is_left_replaced() -> None:
    before = Streams.step, Streams.feed, Streams.close, GenerationMixin.generate
    with TokenTimes(FakeTime()).watching():
        assert before[0] is not Streams.step
    assert before == (Streams.step, Streams.feed, Streams.close, GenerationMixin.generate)
