"""Sends the requests of one stage to one server: slots, retries, ceilings."""

from __future__ import annotations

import asyncio
import math
import os
import random
import ssl
import threading
import time
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from dataclasses import replace
from typing import Any, BinaryIO, NamedTuple, TypeVar

import httpx2

from plait.generators.base import Failure, Fault, add_usage
from plait.generators.secrets import key_trouble
from plait.pipelines.chat.settings import ServerSettings
from plait.pipelines.endpoints.errors import (
    ERRORS,
    EndpointError,
    Meaning,
    Redirected,
    SaidError,
    StatusError,
    certificates,
    describe,
    is_cut_short,
    meaning,
    read_bounded,
    remedy,
)
from plait.pipelines.endpoints.proxies import proxy_of, show_proxy
from plait.pipelines.endpoints.replies import EndpointReply

_REJECTIONS = 3
"""How often a request is rejected before a server has answered any, and how many requests
in a row after that, before none is expected to be accepted; and how often the first
connection is refused."""
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For a server without https, which needs no certificates."""
_NO_KEY = "none"
"""Sent where no key is set: local servers accept any, others answer with 401."""
_LONGEST_WAIT_S = 60.0
_TOKENS = {"input_tokens", "output_tokens"}
_FAULTS = {Meaning.REFUSED: Fault.REFUSED, Meaning.RECORD: Fault.BAD_INPUT}
_RETRIED = (Meaning.AGAIN, Meaning.UNREACHABLE, Meaning.REJECTED)
T = TypeVar("T")


class FormFile(NamedTuple):
    """A file of a form, by the name of its field."""

    field: str
    name: str
    content: BinaryIO | bytes
    mime: str


class EndpointClient:
    """Requests of one stage to one server; calls may come from several threads.

    A request keeps its slot while it waits to be sent again, so that a server that asks
    clients to wait is not sent the next request at once. Once several requests in a row
    are rejected (a wrong key, an unknown model), no further one is sent.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        for variable in (settings.api_key_env, *settings.account_variables):
            if trouble := key_trouble(variable):
                raise EndpointError(trouble)
        self._key = os.environ.get(settings.api_key_env, "").strip()
        self._proxy = proxy_of(settings.url)
        self._http = self._connections()
        self._ceiling = UsageCeiling(settings)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._answered = False
        """Whether the server has answered any request."""
        self._rejected = 0
        """Requests in a row that it has rejected."""
        self._hopeless: str | None = None
        """Why no further request is sent."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="endpoint", daemon=True
        )
        self._thread.start()

    def _connections(self) -> httpx2.AsyncClient:
        settings = self.settings
        # No redirect is followed: a key is for one address, and so is what is sent.
        try:
            return httpx2.AsyncClient(
                verify=certificates() if settings.url.startswith("https:") else _NO_TLS,
                headers={
                    "accept": "application/json",
                    **settings.headers(self._key or _NO_KEY),
                },
                timeout=httpx2.Timeout(
                    settings.timeout_s, connect=settings.connect_timeout_s
                ),
                limits=httpx2.Limits(max_connections=settings.concurrency),
                proxy=self._proxy,
                trust_env=False,
            )
        except (ImportError, ValueError, httpx2.InvalidURL) as error:
            if self._proxy is None:
                raise
            raise EndpointError(
                f"endpoint {settings.url} would be asked through the proxy "
                f"{show_proxy(self._proxy)}, which cannot be used: {error}. Correct "
                f"HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, or set NO_PROXY={settings.host}"
            ) from error

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns; called from any thread but the loop's own."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the requests in flight, close the connections and end the thread."""
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """Cancel what still runs: whoever waits for it would wait for ever."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)
        await self._http.aclose()

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        self._ceiling.count(usage)

    async def exchange(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Return what the server answers to one request; one of `ERRORS`."""
        method = "GET" if body is None else "POST"
        request = self._http.build_request(method, self.settings.url + path, json=body)
        return await self._answer_to(request)

    async def upload(
        self, path: str, fields: Mapping[str, str], files: Sequence[FormFile]
    ) -> bytes:
        """Return what the server answers to a form with files; one of `ERRORS`."""
        for file in files:
            if not isinstance(file.content, bytes):
                # An earlier attempt may have read it to its end.
                file.content.seek(0)
        request = self._http.build_request(
            "POST",
            self.settings.url + path,
            data=dict(fields),
            files=[(file.field, (file.name, file.content, file.mime)) for file in files],
        )
        return await self._answer_to(request)

    async def post(
        self, path: str, headers: Mapping[str, str], content: bytes | AsyncIterable[bytes]
    ) -> httpx2.Response:
        """Return the whole response to what is sent as it is; one of `ERRORS`."""
        request = self._http.build_request(
            "POST", self.settings.url + path, headers=dict(headers), content=content
        )
        response = await self._http.send(request)
        _refuse_redirect(response)
        if not response.is_success:
            raise StatusError(response, response.content)
        return response

    async def download(self, path: str, file: BinaryIO) -> None:
        """Write what the server answers to GET, however long it is; one of `ERRORS`."""
        file.seek(0)
        file.truncate()
        request = self._http.build_request("GET", self.settings.url + path)
        response = await self._http.send(request, stream=True)
        try:
            _refuse_redirect(response)
            if not response.is_success:
                body = await read_bounded(response, self.settings.most_reply_bytes)
                raise StatusError(response, body)
            async for chunk in response.aiter_bytes():
                file.write(chunk)
        finally:
            await response.aclose()

    async def _answer_to(self, request: httpx2.Request) -> bytes:
        response = await self._http.send(request, stream=True)
        try:
            _refuse_redirect(response)
            content = await read_bounded(response, self.settings.most_reply_bytes)
        finally:
            await response.aclose()
        if not response.is_success:
            raise StatusError(response, content)
        return content

    async def ask(self, attempt: Callable[[], Awaitable[T]], limit_s: float) -> T:
        """Return what `attempt` does, tried as any request; one of `ERRORS`.

        One attempt may take `limit_s`, or as long as any request.
        """
        limits = {Meaning.REJECTED: _REJECTIONS, Meaning.UNREACHABLE: _REJECTIONS}
        limit_s = max(limit_s, self.settings.timeout_s)
        result, _ = await self._try(attempt, limits, {}, limit_s)
        return result

    def accept(
        self, read: Callable[[], EndpointReply], notes: dict[str, Any]
    ) -> EndpointReply | Failure:
        """Return a reply that has come already, as `request` does; `read` may raise."""
        try:
            reply = read()
        except ERRORS as error:
            used = error.usage if isinstance(error, SaidError) else {}
            spent = self._ceiling.spend(used) if any(used.values()) else {}
            return replace(self.failure(error, notes), usage=spent)
        spent = self._ceiling.spend(reply.usage)
        return replace(reply, usage=spent, notes={**notes, **reply.notes})

    def reason_to_refuse(self, tokens: float, cost: float) -> str | None:
        """Return why requests that may use so much are not to be handed in, if so."""
        return self._ceiling.reason_to_refuse(tokens, cost)

    async def request(
        self, attempt: Callable[[], Awaitable[EndpointReply]], notes: dict[str, Any]
    ) -> EndpointReply | Failure:
        """Return the reply with all its usage and notes, or why there is none.

        It is tried as often as the settings allow; `notes` are those of the request.
        """
        async with self._slots:
            if self._hopeless is not None:
                return Failure(self._hopeless, Fault.ENDPOINT, notes=notes)
            if reason := self._ceiling.reason_to_stop():
                return Failure(reason, Fault.BUDGET, notes=notes)
            # What was accepted once will most likely be accepted again.
            most = self.settings.max_attempts if self._answered else _REJECTIONS
            used: dict[str, float] = {}
            try:
                reply, attempts = await self._try(attempt, {Meaning.REJECTED: most}, used)
            except ERRORS as error:
                failure = self.failure(error, notes)
                spent = self._ceiling.spend(used) if any(used.values()) else {}
                return replace(failure, usage=spent)
            self._answered = True
            self._rejected = 0
            about = {**notes, **reply.notes, "attempts": attempts}
            spent = self._ceiling.spend(_sum(reply.usage, used))
            return replace(reply, usage=spent, notes=about)

    async def begin(self, attempt: Callable[[], Awaitable[EndpointReply | None]]) -> None:
        """Send a first, small request as any other; EndpointError without an answer.

        The usage of its reply counts.
        """
        limits = {Meaning.REJECTED: _REJECTIONS, Meaning.UNREACHABLE: _REJECTIONS}
        used: dict[str, float] = {}
        try:
            reply, _ = await self._try(attempt, limits, used)
        except ERRORS as error:
            if is_cut_short(error):
                return
            # An error holds the request, and the request the key.
            raise EndpointError(self._explain(error)) from None
        if reply is not None:
            self._ceiling.spend(_sum(reply.usage, used))

    async def _try(
        self,
        attempt: Callable[[], Awaitable[T]],
        most_in_a_row: Mapping[Meaning, int],
        used: dict[str, float],
        limit_s: float | None = None,
    ) -> tuple[T, int]:
        """Return the result of `attempt` and how many attempts it took.

        What failed attempts took is added to `used`. Raises the last error: also that of
        so many in a row of one meaning. The time limit is one of the whole attempt, which a
        byte now and then cannot stretch.
        """
        settings = self.settings
        number = 0
        alike = 0
        before = None
        began = time.monotonic()
        while True:
            number += 1
            try:
                async with asyncio.timeout(limit_s or settings.timeout_s):
                    return await attempt(), number
            except ERRORS as error:
                if isinstance(error, SaidError):
                    add_usage(used, error.usage)
                what = meaning(error)
                alike = alike + 1 if what is before else 1
                pause = self._pause(error, number)
                late = time.monotonic() - began + pause >= settings.give_up_s
                often = number >= settings.max_attempts
                enough = alike >= most_in_a_row.get(what, math.inf)
                if what not in _RETRIED or late or often or enough:
                    raise
            before = what
            await asyncio.sleep(pause)

    def _pause(self, error: Exception, number: int) -> float:
        """As long as the server asks, else exponentially longer; never all at once."""
        backoff = self.settings.backoff_s
        if isinstance(error, StatusError) and error.pause is not None:
            return error.pause + random.uniform(0, backoff)
        grown = backoff * 2.0 ** min(number - 1, 64)
        return random.uniform(0, min(_LONGEST_WAIT_S, grown))

    def failure(self, error: Exception, notes: dict[str, Any]) -> Failure:
        """Return the failure of a request that follows from one of `ERRORS`."""
        reason = describe(error)
        what = meaning(error)
        self._rejected = self._rejected + 1 if what is Meaning.REJECTED else 0
        if what in (Meaning.REJECTED, Meaning.ENDPOINT):
            reason = self._explain(error)
            if what is Meaning.ENDPOINT or self._rejected >= _REJECTIONS:
                self._hopeless = reason
        elif what in _RETRIED:
            reason = f"given up: {reason}"
            if isinstance(error, StatusError) and error.pause is not None:
                reason += f" (it asks to wait {error.pause:.0f} s)"
        if isinstance(error, SaidError) and error.text:
            notes = {**notes, "text": error.text}
        return Failure(reason, _FAULTS.get(what, Fault.ENDPOINT), notes=notes)

    def _explain(self, error: Exception) -> str:
        settings = self.settings
        advice = remedy(error, settings, bool(self._key))
        said = describe(error).rstrip(".")
        if self._proxy is not None:
            advice = (
                f"It was asked through the proxy {show_proxy(self._proxy)}, which may be "
                f"what answers: set NO_PROXY={settings.host} where it needs none. {advice}"
            )
        return f"endpoint {settings.url}, model {settings.model!r}: {said}. {advice}"


