"""When tokens arrive: transformers' streamer, and the decoding loop of plait's own models.

A token has arrived when its id is on the host, where a server could send it. A batch is
called at once, so that the first token's time runs from the call of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import GenerationMixin
from transformers.generation.streamers import BaseStreamer

from benchmarks.speed.instruments.clock import Now, replaced
from generators.decoding.streams import Stream, Streams

BEAMS = "beam search delivers no token before its end"


class TokenTimes:
    """Seconds to the first token and between tokens, of all sequences that were timed."""

    def __init__(self, now: Now) -> None:
        self.first: list[float] = []
        self.between: list[float] = []
        self.reason: str | None = None
        """Why tokens could not be timed, where they could not."""
        self._now = now
        self._began = now()
        self._last: dict[Any, float] = {}
        self._waiting: list[Stream] = []
        self._known: WeakKeyDictionary[Streams, set[Stream]] = WeakKeyDictionary()

    def begin(self) -> None:
        """A batch is called now."""
        self._began = self._now()

    def end(self) -> None:
        """The batch has returned."""
        self._deliver()
        self._last.clear()
        self._known.clear()

    def arrived(self, sequence: Any) -> None:
        """A token of `sequence` is on the host now."""
        now = self._now()
        if sequence in self._last:
            self.between.append(now - self._last[sequence])
        else:
            self.first.append(now - self._began)
        self._last[sequence] = now

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Times all text that this process generates inside."""
        with ExitStack() as stack:
            for owner, name, value in self._replacements():
                stack.enter_context(replaced(owner, name, value))
            yield

    def _replacements(self) -> list[tuple[Any, str, Any]]:
        feed, close = Streams.feed, Streams.close
        generate = GenerationMixin.generate

        def stepping(
            step: Callable[[Streams], torch.Tensor],
        ) -> Callable[[Streams], torch.Tensor]:
            def stepped(streams: Streams) -> torch.Tensor:
                self._deliver()
                hidden = step(streams)
                self._wait_for(streams)
                return hidden

            return stepped

        def fed(streams: Streams, *arguments: Any) -> None:
            self._deliver()
            feed(streams, *arguments)

        def closed(streams: Streams, stream: Stream) -> None:
            self._deliver()
            close(streams, stream)

        def generated(model: Any, *arguments: Any, **named: Any) -> Any:
            if _beams(model, named) > 1:
                self.reason = BEAMS
            else:
                named.setdefault("streamer", _Arrivals(self, _end_ids(model, named)))
            return generate(model, *arguments, **named)

        replacements: list[tuple[Any, str, Any]] = [
            (Streams, name, stepping(getattr(Streams, name)))
            for name in ("step", "step_run")
        ]
        replacements += [(Streams, "feed", fed), (Streams, "close", closed)]
        return [*replacements, (GenerationMixin, "generate", generated)]

    def _wait_for(self, streams: Streams) -> None:
        """The step's ids are known when the loop next feeds or closes a stream.

        Streams that join later guide a picture of another one, and are no request.
        """
        known = self._known.setdefault(streams, set(streams._open))
        self._waiting = [stream for stream in streams._open if stream in known]

    def _deliver(self) -> None:
        waiting, self._waiting = self._waiting, []
        for stream in waiting:
            self.arrived(stream)


class _Arrivals(BaseStreamer):  # type: ignore[misc]
    """Notes when `generate` hands over the ids (rows,) of each step."""

    def __init__(self, times: TokenTimes, ends: set[int]) -> None:
        self._times, self._ends = times, ends
        self._ended: set[int] | None = None

    def put(self, value: torch.Tensor) -> None:
        """The prompt first, then one id per row; padding after a row's end is no token."""
        if self._ended is None:
            self._ended = set()
            return
        for row, token in enumerate(value.tolist()):
            if row not in self._ended:
                self._times.arrived((id(self), row))
            if token in self._ends:
                self._ended.add(row)

    def end(self) -> None:
        """Nothing is kept back."""


def _config(model: Any, named: dict[str, Any]) -> Any:
    return named.get("generation_config") or model.generation_config


def _beams(model: Any, named: dict[str, Any]) -> int:
    return int(named.get("num_beams") or _config(model, named).num_beams or 1)


def _end_ids(model: Any, named: dict[str, Any]) -> set[int]:
    ends = _config(model, named).eos_token_id
    several: Sequence[int | None] = ends if isinstance(ends, list | tuple) else [ends]
    return {int(end) for end in several if end is not None}
