"""Errors of requests to a server: what follows from each, and how users read it."""

from __future__ import annotations

import email.utils
import json
import math
import os
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache
from typing import Any

import httpx2

from plait.generators.errors import PlaitError
from plait.generators.secrets import without_keys
from plait.pipelines.chat.settings import ServerSettings

_SHOWN_OF_MESSAGE = 300
_SHOWN_OF_URL = 120
REFUSAL_CODES = (
    "content_filter",
    "content_policy_violation",
    "image_content_policy_violation",
    "moderation_blocked",
)
"""Error codes by which a provider's filter blocks a request."""
_REFUSAL_WORDS = "safety system"
"""Of OpenAI's message; LiteLLM's proxy passes it on without the code."""
_CODED = {
    "invalid_api_key": 401,
    "authentication_error": 401,
    "UNAUTHENTICATED": 401,
    "permission_error": 403,
    "PERMISSION_DENIED": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "INVALID_ARGUMENT": 400,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "RESOURCE_EXHAUSTED": 429,
    "overloaded_error": 529,
    "UNAVAILABLE": 503,
    "insufficient_quota": 429,
    "billing_hard_limit_reached": 400,
}
"""Codes of errors, and the HTTP status that they have where they come alone."""
_ACCOUNT_CODES = ("insufficient_quota", "billing_hard_limit_reached")
"""No credit is left; OpenAI says the second with status 400."""
_STATUSES = {"API_KEY_INVALID": 401, "FAILED_PRECONDITION": 403}
"""Google's codes that it gives with status 400. By the second, the account or its region
may not use the API."""
_SETTINGS = {"model", "size", "quality", "response_format", "output_format", "seed"}
_SETTINGS |= {"num_inference_steps", "guidance_scale", "true_cfg_scale"}
_SETTINGS |= {"negative_prompt", "generator_device", "max_sequence_length"}
"""Fields that are equal in all requests of a stage: rejected once, they always are."""


class ReplyTooLarge(ValueError):
    """A reply that is longer than what is read of one."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the reply is longer than {limit >> 20} MiB, the most that is read"
        )


class Redirected(ValueError):
    """A reply that sends the request, which holds a key, to another address."""

    def __init__(self, status: int, location: str) -> None:
        # A query may hold a signature.
        shown = location.partition("?")[0][:_SHOWN_OF_URL]
        super().__init__(
            f"HTTP {status}: the server redirects to {shown!r}, which is not followed"
        )


class MalformedReply(ValueError):
    """The server's reply is not the JSON that its API promises."""


class MissingPath(ValueError):
    """The server does not have a path that not every server of its API has."""

    def __init__(self, path: str, error: StatusError) -> None:
        super().__init__(f"{describe(error)}: the server has no {path}")
        self.path = path


class StatusError(Exception):
    """An error status, and what the server says about it in any API's form."""

    def __init__(self, response: httpx2.Response, body: bytes) -> None:
        said: Any = body.decode(errors="replace").strip()
        with suppress(ValueError, RecursionError):
            said = json.loads(said)
        error = said.get("error", said) if isinstance(said, Mapping) else said
        about = error if isinstance(error, Mapping) else {}
        message = about.get("message") or about.get("detail") or error
        super().__init__(str(message or response.reason_phrase))
        codes = [about.get("code"), about.get("status")]
        # A header's pause goes before those that Google's details name.
        pauses = [response.headers.get("retry-after")]
        for detail in _as_list(about.get("details")):
            if isinstance(detail, Mapping):
                codes.append(detail.get("reason"))
                pauses.append(detail.get("retryDelay"))
        self.codes = {str(code) for code in codes if code is not None}
        """OpenAI's code, Google's status and reasons."""
        coded = [status for code, status in _STATUSES.items() if code in self.codes]
        self.status = coded[0] if coded else response.status_code
        self.named = {str(about.get("param")), *_places(about.get("detail"))}
        """Fields of the request that the error is about."""
        stated = [pause for pause in pauses if pause is not None]
        self.pause = _seconds(stated[0]) if stated else None
        """How long the server asks to wait, in seconds."""


class SaidError(StatusError):
    """An error that stands inside a reply of status 200, classed as its code says.

    `usage` is what the reply took nevertheless, `text` what came of an answer.
    """

    def __init__(self, said: Any) -> None:
        body = json.dumps({"error": said}).encode()
        super().__init__(httpx2.Response(_status_said(said)), body)
        self.coded = _status_coded(said) is not None
        """Whether its code says what it means."""
        raw = _raw_words(said)
        self.args = (f"{self} ({raw})" if raw and raw not in str(self) else str(self),)
        self.usage: Mapping[str, float] = {}
        self.text = ""


ERRORS: tuple[type[Exception], ...] = (
    StatusError,
    ReplyTooLarge,
    Redirected,
    MalformedReply,
    MissingPath,
    httpx2.RequestError,
    TimeoutError,
)
"""What a request to an endpoint may raise; anything else is a bug."""


def _status_coded(said: Any) -> int | None:
    """Return the HTTP status that an error's code stands for; None for another code."""
    about = said if isinstance(said, Mapping) else {}
    codes = [str(about.get(name)) for name in ("code", "status", "type")]
    if any(code in REFUSAL_CODES for code in codes):
        return 400
    for code in codes:
        if code in _CODED:
            return _CODED[code]
        if len(code) == 3 and code.isdecimal() and 400 <= int(code) < 600:
            return int(code)
    return None


def _status_said(said: Any) -> int:
    # Without a code, it is like a server's error: the next attempt may succeed.
    return _status_coded(said) or 500


