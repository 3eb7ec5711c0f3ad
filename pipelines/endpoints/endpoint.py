"""Answers requests with any chat model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import openai

from generators.base import Failure, Fault, Outcome, Skip, Weights
from generators.document import Draft, Request
from generators.pictures import PictureError
from pipelines.chat.settings import EndpointSettings
from pipelines.chat.turns import ControlTokens, too_many_images, turns_of
from pipelines.endpoints.limits import RetryLimits, UsageCeiling, with_retries
from pipelines.endpoints.messages import body_of, image_sizes, messages_of, readable
from pipelines.endpoints.replies import (
    ERRORS,
    ChatCompletion,
    EndpointError,
    Meaning,
    described,
    is_cut_short,
    meaning,
    outcome,
    parsed,
    remedy,
    retry_after_s,
)

_PREFLIGHT = [{"role": "user", "content": "Reply with the word: ready"}]
_PREFLIGHT_ATTEMPTS = 3
_PREFLIGHT_TOKENS = 16
"""Longest reply asked for: enough to show that key, model and settings are accepted."""
_NO_KEY = "none"
"""Sent where no key is set: local servers accept any, others answer with 401."""
_SHORTEST_KEY = 8
"""Shorter ones are words such as `none`, which an error may contain."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, ready to be sent."""

    messages: list[dict[str, Any]]
    notes: dict[str, Any]
    seed: int | None
    most_tokens: int | None = None
    """Longest reply, where it is to be shorter than the settings allow."""


class ChatEndpoint:
    """Request -> Draft of one text, by a server; calls may come from several threads.

    A request keeps its slot while it waits to be sent again, so that a server that asks
    clients to wait is not sent the next request at once.
    """

    concurrent: ClassVar[bool] = True

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """Send one small request; `settings` are the fields of `EndpointSettings`.

        Raises EndpointError when the server is dead, the key wrong, the model unknown or
        a setting not accepted. `weights` do not apply to endpoints.
        """
        self.settings = s = EndpointSettings.model_validate(settings)
        self._key = os.environ.get(s.api_key_env)
        self._client = openai.AsyncOpenAI(
            api_key=self._key or _NO_KEY,
            base_url=s.url,
            timeout=openai.Timeout(s.timeout_s, connect=s.connect_timeout_s),
            max_retries=0,
        )
        self._retries = RetryLimits(s.timeout_s, s.max_attempts, s.give_up_s, s.backoff_s)
        self._ceiling = UsageCeiling(s)
        self._control = ControlTokens(s.control_tokens)
        self._slots = asyncio.Semaphore(s.concurrency)
        self._condemned: str | None = None
        self._loop = _LoopThread()
        try:
            self._loop.run(self._preflight())
        except BaseException:
            self.close()
            raise

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        self._ceiling.continue_from(usage)

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._loop.run(self._client.close())
        self._loop.end()

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request; the text without white space around it."""
        prepared = [self._prepared(request) for request in inputs]
        return self._loop.run(self._all(prepared))

    def _prepared(self, request: Request) -> _Call | Skip | Failure:
        if skip := too_many_images(request, self.settings.max_images):
            return skip
        turns, broken = self._control.neutralise(turns_of(request, self.settings.system))
        try:
            messages = messages_of(turns, self.settings)
        except PictureError as error:
            return Failure(str(error))
        notes = {"prompt": readable(messages, turns), "images": len(request.images)}
        if request.images:
            notes["image_sizes"] = image_sizes(messages)
        if broken:
            notes["neutralised"] = broken
        return _Call(messages, notes, request.seed)

    async def _all(
        self, prepared: Sequence[_Call | Skip | Failure]
    ) -> list[Outcome[Draft]]:
        async def one(call: _Call | Skip | Failure) -> Outcome[Draft]:
            return await self._answer(call) if isinstance(call, _Call) else call

        return list(await asyncio.gather(*map(one, prepared)))

    async def _answer(self, call: _Call) -> Outcome[Draft]:
        async with self._slots:
            if self._condemned is not None:
                return Failure(self._condemned, Fault.ENDPOINT, notes=call.notes)
            if reason := self._ceiling.exhausted():
                return Failure(reason, Fault.BUDGET, notes=call.notes)
            try:
                reply, attempts = await with_retries(
                    lambda: self._sent(call), self._retries
                )
            except ERRORS as error:
                return self._failure(error, call.notes)
            usage = self._ceiling.spend(reply.usage)
        about = {"finish": reply.finish, "model": reply.model, "attempts": attempts}
        return outcome(reply, usage, call.notes | about | usage)

    async def _sent(self, call: _Call) -> ChatCompletion:
        body = body_of(call.messages, self.settings, call.seed, call.most_tokens)
        raw = await self._client.chat.completions.with_raw_response.create(**body)
        return parsed(raw.http_response.content)

    def _failure(self, error: Exception, notes: dict[str, Any]) -> Failure:
        """The failure of a request that had no reply."""
        reason = self._public(described(error))
        match meaning(error):
            case Meaning.REFUSED:
                return Failure(reason, Fault.REFUSED, notes=notes)
            case Meaning.RECORD:
                return Failure(reason, Fault.BAD_INPUT, notes=notes)
            case Meaning.ENDPOINT:
                self._condemned = self._explained(error)
                return Failure(self._condemned, Fault.ENDPOINT, notes=notes)
        pause = retry_after_s(error)
        if pause is not None:
            reason += f" (it asks to wait {pause:.0f} s)"
        return Failure(f"given up: {reason}", Fault.ENDPOINT, notes=notes)

    async def _preflight(self) -> None:
        attempts = min(self._retries.max_attempts, _PREFLIGHT_ATTEMPTS)
        limits = replace(self._retries, max_attempts=attempts)
        call = _Call(_PREFLIGHT, {}, 0, _PREFLIGHT_TOKENS)
        try:
            reply, _ = await with_retries(lambda: self._sent(call), limits)
        except ERRORS as error:
            if is_cut_short(error):
                return
            # The SDK's error holds the request, and the request the key.
            raise EndpointError(self._explained(error)) from None
        self._ceiling.spend(reply.usage)

    def _explained(self, error: Exception) -> str:
        s = self.settings
        advice = remedy(error, s.api_key_env, self._key is not None)
        what = (
            f"endpoint {s.url}, model {s.model!r}: {described(error).rstrip('.')}. {advice}"
        )
        return self._public(what)

    def _public(self, text: str) -> str:
        """`text` without the key, which some servers repeat in their errors."""
        if self._key is None or len(self._key) < _SHORTEST_KEY:
            return text
        return text.replace(self._key, "***")


class _LoopThread:
    """An event loop in its own thread, for callers that are not asynchronous."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="endpoint", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; called from any thread but the loop's own."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
