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
    Qwen2VLTextConfig,
    Qwen2VLTextModel,
)

from generators.decoding import prefixes
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
        case "qwen2-vl":
            rope = {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [1, 1, 2]}
            sizes = SIZES | {"num_key_value_heads": 2, "intermediate_size": 64}
            model = Qwen2VLTextModel(Qwen2VLTextConfig(**sizes, rope_parameters=rope))
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
    # As initialised, attention adds too little for a wrong mask to be seen.
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return model.eval().requires_grad_(False)


def last_state(model, sequence: torch.Tensor, **options) -> torch.Tensor:
    outputs = model(inputs_embeds=sequence[None], use_cache=False, **options)
    return outputs.last_hidden_state[0, -1]


@pytest.mark.parametrize("kind", ["llama", "opt", "chameleon", "qwen2-vl"])
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


def begun(random: np.random.Generator, head: torch.Tensor, lengths) -> list[torch.Tensor]:
    """Prompts of one beginning and ends of their own."""
    ends = [
        torch.from_numpy(random.standard_normal((n, 32)) * 0.5).float() for n in lengths
    ]
    return [torch.cat([head, end]) for end in ends]


@pytest.mark.parametrize("kind", ["llama", "opt", "chameleon", "qwen2-vl"])
def test_prompts_that_begin_alike_share_the_reading_and_nothing_else(kind, monkeypatch):
    monkeypatch.setattr(prefixes, "WORTH", 8)
    model = decoder(kind)
    random = np.random.default_rng(5)
    one, other = begun(random, torch.empty(0, 32), (20, 9))
    (further,) = begun(random, one, (11,))
    asked = [
        *begun(random, one, (1,)),
        *begun(random, further, (7, 3)),
        *begun(random, other, (2, 12)),
        *begun(random, torch.empty(0, 32), (30, 1)),
    ]
    asked = [asked[i] for i in (5, 0, 3, 1, 6, 4, 2)] + [one, one]
    streams = Streams(model, context=64)
    earlier = begun(random, torch.empty(0, 32), (4,))
    fed = dict(zip(streams.open(earlier), earlier, strict=True))
    opened = streams.open(asked)
    assert [stream.row for stream in opened] == list(range(1, 10))
    fed |= zip(opened, asked, strict=True)
    for _ in range(4):
        states = streams.step()
        for stream, sequence in fed.items():
            assert (states[stream.row] - last_state(model, sequence)).abs().max() < 1e-4
        (following,) = begun(random, torch.empty(0, 32), (len(fed),))
        streams.feed(list(fed), following)
        fed = {s: torch.cat([fed[s], x[None]]) for s, x in zip(fed, following, strict=True)}
        if len(fed) > 7:
            streams.close(gone := list(fed)[2])
            del fed[gone]


def test_parts_that_start_apart_are_read_in_one_pass_beyond_the_longest_prompt(monkeypatch):
    """One goes on at 44 for 9 positions, another at 20 for 39: together 83 columns."""
    monkeypatch.setattr(prefixes, "WORTH", 40)
    model, random = decoder("llama"), np.random.default_rng(7)
    heads = begun(random, torch.empty(0, 32), (44, 20))
    ends = ((10, 10), (40, 40, 40))
    asked = [
        p for head, more in zip(heads, ends, strict=True) for p in begun(random, head, more)
    ]
    streams = Streams(model, context=64)
    opened = streams.open(asked)
    assert streams._cache._columns > 64, "else the case is not tried"
    states = streams.step()
    for stream, sequence in zip(opened, asked, strict=True):
        assert (states[stream.row] - last_state(model, sequence)).abs().max() < 1e-4


def pictured(*runs: int | tuple[int, int]) -> torch.Tensor:
    """Places (tokens, 3) of runs of text and of pictures (rows, columns), by the rule."""
    places, start = [], 0
    for run in runs:
        if isinstance(run, int):
            places += [(start + i,) * 3 for i in range(run)]
            start += run
        else:
            rows, columns = run
            places += [
                (start, start + r, start + c) for r in range(rows) for c in range(columns)
            ]
            start += max(run)
    return torch.tensor(places)


def after(places: torch.Tensor, count: int) -> torch.Tensor:
    """Places with those of text that follows."""
    more = places.max() + 1 + torch.arange(count)
    return torch.cat([places, more[:, None].repeat(1, 3)])


