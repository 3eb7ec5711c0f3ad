"""Tokens, steps and requests of models that take known times, on a clock of the test."""

from __future__ import annotations

import asyncio
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

from plait.benchmarks.speed.figures import Speed
from plait.benchmarks.speed.rounds import measure, variants_of
from plait.benchmarks.speed.watches import (
    BEAMS,
    Clock,
    ExchangeTimes,
    StepTimes,
    TokenTimes,
)
from plait.benchmarks.speed.workload import of_system
from plait.cluster.loading import load_stage
from plait.generators.decoding import batch_writer
from plait.generators.decoding.streams import Streams
from plait.generators.decoding.texts import TextWriter
from plait.generators.diffusion.drawer import Drawer
from plait.pipelines.endpoints.client import EndpointClient
from plait.pipelines.systems import Models

pytestmark = pytest.mark.models

PREFILL, STEP = 0.5, 0.125
END, FIRST_ROW_ENDS_AFTER = 3, 2


class Decoder(torch.nn.Module):
    """As a decoder of transformers: a prompt takes PREFILL seconds, a step STEP."""

    def __init__(self, time):
        super().__init__()
        self.embed, self.time = torch.nn.Embedding(10, 4), time

    def get_input_embeddings(self):
        return self.embed

    def forward(self, inputs_embeds, past_key_values, **_):
        positions = inputs_embeds.shape[1]
        self.time.pass_(STEP if positions == 1 else PREFILL)
        key = torch.zeros(len(inputs_embeds), 1, positions, 2)
        past_key_values.update(key, key, 0)
        return SimpleNamespace(last_hidden_state=inputs_embeds)


def watched():
    time, speed = FakeTime(), Speed("batch 1")
    return time, speed, TokenTimes(speed, time)


SAMPLING = 0.0625


@pytest.mark.parametrize("behind", [0, 1])
def test_the_decoding_loop_tells_when_each_record_has_its_tokens(behind, monkeypatch):
    """Where it reads a step behind, a token is there when the next step is queued."""
    monkeypatch.setattr(batch_writer, "steps_behind", lambda device: behind)
    time, speed, times = watched()
    with times.watching():
        times.begin()
        time.pass_(0.25)  # reading the question
        streams = Streams(Decoder(time), context=64)

        def choose(states, records):
            time.pass_(SAMPLING)
            return torch.full_like(records, 5)

        TextWriter(
            streams,
            lambda records: streams.open([torch.zeros(5, 4), torch.ones(5, 4)]),
            choose,
            lambda tokens: torch.zeros(len(tokens), 4),
            {END},
        )([3, 5])
        time.pass_(7.0)  # decoding the text
        times.end()
    assert speed.first_tokens == [0.25 + PREFILL + (1 + behind) * (STEP + SAMPLING)] * 2
    assert speed.between_tokens == [STEP + SAMPLING] * (2 + 4)
    assert not speed.reasons


class EndsFirstRow(LogitsProcessor):
    """The first row ends after some tokens; others never do."""

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[:, END] = -torch.inf
        if input_ids.shape[1] == 4 + FIRST_ROW_ENDS_AFTER - 1:
            scores[0] = -torch.inf
            scores[0, END] = 0.0
        return scores


@pytest.fixture(scope="module")
def model():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    made = LlamaForCausalLM(LlamaConfig(vocab_size=20, num_hidden_layers=1, **sizes)).eval()
    made.generation_config.eos_token_id = END
    made.generation_config.pad_token_id = 0
    return made


@pytest.mark.models
@pytest.mark.parametrize("beams", [1, 2])
def test_generate_streams_each_token_of_each_row_except_of_beams(model, beams):
    time, speed, times = watched()
    hook = model.register_forward_hook(lambda *_: time.pass_(0.25))
    prompt = torch.ones(2, 4, dtype=torch.long)
    with times.watching():
        times.begin()
        model.generate(
            prompt,
            attention_mask=prompt,
            max_new_tokens=5,
            num_beams=beams,
            do_sample=False,
            logits_processor=LogitsProcessorList([EndsFirstRow()] if beams == 1 else []),
        )
        times.end()
    hook.remove()
    if beams > 1:
        assert speed.reasons == {"tokens": BEAMS}
        assert speed.first_tokens == speed.between_tokens == []
        return
    assert speed.first_tokens == [0.25] * 2
    # Row 1 ends with its second token; its padding is no token. Row 2 has five.
    assert speed.between_tokens == [0.25] * (1 + 4)


def test_nothing_is_left_replaced():
    before = batch_writer.Ledger.add, GenerationMixin.generate
    with watched()[2].watching():
        assert before[0] is not batch_writer.Ledger.add
    assert before == (batch_writer.Ledger.add, GenerationMixin.generate)


@pytest.mark.models
def test_a_step_is_the_denoisers_time_and_nothing_else(monkeypatch):
    encoding, step, decoding = 1.0, 0.25, 2.0
    models = Models(weights="tiny", overrides={"sdxl-turbo": {"steps": 3, "guidance": 0.0}})
    spec, inputs = of_system("sdxl-turbo", "render", models, 2)
    stage, time = load_stage(spec), FakeTime()
    pipeline, arguments = stage.drawer.pipeline, stage.drawer.arguments
    pipeline.text_encoder.register_forward_hook(lambda *_: time.pass_(encoding))
    pipeline.unet.register_forward_hook(lambda *_: time.pass_(step))
    decode = pipeline.vae.decode

    def decoded(*values, **named):
        time.pass_(decoding)
        return decode(*values, **named)

    monkeypatch.setattr(pipeline.vae, "decode", decoded)
    one, two = measure(variants_of(stage, [1, 2]), inputs, 1, Clock(time), stage=stage)
    steps = arguments["num_inference_steps"]
    assert steps > 1
    assert one.steps == [step] * steps * 2, "steps, images"
    assert two.steps == [step] * steps, "one batch of two images"
    whole = encoding + steps * step + decoding
    both = whole + encoding  # on a CPU each prompt is encoded alone
    assert one.requests == [whole] * 2
    assert two.requests == [both] * 2, "each waits for its batch"
    assert (one.seconds, two.seconds) == ([2 * whole], [both])
    assert len(one.image_sizes) == 2
    assert stage.drawer.arguments is arguments
    assert "progress_bar" not in vars(pipeline)


def test_a_pipeline_without_the_callback_is_named(monkeypatch):
    speed = Speed("batch 1")
    plain = SimpleNamespace(pipeline=lambda prompt: prompt, arguments={})
    monkeypatch.setattr(Drawer, "__call__", lambda drawer, prompt: drawer.pipeline(prompt))
    with StepTimes(speed, Clock(FakeTime())).watching():
        assert Drawer.__call__(plain, "a cat") == "a cat"
    assert "callback_on_step_end" in speed.reasons["steps"]
    assert speed.steps == []


def test_each_request_to_a_server_is_timed_in_the_order_they_begin(monkeypatch):
    time = FakeTime()

    async def request(client, seconds):
        time.pass_(seconds)
        if seconds == 3.0:
            raise ConnectionError("no server")

    monkeypatch.setattr(EndpointClient, "request", request)
    times = ExchangeTimes(time)
    with times.watching():
        asyncio.run(EndpointClient.request(object(), 2.0))
        with pytest.raises(ConnectionError):
            asyncio.run(EndpointClient.request(object(), 3.0))
    assert times.take() == [2.0, 3.0]
    assert times.take() == []
