"""Several tokens fed to a stream at once: the same states, in as few steps as can be."""

import numpy as np
import pytest
import torch
from test_streams import decoder, last_state

from generators.decoding.streams import Streams

pytestmark = pytest.mark.models


def some(random: np.random.Generator, count: int) -> torch.Tensor:
    return torch.from_numpy(random.standard_normal((count, 32)) * 0.5).float()


@pytest.mark.parametrize("kind", ["llama", "opt", "chameleon", "qwen2-vl"])
def test_a_run_of_all_streams_is_one_step(kind):
    model, random = decoder(kind), np.random.default_rng(4)
    prompts = [some(random, 7), some(random, 3)]
    runs = [some(random, 5), some(random, 8)]
    streams = Streams(model, context=64)
    opened = streams.open(prompts)
    streams.step()
    for stream, run in zip(opened, runs, strict=True):
        streams.feed_run(stream, run)
    fed = prompts
    for first, tokens in ((0, 5), (5, 1)):
        if first:
            # One stream is fed a token, the other goes on with its run.
            streams.feed([opened[0]], runs[1][:1])
            runs[0] = torch.cat([runs[0], runs[1][:1]])
        states = streams.step_run()
        assert states.shape[1] == tokens
        for i, stream in enumerate(opened):
            for t in range(tokens):
                fed[i] = torch.cat([fed[i], runs[i][first + t][None]])
                expected = last_state(model, fed[i])
                assert (states[stream.row, t] - expected).abs().max() < 1e-4


def test_step_takes_one_token_of_a_run():
    model, random = decoder("qwen2-vl"), np.random.default_rng(5)
    prompt, run = some(random, 4), some(random, 3)
    streams = Streams(model, context=64)
    (stream,) = streams.open([prompt])
    streams.step()
    streams.feed_run(stream, run)
    for end in (1, 2, 3):
        expected = last_state(model, torch.cat([prompt, run[:end]]))
        assert (streams.step()[0] - expected).abs().max() < 1e-4


def test_a_stream_that_leaves_takes_its_run_along():
    model, random = decoder("llama"), np.random.default_rng(6)
    prompts, run = [some(random, 4), some(random, 6)], some(random, 3)
    streams = Streams(model, context=64)
    leaving, staying = streams.open(prompts)
    streams.step()
    streams.feed_run(leaving, some(random, 9))
    streams.feed_run(staying, run)
    streams.close(leaving)
    states = streams.step_run()
    assert states.shape[:2] == (1, 3)
    expected = last_state(model, torch.cat([prompts[1], run]))
    assert (states[staying.row, -1] - expected).abs().max() < 1e-4
