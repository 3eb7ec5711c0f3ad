"""What all stages behind a server share: many requests at once, each answered alone."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from generators.base import Failure, Outcome, Skip
from generators.document import Request
from generators.pictures import PictureError
from pipelines.chat.settings import ConversationSettings, ServerSettings
from pipelines.chat.turns import ControlTokens, too_many_images, turns_of
from pipelines.endpoints.client import EndpointClient
from pipelines.endpoints.messages import image_sizes, messages_of, readable

In = TypeVar("In")
Call = TypeVar("Call")
Out = TypeVar("Out")


class EndpointStage(ABC, Generic[In, Call, Out]):
    """A stage by a server; calls may come from several threads."""

    concurrent: ClassVar[bool] = True

    def __init__(self, settings: ServerSettings) -> None:
        """Ask the server what `begin` asks; EndpointError where it cannot be used."""
        self._client = EndpointClient(settings)
        try:
            self._client.run(self.begin())
        except BaseException:
            self.close()
            raise

    @abstractmethod
    async def begin(self) -> None:
        """Find out whether server, key, model and settings are usable."""

    @abstractmethod
    def prepared(self, request: In) -> Call | Skip | Failure:
        """What is sent for a request; runs in the caller's thread."""

    @abstractmethod
    async def answer(self, call: Call) -> Outcome[Out]:
        """The server's answer to one request, retried and counted by the client."""

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        self._client.continue_from(usage)

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._client.close()

    def __call__(self, inputs: Sequence[In]) -> list[Outcome[Out]]:
        """One outcome per input, in order; what cannot be answered fails alone."""
        calls = [self.prepared(request) for request in inputs]
        return self._client.run(self._all(calls))

    async def _all(self, calls: Sequence[Call | Skip | Failure]) -> list[Outcome[Out]]:
        async def one(call: Call | Skip | Failure) -> Outcome[Out]:
            return call if isinstance(call, Skip | Failure) else await self.answer(call)

        return list(await asyncio.gather(*map(one, calls)))


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request as the OpenAI chat API takes it, and what its record notes of it."""

    messages: list[dict[str, Any]]
    notes: dict[str, Any]


def conversation(
    request: Request,
    settings: ConversationSettings,
    control: ControlTokens,
    own_pictures: bool = False,
) -> Conversation | Skip | Failure:
    """The request's messages, or why it cannot be sent.

    `own_pictures`: whether the API takes pictures in turns of the assistant.
    """
    if skip := too_many_images(request, settings.max_images):
        return skip
    turns, broken = control.neutralise(turns_of(request, settings.system))
    try:
        messages = messages_of(turns, settings, own_pictures)
    except PictureError as error:
        return Failure(str(error))
    notes: dict[str, Any] = {"prompt": readable(messages, turns)}
    notes["images"] = len(request.images)
    if request.images:
        notes["image_sizes"] = image_sizes(messages)
    if broken:
        notes["neutralised"] = broken
    return Conversation(messages, notes)
