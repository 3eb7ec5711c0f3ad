"""Answers requests with any chat model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from generators.base import Failure, Outcome, Skip, Weights
from generators.document import Draft, Request
from pipelines.chat.settings import EndpointSettings
from pipelines.chat.turns import ControlTokens
from pipelines.endpoints.completions import parsed
from pipelines.endpoints.messages import body_of
from pipelines.endpoints.replies import Account, EndpointReply, text_outcome
from pipelines.endpoints.stage import Conversation, EndpointStage, conversation

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


class ChatEndpoint(EndpointStage[Request, _Call, Draft]):
    """Request -> Draft of one text without white space around it, by a server."""

    takes_max_tokens: ClassVar[bool] = True

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """Send one small request; `settings` are the fields of `EndpointSettings`.

        Raises EndpointError when the server is dead, the key wrong, the model unknown or
        a setting not accepted. `weights` do not apply to endpoints.
        """
        self.settings = EndpointSettings.model_validate(settings)
        self._control = ControlTokens(self.settings.control_tokens)
        super().__init__(self.settings)

    async def begin(self) -> None:
        """Send the small request."""
        call = _Call(_PREFLIGHT, {}, 0, _PREFLIGHT_TOKENS)
        await self._client.preflight(lambda: self._sent(call), _used)

    def prepared(self, request: Request) -> _Call | Skip | Failure:
        """The request's messages."""
        ready = conversation(request, self.settings, self._control)
        if not isinstance(ready, Conversation):
            return ready
        return _Call(ready.messages, ready.notes, request.seed, request.max_tokens)

    async def answer(self, call: _Call) -> Outcome[Draft]:
        """The text of the server's reply."""
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
