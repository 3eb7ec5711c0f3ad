"""Chat endpoints that draw: OpenRouter, LiteLLM, vLLM-Omni, SGLang-Omni."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import openai

from generators.document import Request
from pipelines.endpoints.completions import parsed
from pipelines.endpoints.interleaved import InterleavedEndpoint, Messages
from pipelines.endpoints.interleaved_settings import ChatImagesSettings
from pipelines.endpoints.replies import EndpointReply


class ChatImagesEndpoint(InterleavedEndpoint):
    """Answers with text and pictures by the chat completions API."""

    settings_class: ClassVar[type[ChatImagesSettings]] = ChatImagesSettings
    settings: ChatImagesSettings

    def body(self, messages: Messages, request: Request) -> dict[str, Any]:
        """Arguments of the SDK's `chat.completions.create`, without those left open."""
        s = self.settings
        modalities = [request.modality] if request.modality else list(s.modalities)
        body: dict[str, Any] = {
            "model": s.model,
            "messages": messages,
            "temperature": s.temperature,
            "top_p": s.top_p,
            s.max_tokens_field: s.max_tokens,
            "modalities": modalities if s.modalities else None,
            "seed": self.seed(request),
            "extra_body": s.extra_body or None,
        }
        return {name: value for name, value in body.items() if value is not None}

    async def sent(self, body: Mapping[str, Any]) -> EndpointReply:
        """The server's reply.

        Some models cannot be told to write text alone (Anole behind `plait serve`); these
        are asked as for any other query, and the record says so.
        """
        try:
            return await self._completed(body)
        except openai.BadRequestError as error:
            if body.get("modalities") != ["text"] or "modalities" not in str(error):
                raise
        whole = {**body, "modalities": list(self.settings.modalities)}
        reply = await self._completed(whole)
        about = {"modality": "text alone is not taken by the server"}
        return replace(reply, notes={**reply.notes, **about})

    async def _completed(self, body: Mapping[str, Any]) -> EndpointReply:
        completions = self._client.openai.chat.completions
        raw = await completions.with_raw_response.create(**body)
        return parsed(raw.http_response.content)
