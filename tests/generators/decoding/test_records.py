"""Records join in order, each with its own seed, and those that stop leave their stream."""

from types import SimpleNamespace

import torch

from generators.decoding.records import DecodingRecord, close_stopped, open_records


class NotedStreams:
    """Opens a name for each prompt, and notes which are closed."""

    def __init__(self) -> None:
        self.closed = []

    def open(self, prompts):
        return [f"stream of {prompt}" for prompt in prompts]

    def close(self, stream, broken):
        self.closed.append((stream, broken))


def test_records_have_their_own_prompt_and_seed_and_leave_when_they_stop():
    tracks = [SimpleNamespace(stop=stop) for stop in (None, "end", None, "no numbers")]
    streams, seeds = NotedStreams(), [7, 3, 7, 5]
    records = open_records(DecodingRecord, tracks, streams, "abcd", seeds)
    assert [r.index for r in records] == [0, 1, 2, 3]
    assert [r.track for r in records] == tracks
    assert [r.stream for r in records] == [f"stream of {name}" for name in "abcd"]
    draws = [torch.rand((), generator=r.generator).item() for r in records]
    alone = [torch.rand((), generator=torch.Generator().manual_seed(s)) for s in seeds]
    assert draws == [number.item() for number in alone]
    assert close_stopped(records, streams) == [records[0], records[2]]
    assert streams.closed == [("stream of b", False), ("stream of d", True)]
