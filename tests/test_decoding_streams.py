"""Streams of all ages through one decoder, against forward passes without any cache."""

import numpy as np
import pytest
import torch
from transformers import (
    ChameleonConfig,
    ChameleonForConditionalGeneration,
    LlamaConfig,
    LlamaModel,
    OPTConfig,
    OPTModel,
)

from generators.decoding.streams import Streams

pytestmark = pytest.mark.models

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 50,
    "max_position_embeddings": 64,
}


def decoder(kind: str):
    torch.manual_seed(0)
    match kind:
        case "llama":
            sizes = SIZES | {"num_key_value_heads": 2, "intermediate_size": 64}
            model = LlamaModel(LlamaConfig(**sizes))
        case "opt":
            model = OPTModel(OPTConfig(**SIZES, ffn_dim=64, word_embed_proj_dim=32))
        case "chameleon":
            vq = {"base_channels": 32, "num_embeddings": 8, "embed_dim": 8}
            config = ChameleonConfig(
                **SIZES,
                intermediate_size=64,
                num_key_value_heads=4,
                vocabulary_map={"<image>": 4},
                vq_config=vq | {"latent_channels": 8, "channel_multiplier": [1]},
            )
            model = ChameleonForConditionalGeneration(config).model
    return model.eval().requires_grad_(False)


def last_state(model, sequence: torch.Tensor) -> torch.Tensor:
    return model(inputs_embeds=sequence[None], use_cache=False).last_hidden_state[0, -1]


@pytest.mark.parametrize("kind", ["llama", "opt", "chameleon"])
def test_streams_join_and_leave_without_disturbing_others(kind):
    model = decoder(kind)
    random = np.random.default_rng(3)

    def some(count: int) -> torch.Tensor:
        return torch.from_numpy(random.standard_normal((count, 32)) * 0.5).float()

    streams = Streams(model, context=64)
    fed: dict[object, torch.Tensor] = {}
    for step in range(40):
        if step % 3 == 0:
            new = [some(int(length)) for length in random.integers(1, 20, 2)]
            fed |= zip(streams.open(new), new, strict=True)
        if len(fed) > 4:
            leaving = list(fed)[int(random.integers(len(fed)))]
            streams.close(leaving)
            del fed[leaving]
        states = streams.step()
        assert len(states) == len(fed) == len(streams)
        for stream, sequence in fed.items():
            assert (states[stream.row] - last_state(model, sequence)).abs().max() < 1e-4
        following = some(len(fed))
        streams.feed(list(fed), following)
        fed = {s: torch.cat([fed[s], x[None]]) for s, x in zip(fed, following, strict=True)}
