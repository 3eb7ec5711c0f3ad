"""Errors of requests to a server: what follows from each, and how users read it."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import httpx2
import openai

from generators.errors import PlaitError
from generators.secrets import without_keys
from pipelines.chat.settings import ServerSettings

_SHOWN_OF_MESSAGE = 300
_SHOWN_OF_URL = 120
REFUSAL_CODES = ("content_filter", "content_policy_violation", "moderation_blocked")
"""Error codes by which a provider's filter blocks a request."""
_REFUSAL_WORDS = "safety system"
"""Of OpenAI's message; LiteLLM's proxy passes it on without the code."""
_ACCOUNT_CODES = ("insufficient_quota", "billing_hard_limit_reached")
"""No credit is left; OpenAI says the second with status 400."""
_SETTINGS = {"model", "size", "quality", "response_format", "output_format", "seed"}
_SETTINGS |= {"num_inference_steps", "guidance_scale", "true_cfg_scale"}
_SETTINGS |= {"negative_prompt", "generator_device", "max_sequence_length"}
"""Fields that are equal in all requests of a stage: rejected once, they always are."""


class UnreadReply(ValueError):
    """A reply that is not read."""


class ReplyTooLarge(UnreadReply):
    """A reply that is longer than what is read of one."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the reply is longer than {limit >> 20} MiB, the most that is read"
        )


class Redirected(UnreadReply):
    """A reply that sends the request, which holds a key, to another address."""

    def __init__(self, status: int, location: str) -> None:
        # A query may hold a signature.
        shown = location.partition("?")[0][:_SHOWN_OF_URL]
        super().__init__(
            f"HTTP {status}: the server redirects to {shown!r}, which is not followed"
        )


class MalformedReply(ValueError):
    """The server's reply is not the JSON that its API promises."""


class StatusError(Exception):
    """An error status of a server that another SDK than OpenAI's has been talking to."""

    def __init__(
        self, status: int, message: str, code: str | None, headers: Mapping[str, Any]
    ) -> None:
        super().__init__(message)
        self.status_code = status
        self.message = message
        self.code = code
        self.headers = headers


HttpError = openai.APIStatusError | StatusError
ERRORS = (
    openai.OpenAIError,
    StatusError,
    httpx2.TransportError,
    TimeoutError,
    MalformedReply,
    UnreadReply,
)
"""What a request to an endpoint may raise; anything else is a bug."""


TIMEOUTS = (openai.APITimeoutError, httpx2.TimeoutException, TimeoutError)
"""Errors of a server that did not answer in time."""


class EndpointError(PlaitError, RuntimeError):
    """The endpoint cannot be used; the message names it and says what to do."""


class Meaning(StrEnum):
    """What follows from an error."""

    AGAIN = "again"
    """The same request may succeed later."""
    UNREACHABLE = "unreachable"
    """Nothing listens at the address, if only for a moment."""
    RECORD = "record"
    """The server will never answer this request."""
    REFUSED = "refused"
    """The server's content filter blocked this request."""
    REPLY = "reply"
    """The reply cannot be read; it is not worth asking again in this run."""
    REJECTED = "rejected"
    """The key, the model or the address is not accepted, if only for a moment."""
    ENDPOINT = "endpoint"
    """No request will be answered: a setting that they all share is not accepted."""


def meaning(error: BaseException) -> Meaning:
    """What follows from an error of one request."""
    match _without_wrapping(error):
        case ReplyTooLarge():
            return Meaning.REPLY
        case Redirected():
            return Meaning.REJECTED
    if any(isinstance(e, httpx2.ConnectError) for e in (error, error.__cause__)):
        return Meaning.UNREACHABLE
    if not isinstance(error, HttpError):
        return Meaning.AGAIN if isinstance(error, ERRORS) else Meaning.RECORD
    status = error.status_code
    if status in (401, 403, 404) or error.code in _ACCOUNT_CODES:
        return Meaning.REJECTED
    if status in (408, 409, 429) or status >= 500:
        return Meaning.AGAIN
    if error.code in REFUSAL_CODES or _REFUSAL_WORDS in str(error.message):
        return Meaning.REFUSED
    return Meaning.ENDPOINT if _rejects_a_setting(error) else Meaning.RECORD


