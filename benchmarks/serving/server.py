"""The HTTP server of one engine."""

from __future__ import annotations

from types import FrameType

import uvicorn

from benchmarks.serving.app import make_app
from benchmarks.serving.engine import ServingEngine

_SENDING_S = 5


class StoppableServer(uvicorn.Server):
    """Ends what waits as soon as it is told to stop; a batch in progress has the grace."""

    def __init__(self, engine: ServingEngine, key: str | None) -> None:
        self._engine = engine
        super().__init__(
            uvicorn.Config(
                make_app(engine, key=key),
                log_level="warning",
                # The engine ends requests after the grace; this is for sending replies.
                timeout_graceful_shutdown=int(engine.limits.grace_s) + _SENDING_S,
            )
        )

    def stop(self) -> None:
        """Stop as on Ctrl-C; from any thread."""
        self._engine.stop()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn on SIGINT and SIGTERM."""
        self._engine.stop()
        super().handle_exit(sig, frame)
