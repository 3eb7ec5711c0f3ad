"""How long each denoising step takes, by diffusers' `callback_on_step_end`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from benchmarks.speed.instruments.clock import Clock, replaced
from generators.diffusion.drawer import Drawer

_CALLBACK = "callback_on_step_end"


class StepTimes:
    """Seconds of denoising steps.

    The first step begins where the pipeline opens its progress bar, the others where the
    step before ends. On CUDA both are device events, so that no step waits for the host.
    """

    def __init__(self, clock: Clock) -> None:
        self.reason: str | None = None
        """Why steps could not be timed, where they could not."""
        self._clock = clock
        self._seconds: list[float] = []
        self._marks: list[Any] = []

    @property
    def seconds(self) -> list[float]:
        """Of every step whose beginning is known."""
        return self._seconds

    def end(self) -> None:
        """The batch has returned: read its marks."""
        marks, self._marks = self._marks, []
        for begin, end in pairwise(marks):
            if end is not None and begin is not None:
                self._seconds.append(self._clock.seconds(begin, end))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Times the steps of every picture that is drawn inside."""
        draw = Drawer.__call__

        def drawn(drawer: Drawer, *arguments: Any) -> Any:
            with self._observed(drawer):
                return draw(drawer, *arguments)

        with replaced(Drawer, "__call__", drawn):
            yield

    @contextmanager
    def _observed(self, drawer: Drawer) -> Iterator[None]:
        pipeline = drawer.pipeline
        if _CALLBACK not in inspect.signature(pipeline.__call__).parameters:
            self.reason = f"{type(pipeline).__name__} takes no {_CALLBACK}"
            yield
            return
        bar = pipeline.progress_bar
        own = drawer.arguments

        def opened(*arguments: Any, **named: Any) -> Any:
            self._marks += [None, self._clock.mark()]
            return bar(*arguments, **named)

        def ended(*_: Any) -> dict[str, Any]:
            self._marks.append(self._clock.mark())
            return {}

        with replaced(pipeline, "progress_bar", opened):
            drawer.arguments = {**own, _CALLBACK: ended}
            try:
                yield
            finally:
                drawer.arguments = own
