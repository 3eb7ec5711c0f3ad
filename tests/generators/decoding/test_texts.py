"""Scripted records: each reads its own tokens, ends where it should and makes room."""

from types import SimpleNamespace

import pytest
import torch

from generators.decoding.streams import Streams
from generators.decoding.texts import TextWriter

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


@pytest.mark.parametrize("rows", [None, 1, 2, 3, 8])
def test_each_record_reads_its_own_tokens_and_ends_at_its_own_limit(rows):
    scripts = [[*range(100 * i, 100 * i + n), END] for i, n in enumerate(LENGTHS, start=1)]
    prompts = [[-i, -i - 0.5] for i in range(len(scripts))]
    read = [[prompt[-1]] for prompt in prompts]
    streams = Streams(EchoingDecoder(), context=99)
    tokens = [min(len(s), limit) for s, limit in zip(scripts, LIMITS, strict=True)]

    def choose(states, records):
        unfinished = [i for i, n in enumerate(tokens) if len(read[i]) <= n]
        assert sorted(records) == unfinished[:rows], "the first that are left"
        chosen = [scripts[record][len(read[record]) - 1] for record in records]
        for state, record, token in zip(states, records, chosen, strict=True):
            assert state.tolist() == read[record][-1:]
            read[record].append(token)
        return chosen

    write = TextWriter(
        streams,
        lambda records: streams.open([torch.tensor(prompts[r])[:, None] for r in records]),
        choose,
        lambda tokens: torch.tensor(tokens)[:, None].float(),
        {END},
        rows,
    )
    for track, script, limit in zip(write(LIMITS), scripts, LIMITS, strict=True):
        ended = len(script) <= limit
        assert track.ids == (script[:-1] if ended else script[:limit])
        assert track.stop == ("stop" if ended else "length")
        assert track.tokens == min(len(script), limit)
    assert [len(ids) - 1 for ids in read] == tokens
    assert len(streams) == 0
