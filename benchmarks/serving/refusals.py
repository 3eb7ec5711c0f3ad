"""Requests that are not answered: status, stable code and reason, as OpenAI's API has them.

| code | status | |
|---|---|---|
| `invalid_json`, `invalid_value`, `missing` | 400 | the request itself |
| `unsupported_value` | 400 | a setting that this model cannot change per request |
| `invalid_image` | 400 | an image that cannot be read |
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

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from cluster.local import STOPPING
from generators.base import Failure, Fault, Outcome, Skip, StageSpec

_STATUS = {
    "invalid_api_key": 401,
    "model_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_too_large": 413,
    "skipped": 422,
    "queue_full": 429,
    "client_gone": 499,  # in metrics, as nginx writes it
    "stage_error": 500,
    "out_of_memory": 500,
    "internal_error": 500,
    "endpoint_failure": 502,
    "not_ready": 503,
    "stopping": 503,
    "budget_reached": 503,
    "timeout": 504,
}
"""By code; 400 for all others."""
_OF_FAULTS = {
    Fault.REFUSED: "refused",
    Fault.UNSAFE: "content_policy_violation",
    Fault.BAD_INPUT: "bad_input",
    Fault.OUT_OF_MEMORY: "out_of_memory",
    Fault.TIMEOUT: "timeout",
    Fault.DIED: "stopping",
    Fault.ENDPOINT: "endpoint_failure",
    Fault.BUDGET: "budget_reached",
    Fault.NOT_LOADED: "not_ready",
}


class RequestRefused(HTTPException):
    """A request that is not answered."""

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        *,
        retry_after_s: int | None = None,
    ) -> None:
        wait = None if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        super().__init__(_STATUS.get(code, 400), message, wait)
        self.code, self.param = code, param

    @property
    def reply(self) -> JSONResponse:
        """The reply, with an error object of OpenAI's API."""
        kind = "invalid_request_error" if self.status_code < 500 else "server_error"
        about = {"message": self.detail, "type": kind}
        error = about | {"param": self.param, "code": self.code}
        return JSONResponse({"error": error}, self.status_code, self.headers)


def stopping() -> RequestRefused:
    """Return the refusal of requests that a server leaves unanswered when it is stopped."""
    return RequestRefused("stopping", STOPPING)


def fixed(stage: StageSpec, name: str, field: str, value: Any, own: Any) -> RequestRefused:
    """Return the refusal of a value for the setting `name`, which is `own` while loaded."""
    current = "left to the model" if own is None else repr(own)
    model = stage.name if stage.name.replace("-", "").isalnum() else f'"{stage.name}"'
    reason = (
        f"{field} {value!r} cannot be honoured: it is fixed while the server runs "
        f"({current}); leave it out, or start the server with --set "
        f"models.{model}.{name}={value!r}"
    )
    return RequestRefused("unsupported_value", reason, field)


def refusal(outcome: Outcome[Any]) -> RequestRefused:
    """Return the refusal that an outcome without a value is."""
    if isinstance(outcome, Failure):
        return RequestRefused(_OF_FAULTS.get(outcome.fault, "stage_error"), outcome.reason)
    if isinstance(outcome, Skip):
        return RequestRefused("skipped", outcome.reason)
    raise TypeError(f"a system does not end with {type(outcome).__name__}")
