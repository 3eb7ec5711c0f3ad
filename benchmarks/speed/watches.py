"""Times inside a call: tokens, denoising steps and requests to a server.

A token has arrived when its id is on the host, where a server could send it. A batch is
called at once, so that the first token's time runs from the call of the batch.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import torch
from transformers import GenerationMixin
from transformers.generation.streamers import BaseStreamer

from plait.benchmarks.speed.device import synchronise
from plait.benchmarks.speed.figures import Speed
from plait.generators.decoding.batch_writer import Ints, Ledger
from plait.generators.decoding.sampling import NONE
from plait.generators.diffusion.drawer import Drawer

BEAMS = "beam search delivers no token before its end"
_CALLBACK = "callback_on_step_end"


class Clock:
    """Marks in the order of the work: device events on one GPU, host times otherwise.

    A device event is passed when the work that was queued before it is done, so that
    steps can be timed without the host waiting for each. An event knows the work of one
    device only: where there are several, a mark waits until all of them are idle.
    """

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        """`now` gives seconds; without it, the host's, and events on one GPU."""
        self.now = now or time.perf_counter
        gpus = torch.cuda.device_count() if now is None else 0
        self._events = gpus == 1
        self.name = {0: "perf_counter", 1: "CUDA events"}.get(
            gpus, "perf_counter, all GPUs idle"
        )

    def mark(self) -> Any:
        """Mark this moment."""
        if not self._events:
            synchronise()
            return self.now()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()  # type: ignore[no-untyped-call]
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the seconds between two marks; wait until the second has passed."""
        if not self._events:
            return float(end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000


class TokenTimes:
    """Notes seconds to the first token and between tokens of all sequences."""

    def __init__(self, speed: Speed, now: Callable[[], float]) -> None:
        self._speed = speed
        self._now = now
        self._began = now()
        self._last: dict[Any, float] = {}

    def begin(self) -> None:
        """Note that a batch is called now."""
        self._began = self._now()

    def end(self) -> None:
        """Note that the batch has returned."""
        self._last.clear()

    def note_token(self, sequence: Any) -> None:
        """Note that a token of `sequence` is on the host now."""
        now = self._now()
        if sequence in self._last:
            self._speed.between_tokens.append(now - self._last[sequence])
        else:
            self._speed.first_tokens.append(now - self._began)
        self._last[sequence] = now

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time all text that this process generates inside."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(Ledger, "add", self._watch(Ledger.add)))
            generate = self._stream(GenerationMixin.generate)
            stack.enter_context(patch.object(GenerationMixin, "generate", generate))
            yield

    def _watch(self, add: Callable[..., None]) -> Callable[..., None]:
        """The loop of streams notes tokens when it has read them, on a GPU a step later."""

        def add_noting(ledger: Ledger, records: Ints, tokens: Ints) -> None:
            for record in records[tokens != NONE].tolist():
                self.note_token((ledger, record))
            add(ledger, records, tokens)

        return add_noting

    def _stream(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        def generate_timing(model: Any, *arguments: Any, **named: Any) -> Any:
            config = named.get("generation_config") or model.generation_config
            if int(named.get("num_beams") or config.num_beams or 1) > 1:
                self._speed.reasons["tokens"] = BEAMS
            else:
                named.setdefault("streamer", _Arrivals(self, config.eos_token_id))
            return generate(model, *arguments, **named)

        return generate_timing


class _Arrivals(BaseStreamer):  # type: ignore[misc]
    """Notes when `generate` hands over the ids (rows,) of each step."""

    def __init__(self, times: TokenTimes, ends: int | Sequence[int] | None) -> None:
        self._times = times
        self._ends = {ends} if ends is None or isinstance(ends, int) else set(ends)
        self._ended: set[int] | None = None

    def put(self, value: torch.Tensor) -> None:
        """Take the prompt, then one id per row; padding after a row's end is no token."""
        if self._ended is None:
            self._ended = set()
            return
        for row, token in enumerate(value.tolist()):
            if row not in self._ended:
                self._times.note_token((id(self), row))
            if token in self._ends:
                self._ended.add(row)

    def end(self) -> None: ...


class StepTimes:
    """Notes seconds of denoising steps, by diffusers' `callback_on_step_end`.

    The first step begins where the pipeline opens its progress bar, the others where the
    step before ends.
    """

    def __init__(self, speed: Speed, clock: Clock) -> None:
        self._speed = speed
        self._clock = clock
        self._marks: list[Any] = []

    def end(self) -> None:
        """Read the marks of the batch that has returned."""
        marks = self._marks
        self._marks = []
        for begin, end in pairwise(marks):
            if end is not None and begin is not None:
                self._speed.steps.append(self._clock.seconds(begin, end))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time the steps of every image that is drawn inside."""
        draw = Drawer.__call__

        def draw_timing(drawer: Drawer, *arguments: Any) -> Any:
            with self._observe(drawer):
                return draw(drawer, *arguments)

        with patch.object(Drawer, "__call__", draw_timing):
            yield

    @contextmanager
    def _observe(self, drawer: Drawer) -> Iterator[None]:
        pipeline = drawer.pipeline
        if _CALLBACK not in inspect.signature(pipeline.__call__).parameters:
            name = type(pipeline).__name__
            self._speed.reasons["steps"] = f"{name} takes no {_CALLBACK}"
            yield
            return
        bar = pipeline.progress_bar

        def open_bar(*arguments: Any, **named: Any) -> Any:
            # None parts this image from the one before, whose last step ends earlier.
            self._marks += [None, self._clock.mark()]
            return bar(*arguments, **named)

        def end_step(*_: Any) -> dict[str, Any]:
            self._marks.append(self._clock.mark())
            return {}

        arguments = {**drawer.arguments, _CALLBACK: end_step}
        with (
            patch.object(pipeline, "progress_bar", open_bar),
            patch.object(drawer, "arguments", arguments),
        ):
            yield


class ExchangeTimes:
    """Seconds of requests to a server; waiting for a free slot and retries count."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seconds: list[float | None] = []

    def take(self) -> list[float]:
        """Return those since the last time, in the order they began."""
        seconds = self._seconds
        self._seconds = []
        return [s for s in seconds if s is not None]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time all requests that this process sends inside."""
        from plait.pipelines.endpoints.client import EndpointClient

        request = EndpointClient.request

        async def request_timing(client: EndpointClient, *arguments: Any) -> Any:
            place = len(self._seconds)
            began = self._now()
            self._seconds.append(None)
            try:
                return await request(client, *arguments)
            finally:
                self._seconds[place] = self._now() - began

        with patch.object(EndpointClient, "request", request_timing):
            yield
