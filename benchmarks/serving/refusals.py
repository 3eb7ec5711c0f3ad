"""Requests that are not answered: status, stable code and reason, as in OpenAI's API."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from plait.generators.base import Failure, Fault, Outcome, Skip, StageSpec

STATUS = {
    "invalid_json": 400,
    "invalid_value": 400,
    "missing": 400,  # a field that must be there
    "unsupported_value": 400,  # a setting that this model cannot change per request
    "invalid_image": 400,  # an image that cannot be read
    "bad_input": 400,  # the stage cannot use the request
    "refused": 400,  # final: the model refused
    "content_policy_violation": 400,  # final: the model's safety checker refused
    "invalid_api_key": 401,
    "model_not_found": 404,
    "scorer_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_too_large": 413,
    "skipped": 422,  # final: the system takes no such query, as published
    "queue_full": 429,  # with Retry-After
    "client_gone": 499,  # in metrics, as nginx writes it
    "stage_error": 500,
    "out_of_memory": 500,
    "internal_error": 500,
    "endpoint_failure": 502,  # of a server that the model itself asks
    "not_ready": 503,
    "stopping": 503,
    "budget_reached": 503,
    "timeout": 504,
}
"""By code."""
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
        super().__init__(STATUS[code], message, wait)
        self.code = code
        self.param = param

    @property
    def reply(self) -> JSONResponse:
        """The reply, with an error object of OpenAI's API."""
        kind = "invalid_request_error" if self.status_code < 500 else "server_error"
        about = {"message": self.detail, "type": kind}
        error = about | {"param": self.param, "code": self.code}
        return JSONResponse({"error": error}, self.status_code, self.headers)

    @classmethod
    def of(cls, outcome: Outcome[Any]) -> RequestRefused:
        """Return the refusal that an outcome of a system without a value is."""
        if isinstance(outcome, Skip):
            return cls("skipped", outcome.reason)
        assert isinstance(outcome, Failure)
        return cls(_OF_FAULTS.get(outcome.fault, "stage_error"), outcome.reason)


def refuse_other(stage: StageSpec, name: str, field: str, value: Any, own: Any) -> None:
    """RequestRefused for another value than the setting `name` has while it is loaded."""
    if value is None or value == own:
        return
    current = "left to the model" if own is None else repr(own)
    # TOML wants quotes around a key with other characters, such as a dot or a colon.
    model = stage.name if stage.name.replace("-", "").isalnum() else f'"{stage.name}"'
    reason = (
        f"{field} {value!r} cannot be honoured: it is fixed while the server runs "
        f"({current}); leave it out, or start the server with --set "
        f"models.{model}.{name}={value!r}"
    )
    raise RequestRefused("unsupported_value", reason, field)