def _refuse_redirect(response: httpx2.Response) -> None:
    if response.is_redirect:
        place = response.headers.get("location", "")
        raise Redirected(response.status_code, place)


def _sum(usage: Mapping[str, float], more: Mapping[str, float]) -> Mapping[str, float]:
    total = dict(usage)
    add_usage(total, more)
    return total


class UsageCeiling:
    """Adds up tokens and cost; requests in flight when it is reached are still paid."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._tokens = 0.0
        self._cost = 0.0
        self._unknown = False

    def spend(self, usage: Mapping[str, float]) -> dict[str, float]:
        """Count what one reply used; its usage, with its cost where that is known."""
        cost = self.count(usage)
        settings = self._settings
        tokens_unknown = (
            settings.max_total_tokens is not None and not usage.keys() >= _TOKENS
        )
        cost_unknown = settings.max_cost is not None and cost is None
        self._unknown = self._unknown or tokens_unknown or cost_unknown
        return dict(usage) if cost is None else {**usage, "cost": cost}

    def count(self, usage: Mapping[str, float]) -> float | None:
        """Add to the totals; the cost at today's prices, None where it is not known."""
        self._tokens += usage.get("input_tokens", 0.0) + usage.get("output_tokens", 0.0)
        cost = self._settings.cost_of(usage)
        self._cost += cost or 0.0
        return cost

    def reason_to_refuse(self, tokens: float, cost: float) -> str | None:
        """Return why requests may not be sent that may use so much; None while they may."""
        most_tokens = self._settings.max_total_tokens
        most_cost = self._settings.max_cost
        if reason := self.reason_to_stop():
            return reason
        if most_tokens is not None and self._tokens + tokens > most_tokens:
            return (
                f"{self._tokens:.0f} tokens used; requests in batches may use {tokens:.0f} "
                f"more, and max_total_tokens is {most_tokens}"
            )
        if most_cost is not None and self._cost + cost > most_cost:
            return (
                f"{self._cost:.4g} spent; requests in batches may cost {cost:.4g} more, "
                f"and max_cost is {most_cost:g}"
            )
        return None

    def reason_to_stop(self) -> str | None:
        """Return why no more requests may be sent; None while they may."""
        tokens = self._settings.max_total_tokens
        cost = self._settings.max_cost
        if self._unknown:
            return "the server reports no token usage, so no ceiling can be enforced"
        if tokens is not None and self._tokens >= tokens:
            return f"{self._tokens:.0f} tokens used; max_total_tokens is {tokens}"
        if cost is not None and self._cost >= cost:
            return f"{self._cost:.4g} spent; max_cost is {cost:g}"
        return None
