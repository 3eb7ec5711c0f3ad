"""Chat models behind an OpenAI-compatible endpoint: with text, or with text and images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import openai

from generators.base import Outcome
from generators.document import Draft, Request
from pipelines.chat.settings import EndpointSettings
from pipelines.endpoints.client import EndpointClient
from pipelines.endpoints.replies import (
    Account,
    ChatCompletion,
    EndpointReply,
    read_body,
    text_outcome,
)
from pipelines.endpoints.settings import ChatImagesSettings
from pipelines.endpoints.stage import ConversationEndpoint, InterleavedEndpoint, Messages

_PREFLIGHT = [{"role": "user", "content": "Reply with the word: ready"}]
_PREFLIGHT_TOKENS = 16
"""Longest reply asked for: enough to show that key, model and settings are accepted."""


class ChatEndpoint(ConversationEndpoint):
    """Request -> Draft of one text without white space around it, by a server."""

    settings_class: ClassVar[type[EndpointSettings]] = EndpointSettings
    settings: EndpointSettings
    takes_max_tokens: ClassVar[bool] = True

    async def begin(self) -> None:
        """Send one small request: server, key, model and settings are accepted."""
        body = self.body(_PREFLIGHT, Request((), seed=0, max_tokens=_PREFLIGHT_TOKENS))
        await self._client.preflight(lambda: self.sent(body), lambda reply: reply.usage)

    def body(self, messages: Messages, request: Request) -> dict[str, Any]:
        """Arguments of the SDK's `chat.completions.create`, without those left open."""
        return _body(self.settings, messages, request, self.seed(request))

    async def sent(self, body: Mapping[str, Any]) -> EndpointReply:
        """The server's reply."""
        return await _completed(self._client, body)

    async def outcome(self, reply: EndpointReply, account: Account) -> Outcome[Draft]:
        """The one text."""
        return text_outcome(
            reply, Account(account.usage, {**account.notes, **account.usage})
        )


class ChatImagesEndpoint(InterleavedEndpoint):
    """Text and images by the chat API: OpenRouter, LiteLLM, vLLM-Omni, SGLang-Omni."""

    settings_class: ClassVar[type[ChatImagesSettings]] = ChatImagesSettings
    settings: ChatImagesSettings

    def body(self, messages: Messages, request: Request) -> dict[str, Any]:
        """As for a chat endpoint, with the modalities of the answer."""
        body = _body(self.settings, messages, request, self.seed(request))
        if own := list(self.settings.modalities):
            body["modalities"] = [request.modality] if request.modality else own
        return body

    async def sent(self, body: Mapping[str, Any]) -> EndpointReply:
        """The server's reply.

        Some models cannot be told to write text alone (Anole behind `plait serve`); these
        are asked as for any other query, and the record says so.
        """
        try:
            return await _completed(self._client, body)
        except openai.BadRequestError as error:
            if body.get("modalities") != ["text"] or "modalities" not in str(error):
                raise
        whole = {**body, "modalities": list(self.settings.modalities)}
        reply = await _completed(self._client, whole)
        about = {"modality": "text alone is not taken by the server"}
        return replace(reply, notes={**reply.notes, **about})


def _body(
    settings: EndpointSettings | ChatImagesSettings,
    messages: Messages,
    request: Request,
    seed: int | None,
) -> dict[str, Any]:
    """The reply has at most the request's tokens, where the settings allow more."""
    limits = [n for n in (settings.max_tokens, request.max_tokens) if n is not None]
    body: dict[str, Any] = {
        "model": settings.model,
        "messages": list(messages),
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        settings.max_tokens_field: min(limits, default=None),
        "seed": seed,
        "extra_body": settings.extra_body or None,
    }
    return {name: value for name, value in body.items() if value is not None}


async def _completed(client: EndpointClient, body: Mapping[str, Any]) -> EndpointReply:
    raw = await client.openai.chat.completions.with_raw_response.create(**body)
    return read_body(ChatCompletion, ChatCompletion.reply, raw.http_response.content)
