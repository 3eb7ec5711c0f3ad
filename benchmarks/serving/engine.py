"""The loaded stages of a server and the pool that computes its requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

from benchmarks.serving.admission import Admission, RequestRoom, ServingLimits
from benchmarks.serving.metrics import ServingMetrics
from benchmarks.serving.refusals import RequestRefused, stopping
from benchmarks.serving.served import ServedModel
from cluster.live import WalkPool
from cluster.local import LocalStages
from generators.base import StageSpec
from generators.secrets import print_error, without_keys

ServingStatus = Literal["loading", "ready", "failed", "stopping"]
_RETRY_WHILE_LOADING_S = 5


class ServingEngine:
    """One model in this process: loads in a thread of its own, then answers."""

    def __init__(
        self,
        model: ServedModel,
        limits: ServingLimits | None = None,
        *,
        on_loaded: Callable[[float], None] = lambda seconds: None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_loaded` is told the seconds; both are called from the loading thread."""
        self.model = model
        self.limits = limits or ServingLimits()
        self.metrics = ServingMetrics()
        self.room = RequestRoom(self.limits, self.metrics)
        self.error: Exception | None = None
        """Why the stages could not be loaded."""
        self._on_loaded, self._on_failure = on_loaded, on_failure
        self._stages = LocalStages(in_batches=True)
        self._pool: WalkPool | None = None
        self._admission: Admission | None = None
        self._stopped_at: float | None = None
        self._loading = threading.Thread(target=self._load, name="loading", daemon=True)

    def start(self) -> None:
        """Begin to load."""
        self._loading.start()

    def _load(self) -> None:
        began = time.monotonic()
        try:
            for spec in self.model.stages:
                self._stages.stage(spec)
        except Exception as error:
            print_error(error)
            self.error = error
            self._on_failure()
            return
        self._pool = WalkPool(
            self._stages.outcomes,
            self.model.stages,
            wait_s=self.limits.batch_wait_s,
            on_batch=self.metrics.batch,
        )
        self._admission = Admission(self._pool, self.limits, self.metrics)
        self._on_loaded(time.monotonic() - began)

    @property
    def status(self) -> ServingStatus:
        """Whether requests are answered now."""
        if self._stopped_at is not None:
            return "stopping"
        if self.reason:
            return "failed"
        return "loading" if self._admission is None else "ready"

    @property
    def reason(self) -> str:
        """Why no request will ever be answered, once that is so."""
        if self.error is not None:
            return without_keys(str(self.error))
        return (self._pool.broken or "") if self._pool else ""

    @property
    def admission(self) -> Admission:
        """Where requests are answered; RequestRefused while they are not."""
        match self.status:
            case "loading":
                wait = _RETRY_WHILE_LOADING_S
                message = f"{self.model.name} is being loaded"
                raise RequestRefused(503, "not_ready", message, retry_after_s=wait)
            case "failed":
                message = f"{self.model.name} cannot compute: {self.reason}"
                raise RequestRefused(503, "not_ready", message)
            case "stopping":
                raise stopping()
        assert self._admission is not None
        return self._admission

    def takes_max_tokens(self, spec: StageSpec) -> bool:
        """Whether a loaded stage can be told the longest answer of one request."""
        return bool(getattr(self._stages.stage(spec), "takes_max_tokens", False))

    def stop(self) -> None:
        """Take no more requests; only those whose batch has begun have the grace.

        From any thread, also from a handler of signals.
        """
        if self._stopped_at is not None:
            return
        self._stopped_at = time.monotonic()
        self.room.close()
        if self._pool is not None:
            self._pool.stop()

    def join(self) -> bool:
        """After `stop`: whether nothing computes any more after the grace."""
        if self._pool is not None:
            assert self._stopped_at is not None
            passed = time.monotonic() - self._stopped_at
            return self._pool.join(self.limits.grace_s - passed)
        return self.error is not None or not self._loading.is_alive()
