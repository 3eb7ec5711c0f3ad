"""What a step asks of the host: one read, no copies, and nothing once for each record."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from fake_gpu import Traffic, fake_gpus
from natives import NATIVES, asked

from plait.generators.base import Result
from plait.generators.decoding import sampling
from plait.generators.decoding.streams import Streams
from plait.generators.document import ImageRequest
from plait.generators.janus.condition import JanusCondition
from plait.pipelines.vlm.stage import VisionLanguageModel
from plait.scorers.internvl.stage import MmieScore

pytestmark = pytest.mark.models


@dataclass
class StepCosts:
    """What each step cost, from its beginning to the next one's, if no stream changed."""

    traffic: Traffic
    reads: list[int] = field(default_factory=list)
    uploads: list[int] = field(default_factory=list)
    work: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How many steps took so many operations on the device, and calls of Python."""
    _before: tuple[int, ...] | None = None
    _calls: int = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        def note_call(frame: Any, event: str, argument: Any) -> None:
            self._calls += event == "call"

        with pytest.MonkeyPatch.context() as patch:
            for name in ("open", "close"):
                patch.setattr(Streams, name, self._change(getattr(Streams, name)))
            patch.setattr(Streams, "step", self._step(Streams.step))
            sys.setprofile(note_call)
            try:
                yield
            finally:
                sys.setprofile(None)

    def _change(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any) -> Any:
            self._before = None
            return method(*arguments)

        return changing

    def _step(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(streams: Streams) -> Any:
            traffic = self.traffic
            now = (traffic.reads, traffic.uploads, traffic.operations, self._calls)
            if self._before is not None:
                costs = [b - a for a, b in zip(self._before, now, strict=True)]
                self.reads.append(costs[0])
                self.uploads.append(costs[1])
                self.work[costs[2], costs[3]] += 1
            self._before = now
            return method(streams)

        return stepping


SHORT: dict[str, dict[str, Any]] = {
    "anole": {"context": 100, "max_images": 1, "max_text_tokens": 12},
    "gill": {"num_words": 8, "temperature": 0.7, "gen_scale_factor": 1.4},
    "minigpt5": {"max_new_tokens": 12, "force_image": True},
    "janus-pro-1b": {"max_new_tokens": 10, "temperature": 1.0},
    "bagel-7b-mot": {"max_new_tokens": 10, "temperature": 1.0},
}
LVLM = partial(
    VisionLanguageModel,
    weights="tiny",
    model="Qwen/Qwen2-VL-7B-Instruct",
    max_new_tokens=10,
)
STAGES: dict[str, Callable[..., Any]] = {
    **{
        name: partial(NATIVES[name].stages["draft"], weights="tiny", **settings)
        for name, settings in SHORT.items()
    },
    "janus codes": partial(JanusCondition, weights="tiny"),
    "lvlm": LVLM,
    "lvlm, sampled": partial(LVLM, temperature=0.8, top_p=0.9, repetition_penalty=1.2),
    "mmie-score": partial(MmieScore, weights="tiny", max_new_tokens=10),
}
"""All but Emu2, which transformers' `generate` writes by beams."""


def questions(name: str, count: int) -> Sequence[Any]:
    if name == "janus codes":
        return [ImageRequest("a red house", seed=i) for i in range(count)]
    return [asked("a red house", seed=i) for i in range(count)]


@pytest.mark.parametrize("name", STAGES)
def test_a_step_waits_once_and_takes_as_long_for_many_records(name, monkeypatch):
    monkeypatch.setattr(sampling, "_AHEAD", 4096)
    work = []
    for count in (2, 5):
        with fake_gpus() as traffic:
            stage = STAGES[name](device="cuda")
            costs = StepCosts(traffic)
            with costs.counted():
                outcomes = stage(questions(name, count))
        assert all(isinstance(outcome, Result) for outcome in outcomes), outcomes
        # The first one moves the random numbers of all steps.
        assert len(costs.reads) > 4
        assert set(costs.reads[1:]) == {1}
        assert set(costs.uploads[1:]) == {0}
        work.append(costs.work.most_common(1)[0][0])
    assert work[0] == work[1]
