"""Answers requests with any chat model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from generators.base import Failure, Outcome, Skip, Weights
from generators.document import Draft, Request
from generators.pictures import PictureError
from pipelines.chat.settings import EndpointSettings
from pipelines.chat.turns import ControlTokens, too_many_images, turns_of
from pipelines.endpoints.client import EndpointClient
from pipelines.endpoints.completions import parsed
from pipelines.endpoints.messages import body_of, image_sizes, messages_of, readable
from pipelines.endpoints.replies import Account, EndpointReply, text_outcome

_PREFLIGHT = [{"role": "user", "content": "Reply with the word: ready"}]
_PREFLIGHT_TOKENS = 16
"""Longest reply asked for: enough to show that key, model and settings are accepted."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, ready to be sent."""

    messages: list[dict[str, Any]]
    notes: dict[str, Any]
    seed: int | None
    most_tokens: int | None = None
    """Longest reply, where it is to be shorter than the settings allow."""


class ChatEndpoint:
    """Request -> Draft of one text, by a server; calls may come from several threads."""

    concurrent: ClassVar[bool] = True

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """Send one small request; `settings` are the fields of `EndpointSettings`.

        Raises EndpointError when the server is dead, the key wrong, the model unknown or
        a setting not accepted. `weights` do not apply to endpoints.
        """
        self.settings = EndpointSettings.model_validate(settings)
        self._control = ControlTokens(self.settings.control_tokens)
        self._client = EndpointClient(self.settings)
        try:
            call = _Call(_PREFLIGHT, {}, 0, _PREFLIGHT_TOKENS)
            self._client.run(self._client.preflight(lambda: self._sent(call), _used))
        except BaseException:
            self.close()
            raise

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        self._client.continue_from(usage)

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._client.close()

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request; the text without white space around it."""
        prepared = [self._prepared(request) for request in inputs]
        return self._client.run(self._all(prepared))

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
        answered = await self._client.request(lambda: self._sent(call), _used, call.notes)
        if isinstance(answered, Failure):
            return answered
        reply, usage = answered.reply, answered.usage
        about: dict[str, Any] = {"finish": reply.finish, "model": reply.model}
        about |= {"attempts": answered.attempts, **reply.notes}
        return text_outcome(reply, Account(usage, call.notes | about | usage))

    async def _sent(self, call: _Call) -> EndpointReply:
        body = body_of(call.messages, self.settings, call.seed, call.most_tokens)
        completions = self._client.openai.chat.completions
        raw = await completions.with_raw_response.create(**body)
        return parsed(raw.http_response.content)


def _used(reply: EndpointReply) -> Mapping[str, float] | None:
    return reply.tokens