def _raw_words(said: Any) -> str:
    """Return what the provider behind a gateway said (OpenRouter)."""
    metadata = said.get("metadata") if isinstance(said, Mapping) else None
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    return raw if isinstance(raw, str) else ""


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _places(detail: Any) -> list[str]:
    """Return the fields that FastAPI servers name in `detail[].loc`; others use `param`."""
    places: list[str] = []
    for problem in _as_list(detail):
        if isinstance(problem, Mapping):
            places += map(str, _as_list(problem.get("loc")))
    return places


def _seconds(value: Any) -> float | None:
    """Return a pause in seconds: a header's (RFC 9110, section 10.2.3) or Google's."""
    said = str(value).strip()
    with suppress(ValueError):
        seconds = float(said.removesuffix("s"))
        return None if math.isnan(seconds) else max(seconds, 0.0)
    try:
        moment = email.utils.parsedate_to_datetime(said)
    except ValueError:
        return None
    return max(moment.timestamp() - time.time(), 0.0)


@cache
def certificates(*, trust_env: bool = True) -> ssl.SSLContext:
    """Return those of this process: reading them takes longer than many a request.

    EndpointError where the environment names a file that cannot be read.
    """
    try:
        return httpx2.create_ssl_context(trust_env=trust_env)
    except OSError as error:
        names = [n for n in ("SSL_CERT_FILE", "SSL_CERT_DIR") if n in os.environ]
        named = ", ".join(f"{name}={os.environ[name]}" for name in names)
        raise EndpointError(
            f"certificates cannot be read ({error}): correct or unset {named}"
        ) from error


async def read_bounded(response: httpx2.Response, most_bytes: int) -> bytes:
    """Return the body of a response that is still to be read; ReplyTooLarge."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > most_bytes:
            raise ReplyTooLarge(most_bytes)
    return bytes(body)


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


def meaning(error: Exception) -> Meaning:
    """Return what follows from an error of one request."""
    match error:
        case StatusError():
            return _meaning_of_status(error)
        case ReplyTooLarge():
            return Meaning.REPLY
        case Redirected() | MissingPath():
            return Meaning.REJECTED
        case httpx2.ConnectError():
            return Meaning.UNREACHABLE
    return Meaning.AGAIN


def _meaning_of_status(error: StatusError) -> Meaning:
    if error.status in (401, 403, 404) or not error.codes.isdisjoint(_ACCOUNT_CODES):
        return Meaning.REJECTED
    if error.status in (408, 409, 429) or error.status >= 500:
        return Meaning.AGAIN
    if not error.codes.isdisjoint(REFUSAL_CODES) or _REFUSAL_WORDS in str(error):
        return Meaning.REFUSED
    return Meaning.RECORD if error.named.isdisjoint(_SETTINGS) else Meaning.ENDPOINT


def is_of_path(error: StatusError) -> bool:
    """Return whether a server seems not to have the path that it was asked at.

    A model that it does not have is said to be one, by every server that reads `model`.
    """
    of_model = "model" in error.named or "model" in str(error).lower()
    return (
        error.status in (404, 405) and not of_model and "model_not_found" not in error.codes
    )


def is_cut_short(error: Exception) -> bool:
    """Return whether a reasoning model spent all its tokens before it wrote a word.

    OpenAI then answers with status 400 where other servers send an empty reply
    (grafana/grafana-llm-app #780). Key, model and settings are accepted.
    """
    said = "output limit was reached" in str(error)
    return isinstance(error, StatusError) and error.status == 400 and said


def describe(error: Exception) -> str:
    """Return the error as users should read it."""
    match error:
        case SaidError():
            codes = f" ({', '.join(sorted(error.codes))})" if error.codes else ""
            said = start_of(str(error), _SHOWN_OF_MESSAGE)
            return f"the reply holds an error{codes}: {said}"
        case StatusError():
            return f"HTTP {error.status}: {start_of(str(error), _SHOWN_OF_MESSAGE)}"
        case MalformedReply():
            return f"malformed reply: {error}"
        case httpx2.TimeoutException() | TimeoutError():
            return "no complete reply in time"
        case httpx2.RequestError():
            return f"no connection: {str(error) or type(error).__name__}"
    return str(error)


def start_of(text: str, most: int) -> str:
    """Return the start of what a server says, on one line, without keys."""
    # Of more than is shown, lest a key be cut in two and not be known any more.
    return without_keys(" ".join(text[: 10 * most].split()))[:most]


def _remedy_of_connection(said: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return (
            "The server's certificate is signed by nobody whom this machine knows: set "
            "SSL_CERT_FILE to a file with the certificate of its authority."
        )
    if "WRONG_VERSION_NUMBER" in said:
        return "It does not speak https: does base_url begin with http://?"
    return "Is the server running, and is base_url (or OPENAI_BASE_URL) right?"


def remedy(error: Exception, settings: ServerSettings, has_key: bool) -> str:
    """Return what the user can do about an endpoint that does not work."""
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return (
            "It accepts connections but does not answer; see its log, or raise timeout_s."
        )
    if isinstance(error, MalformedReply | Redirected):
        return f"Does base_url {settings.url_form}?"
    if isinstance(error, MissingPath):
        return f"Name a server that has it, and check that base_url {settings.url_form}."
    if not isinstance(error, StatusError):
        return _remedy_of_connection(str(error))
    if not error.codes.isdisjoint(_ACCOUNT_CODES):
        return "The account has no credit left."
    if meaning(error) is Meaning.AGAIN:
        return "Try again later."
    key = f"The key in {settings.api_key_env}"
    return {
        401: f"{key} is not {'accepted' if has_key else 'set'}.",
        403: f"{key} may not use this model.",
        404: f"Check the model's name. Does base_url {settings.url_form}?",
    }.get(error.status, f"Check {settings.checked}.")