RUNS = [
    (5, (4, 2), 3),
    (5, (2, 4), 3),
    (9,),
    (1, (3, 3), 1, (2, 5), 2),
    (2, (4, 6)),
    (3, (6, 2)),
    (5, (4, 2), 1, (1, 2), 1),
]


@pytest.mark.parametrize("worth", [8, 10**6])
def test_tokens_of_pictures_stand_in_rows_and_columns(worth, monkeypatch):
    """Against a pass without cache at explicit places; with beginnings shared or not."""
    monkeypatch.setattr(prefixes, "WORTH", worth)
    model = decoder("qwen2-vl")
    random = np.random.default_rng(8)
    (head,) = begun(random, torch.empty(0, 32), (13,))
    places = [pictured(*runs) for runs in RUNS]
    asked = [
        torch.cat([head, *begun(random, torch.empty(0, 32), (40,))])[: len(p)]
        for p in places
    ]
    streams = Streams(model, context=64, axes=3)
    fed = dict(zip(streams.open(asked[:4], places[:4]), asked, strict=False))
    stand = dict(zip(fed, places, strict=False))
    for step in range(8):
        if step == 2:
            late = streams.open(asked[4:], places[4:])
            fed |= zip(late, asked[4:], strict=True)
            stand |= zip(late, places[4:], strict=True)
        states = streams.step()
        for stream, sequence in fed.items():
            begin = stand[stream]
            at = after(begin, len(sequence) - len(begin)).T[:, None]
            expected = last_state(model, sequence, position_ids=at)
            assert (states[stream.row] - expected).abs().max() < 1e-4
        if step in (1, 3):
            streams.close(gone := list(fed)[step - 1])
            del fed[gone]
        (following,) = begun(random, torch.empty(0, 32), (len(fed),))
        streams.feed(list(fed), following)
        fed = {s: torch.cat([fed[s], x[None]]) for s, x in zip(fed, following, strict=True)}


def test_equal_features_of_pictures_of_other_shapes_are_not_shared(monkeypatch):
    """As of two pictures of one colour, upright and across."""
    monkeypatch.setattr(prefixes, "WORTH", 8)
    model = decoder("qwen2-vl")
    (prompt,) = begun(np.random.default_rng(9), torch.empty(0, 32), (17,))
    places = [pictured(5, (4, 2), 4), pictured(5, (2, 4), 4)]
    streams = Streams(model, context=64, axes=3)
    streams.open([prompt, prompt], places)
    for state, place in zip(streams.step(), places, strict=True):
        expected = last_state(model, prompt, position_ids=place.T[:, None])
        assert (state - expected).abs().max() < 1e-4


def test_what_is_shared_is_read_once(monkeypatch):
    model = decoder("llama")
    random = np.random.default_rng(6)
    (head,) = begun(random, torch.empty(0, 32), (40,))
    asked = begun(random, head, (3, 6, 2, 5, 4, 3, 2, 9))
    passes = []
    usual = Streams._forward
    monkeypatch.setattr(
        Streams,
        "_forward",
        lambda self, embeddings, *rest: (
            passes.append(tuple(embeddings.shape[:2])) or usual(self, embeddings, *rest)
        ),
    )
    Streams(model, context=64).open(asked)
    assert passes == [(1, 40), (8, 8)], "7 x 40 positions saved"
    passes.clear()
    Streams(model, context=64).open(asked[:6])
    assert passes == [(6, 45)], "5 x 40 are not worth a pass of their own"


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


def test_the_run_of_a_stream_that_left_is_not_fed_to_the_one_in_its_place():
    model, random = decoder("llama"), np.random.default_rng(7)
    prompts = [some(random, 4), some(random, 6), some(random, 5)]
    streams = Streams(model, context=64)
    leaving, short, long = opened = streams.open(prompts)
    streams.step()
    runs = {short: some(random, 2), long: some(random, 5), leaving: some(random, 9)}
    for stream, run in runs.items():
        streams.feed_run(stream, run)
    streams.close(leaving)
    assert (long.row, short.row) == (0, 1)
    assert streams.step_run().shape[:2] == (2, 2)
    streams.feed([short], some(random, 1))
    states = streams.step()
    sequence = torch.cat([prompts[opened.index(long)], runs[long][:3]])
    assert (states[long.row] - last_state(model, sequence)).abs().max() < 1e-4