def _without_wrapping(error: BaseException) -> BaseException:
    """SDKs raise errors of their own because of those of the transport."""
    cause = error.__cause__
    return cause if isinstance(cause, UnreadReply) else error


def _rejects_a_setting(error: HttpError) -> bool:
    """Whether the server names a field that is not the record's own.

    OpenAI and vLLM name it in `param`, other FastAPI servers in `detail[].loc`.
    """
    named, body = {getattr(error, "param", None)}, getattr(error, "body", None)
    details = body.get("detail") if isinstance(body, Mapping) else None
    for detail in details if isinstance(details, list) else []:
        place = detail.get("loc") if isinstance(detail, Mapping) else None
        named.update(part for part in place or () if isinstance(part, str))
    return not named.isdisjoint(_SETTINGS)


def is_cut_short(error: BaseException) -> bool:
    """Whether a reasoning model spent all its tokens before it wrote a word.

    OpenAI then answers with status 400 where other servers send an empty reply
    (grafana/grafana-llm-app #780). Key, model and settings are accepted.
    """
    return (
        isinstance(error, openai.APIStatusError)
        and error.status_code == 400
        and "output limit was reached" in str(error.message)
    )


def described(error: BaseException) -> str:
    """The error as users should read it, without the SDK's wrapping."""
    error = _without_wrapping(error)
    if isinstance(error, HttpError):
        return f"HTTP {error.status_code}: {_server_message(error)}"
    if isinstance(error, TIMEOUTS):
        return "no complete reply in time"
    if isinstance(error, UnreadReply):
        return str(error)
    if isinstance(error, openai.APIConnectionError | httpx2.TransportError):
        cause = error.__cause__ or error
        return f"no connection: {str(cause) or type(cause).__name__}"
    if isinstance(error, MalformedReply):
        return f"malformed reply: {error}"
    return f"{type(error).__name__}: {error}"


def _server_message(error: HttpError) -> str:
    if isinstance(error, StatusError):
        return start_of(error.message, _SHOWN_OF_MESSAGE)
    body = error.body
    if isinstance(body, Mapping):
        body = body.get("message") or body.get("detail") or body
    return start_of(str(body or error.response.reason_phrase), _SHOWN_OF_MESSAGE)


def start_of(text: str, most: int) -> str:
    """The start of what a server says, on one line, without keys."""
    # Of more than is shown, lest a key be cut in two and not be known any more.
    return without_keys(" ".join(text[: 10 * most].split()))[:most]


def remedy(error: BaseException, settings: ServerSettings, has_key: bool) -> str:
    """What the user can do about an endpoint that does not work."""
    if isinstance(error, HttpError):
        return _remedy_by_status(error, settings, has_key)
    if isinstance(error, TIMEOUTS):
        return (
            "It accepts connections but does not answer; see its log, or raise timeout_s."
        )
    if isinstance(_without_wrapping(error), MalformedReply | Redirected):
        return f"Does base_url {settings.url_form}?"
    return "Is the server running, and is base_url (or OPENAI_BASE_URL) right?"


def _remedy_by_status(error: HttpError, settings: ServerSettings, has_key: bool) -> str:
    api_key_env = settings.api_key_env
    if error.code in _ACCOUNT_CODES:
        return "The account has no credit left."
    if meaning(error) is Meaning.AGAIN:
        return "Try again later."
    match error.status_code:
        case 401:
            wrong = "is not accepted" if has_key else "is not set"
            return f"The key in {api_key_env} {wrong}."
        case 403:
            return f"The key in {api_key_env} may not use this model."
        case 404:
            return f"Check the model's name. Does base_url {settings.url_form}?"
    return f"Check {settings.checked}."


def retry_after_s(error: BaseException | None) -> float | None:
    """How long the server asks to wait, in seconds (RFC 9110, section 10.2.3)."""
    if not isinstance(error, HttpError):
        return None
    headers: Mapping[str, Any] = (
        error.headers if isinstance(error, StatusError) else error.response.headers
    )
    value = str(headers.get("retry-after", "")).strip()
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(moment.timestamp() - time.time(), 0.0)
