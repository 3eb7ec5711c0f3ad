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
from fake_gpu import fake_gpus
from natives import NATIVES, asked, same_draft

from plait.generators.base import Result
from plait.generators.decoding import batch_writer, sampling
from plait.generators.decoding.streams import Streams
from plait.generators.document import ImageRequest
from plait.generators.janus.condition import JanusCondition
from plait.pipelines.vlm.stage import VisionLanguageModel
from plait.scorers.internvl.stage import MmieScore

pytestmark = pytest.mark.models


@dataclass
class StepCosts:
    """What each step cost, from its beginning to the next one's, if no stream changed."""

    now: Callable[[], tuple[int, ...]]
    """Counts of what has been done until now."""
    steps: list[tuple[int, ...]] = field(default_factory=list)
    _before: tuple[int, ...] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("open", "close"):
                patch.setattr(Streams, name, self._change(getattr(Streams, name)))
            for name in ("step", "step_run"):
                patch.setattr(Streams, name, self._step(getattr(Streams, name)))
            yield

    def _change(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any) -> Any:
            self._before = None
            return method(*arguments)

        return changing

    def _step(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any) -> Any:
            now = self.now()
            if self._before is not None:
                pairs = zip(self._before, now, strict=True)
                self.steps.append(tuple(after - before for before, after in pairs))
            self._before = now
            return method(*arguments)

        return stepping


SHORT: dict[str, dict[str, Any]] = {
    "anole": {"context": 190, "max_images": 2, "max_text_tokens": 12},
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
    """Of several lengths."""
    words = ["a red house" + " and a boat" * (seed % 3) for seed in range(count)]
    if name == "janus codes":
        return [ImageRequest(prompt, seed=seed) for seed, prompt in enumerate(words)]
    return [asked(prompt, seed=seed) for seed, prompt in enumerate(words)]


def answered(stage: Any, name: str, count: int) -> None:
    outcomes = stage(questions(name, count))
    assert all(isinstance(outcome, Result) for outcome in outcomes), outcomes


@pytest.mark.parametrize("name", STAGES)
def test_the_host_waits_for_a_step_once(name, monkeypatch):
    # Otherwise there is one copy more whenever twice as many numbers have been drawn.
    monkeypatch.setattr(sampling, "_AHEAD", 256)
    fewer = {"context": 100, "max_images": 1} if name == "anole" else {}
    with fake_gpus() as traffic:
        stage = STAGES[name](device="cuda", **fewer)
        costs = StepCosts(lambda: (traffic.reads, traffic.uploads))
        with costs.watching():
            answered(stage, name, 2)
    assert len(costs.steps) > 4
    # The first one moves the random numbers of all steps.
    assert set(costs.steps[1:]) == {(1, 0)}


@pytest.mark.parametrize("name", ["anole", "janus codes", "lvlm", "lvlm, sampled"])
def test_steps_by_graphs_write_what_steps_without_do(name):
    """Records end and images begin on the way, so graphs of several shapes are used."""
    expected = STAGES[name](device="cpu")(questions(name, 5))
    with fake_gpus(graphs=True) as traffic:
        made = STAGES[name](device="cuda")(questions(name, 5))
    assert traffic.replays > traffic.captures > 0
    for before, after in zip(expected, made, strict=True):
        assert (after.usage, after.notes) == (before.usage, before.notes)
        if name == "janus codes":
            assert after.value.read() == before.value.read()
        else:
            assert same_draft(after.value, before.value)


@pytest.mark.parametrize("name", STAGES)
def test_a_step_calls_no_function_for_each_record(name, monkeypatch):
    """Of Python or of torch: many records take as many calls as few."""
    monkeypatch.setattr(batch_writer, "steps_behind", lambda device: 1)
    stage = STAGES[name](device="cpu")
    calls = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    usual = []
    for count in (2, 7):
        costs = StepCosts(lambda: (calls,))
        with costs.watching():
            sys.setprofile(note)
            try:
                answered(stage, name, count)
            finally:
                sys.setprofile(None)
        usual.append(Counter(costs.steps).most_common(1)[0][0])
    assert usual[0] == usual[1]


@pytest.mark.parametrize("name", STAGES)
def test_an_answer_is_the_same_where_the_host_reads_a_step_behind(name, monkeypatch):
    """Records that end, and images of Anole that begin and end, are seen a step later."""
    stage = STAGES[name](device="cpu")
    expected = stage(questions(name, 5))
    monkeypatch.setattr(batch_writer, "steps_behind", lambda device: 1)
    for before, after in zip(expected, stage(questions(name, 5)), strict=True):
        assert (after.usage, after.notes) == (before.usage, before.notes)
        if name == "janus codes":
            assert after.value.read() == before.value.read()
        else:
            assert same_draft(after.value, before.value)
