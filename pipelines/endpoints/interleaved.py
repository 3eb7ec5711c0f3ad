"""What all interleaved systems behind a server share: how a request is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import openai

from generators.base import Failure, Outcome, Skip, Weights
from generators.document import Draft, Request
from generators.pictures import PictureError
from pipelines.chat.turns import ControlTokens, too_many_images, turns_of
from pipelines.endpoints.client import EndpointClient
from pipelines.endpoints.fetching import MediaReader
from pipelines.endpoints.interleaved_settings import InterleavedSettings
from pipelines.endpoints.messages import image_sizes, messages_of, readable
from pipelines.endpoints.replies import Account, EndpointReply, interleaved_outcome

Messages = list[dict[str, Any]]
"""A conversation as the OpenAI chat API takes it."""

_SAY_SOMETHING = (401, 403, 408, 409, 429, 503)
"""Statuses of `/models` that say something; others (404, 500) that it lists none."""
_LARGEST_SEED = 2**31
NO_SEED = "not taken by the server"


@dataclass(frozen=True, slots=True)
class InterleavedCall:
    """One request, ready to be sent."""

    body: dict[str, Any]
    notes: dict[str, Any]


class InterleavedEndpoint:
    """Request -> Draft of text and pictures, by a server; may be called from threads.

    A subclass says what its API is sent and how its replies are read.
    """

    concurrent: ClassVar[bool] = True
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
        self._client = EndpointClient(self.settings)
        try:
            self.connect()
            self._client.run(self._client.preflight(self.probe, lambda _: {}))
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        """Make what the API's own SDK needs."""

    async def probe(self) -> Any:
        """A request that costs nothing and shows whether server and key are usable."""
        try:
            return await self._client.openai.get("/models", cast_to=object)
        except openai.APIStatusError as error:
            if error.status_code in _SAY_SOMETHING:
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

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        self._client.continue_from(usage)

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._client.close()

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft per request; a request that cannot be answered fails alone."""
        prepared = [self._prepared(request) for request in inputs]
        return self._client.run(self._all(prepared))

    def _prepared(self, request: Request) -> InterleavedCall | Skip | Failure:
        if skip := too_many_images(request, self.settings.max_images):
            return skip
        turns, broken = self._control.neutralise(turns_of(request, self.settings.system))
        try:
            messages = messages_of(turns, self.settings, self.own_pictures)
        except PictureError as error:
            return Failure(str(error))
        notes: dict[str, Any] = {"prompt": readable(messages, turns)}
        if request.images:
            notes["image_sizes"] = image_sizes(messages)
        if broken:
            notes["neutralised"] = broken
        notes["seed"] = NO_SEED if (seed := self.seed(request)) is None else seed
        if request.modality:
            notes["modality"] = request.modality
        return InterleavedCall(self.body(messages, request), notes)

    async def _all(
        self, prepared: Sequence[InterleavedCall | Skip | Failure]
    ) -> list[Outcome[Draft]]:
        async def one(call: InterleavedCall | Skip | Failure) -> Outcome[Draft]:
            return await self._answer(call) if isinstance(call, InterleavedCall) else call

        return list(await asyncio.gather(*map(one, prepared)))

    async def _answer(self, call: InterleavedCall) -> Outcome[Draft]:
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
