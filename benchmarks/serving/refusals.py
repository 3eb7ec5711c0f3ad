"""Requests that are not answered: status, stable code and reason, as OpenAI's API has them.

| code | status | |
|---|---|---|
| `invalid_json`, `invalid_value`, `missing` | 400 | the request itself |
| `unsupported_value` | 400 | a setting that this model cannot change per request |
| `invalid_image` | 400 | a picture that cannot be read |
| `bad_input` | 400 | the stage cannot use the request |
| `invalid_api_key` | 401 | |
| `model_not_found` | 404 | |
| `body_too_large` | 413 | |
| `refused`, `content_policy_violation` | 400 | final: the model or its checker refused |
| `skipped` | 422 | final: the system takes no such query, as published |
| `queue_full` | 429 | with Retry-After |
| `stage_error`, `out_of_memory`, `internal_error` | 500 | |
| `endpoint_failure` | 502 | a server that the model itself asks |
| `not_ready`, `stopping`, `budget_reached` | 503 | |
| `timeout` | 504 | |
| `not_found`, `method_not_allowed` | 404, 405 | |
"""

from __future__ import annotations

from typing import Any

from cluster.live import STOPPING
from generators.base import Failure, Fault, Outcome, Skip, StageSpec

CLIENT_GONE = 499
"""Status in metrics of requests whose client left (as nginx writes it)."""

_OF_FAULTS: dict[Fault, tuple[int, str]] = {
    Fault.BAD_INPUT: (400, "bad_input"),
    Fault.REFUSED: (400, "refused"),
    Fault.UNSAFE: (400, "content_policy_violation"),
    Fault.ERROR: (500, "stage_error"),
    Fault.OUT_OF_MEMORY: (500, "out_of_memory"),
    Fault.TIMEOUT: (504, "timeout"),
    Fault.DIED: (503, "stopping"),
    Fault.ENDPOINT: (502, "endpoint_failure"),
    Fault.BUDGET: (503, "budget_reached"),
    Fault.NOT_LOADED: (503, "not_ready"),
}


class RequestRefused(Exception):
    """A request that is not answered."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the reply."""
        wait = self.retry_after_s
        return {} if wait is None else {"Retry-After": str(wait)}

    @property
    def body(self) -> dict[str, Any]:
        """An error object of OpenAI's API."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        about = {"message": self.message, "type": kind}
        return {"error": about | {"param": self.param, "code": self.code}}


def stopping() -> RequestRefused:
    """The refusal of requests that a server leaves unanswered when it is stopped."""
    return RequestRefused(503, "stopping", STOPPING)


def invalid(message: str, param: str | None = None) -> RequestRefused:
    """The refusal of a value that is not valid for any model."""
    return RequestRefused(400, "invalid_value", message, param=param)


def unsupported(message: str, param: str | None = None) -> RequestRefused:
    """The refusal of a value that this model cannot honour."""
    return RequestRefused(400, "unsupported_value", message, param=param)


def fixed(stage: StageSpec, name: str, field: str, value: Any, own: Any) -> RequestRefused:
    """The refusal of a value for the setting `name`, which is `own` while it is loaded."""
    current = "left to the model" if own is None else repr(own)
    model = stage.name if stage.name.replace("-", "").isalnum() else f'"{stage.name}"'
    return unsupported(
        f"{field} {value!r} cannot be honoured: it is fixed while the server runs "
        f"({current}); leave it out, or start the server with --set "
        f"models.{model}.{name}={value!r}",
        field,
    )


def refusal(outcome: Outcome[Any]) -> RequestRefused:
    """The refusal that an outcome without a value is."""
    if isinstance(outcome, Failure):
        status, code = _OF_FAULTS[outcome.fault]
        return RequestRefused(status, code, outcome.reason)
    if isinstance(outcome, Skip):
        return RequestRefused(422, "skipped", outcome.reason)
    raise TypeError(f"a system does not end with {type(outcome).__name__}")
