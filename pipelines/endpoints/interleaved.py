"""What all interleaved systems behind a server share: how a request is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import openai

from generators.base import Failure, Outcome, Skip, Weights
from generators.document import Draft, Request
from pipelines.chat.turns import ControlTokens
from pipelines.endpoints.client import LISTING_FAILURES
from pipelines.endpoints.fetching import MediaReader
from pipelines.endpoints.interleaved_settings import InterleavedSettings
from pipelines.endpoints.replies import Account, EndpointReply, interleaved_outcome
from pipelines.endpoints.stage import Conversation, EndpointStage, conversation

Messages = list[dict[str, Any]]
"""A conversation as the OpenAI chat API takes it."""

_LARGEST_SEED = 2**31
NO_SEED = "not taken by the server"


@dataclass(frozen=True, slots=True)
class InterleavedCall:
    """One request, ready to be sent."""

    body: dict[str, Any]
    notes: dict[str, Any]


class InterleavedEndpoint(EndpointStage[Request, InterleavedCall, Draft]):
    """Request -> Draft of text and pictures, by a server.

    A subclass says what its API is sent and how its replies are read.
    """

    settings_class: ClassVar[type[InterleavedSettings]]
    own_pictures: ClassVar[bool] = False
    """Whether the API takes pictures in turns of the assistant."""

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """Ask the server for its models; `settings` are those of `settings_class`.

        Raises EndpointError when the server is dead or the key wrong. `weights` do not
        apply to endpoints.
        """
        self.settings = self.settings_class.model_validate(settings)
        self._control = ControlTokens(self.settings.control_tokens)
        self._media = MediaReader(self.settings.image_hosts)
        super().__init__(self.settings)

    async def begin(self) -> None:
        """Send a request that costs nothing."""
        self.connect()
        await self._client.preflight(self.probe, lambda _: {})

    def connect(self) -> None:
        """Make what the API's own SDK needs."""

    async def probe(self) -> Any:
        """A request that costs nothing and shows whether server and key are usable."""
        try:
            return await self._client.openai.get("/models", cast_to=object)
        except openai.APIStatusError as error:
            if error.status_code in LISTING_FAILURES:
                raise
            return None

    def body(self, messages: Messages, request: Request) -> dict[str, Any]:
        """What the API is sent."""
        raise NotImplementedError

    async def sent(self, body: Mapping[str, Any]) -> EndpointReply:
        """The API's reply to a body."""
        raise NotImplementedError

    def seed(self, request: Request) -> int | None:
        """The record's seed as servers take it; None where it is not sent."""
        if not getattr(self.settings, "send_seed", False) or request.seed is None:
            return None
        return request.seed % _LARGEST_SEED

    def prepared(self, request: Request) -> InterleavedCall | Skip | Failure:
        """What the API is sent for a request."""
        ready = conversation(request, self.settings, self._control, self.own_pictures)
        if not isinstance(ready, Conversation):
            return ready
        notes = ready.notes
        notes["seed"] = NO_SEED if (seed := self.seed(request)) is None else seed
        if request.modality:
            notes["modality"] = request.modality
        return InterleavedCall(self.body(ready.messages, request), notes)

    async def answer(self, call: InterleavedCall) -> Outcome[Draft]:
        """The text and pictures of the server's reply."""
        answered = await self._client.request(
            lambda: self.sent(call.body), lambda reply: reply.usage, call.notes
        )
        if isinstance(answered, Failure):
            return answered
        reply = answered.reply
        notes = {"finish": reply.finish, "model": reply.model, **reply.notes}
        notes["attempts"] = answered.attempts
        drawn = {"images": float(reply.pictures)} if reply.pictures else {}
        account = Account(drawn | answered.usage, call.notes | notes)
        outcome = await interleaved_outcome(reply, account, self._media)
        if isinstance(outcome, Failure):
            return replace(outcome, reason=self._client.public(outcome.reason))
        return outcome
