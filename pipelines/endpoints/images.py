"""Draws with any text-to-image model behind `/v1/images/generations`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import openai

from generators.base import Failure, Fault, Outcome, Weights
from generators.document import Image, ImageRequest
from pipelines.endpoints.fetching import MediaReader
from pipelines.endpoints.image_replies import (
    Asked,
    ImagesReply,
    images_reply,
    picture_outcome,
)
from pipelines.endpoints.image_settings import ImagesSettings
from pipelines.endpoints.recognition import ServerRecognition
from pipelines.endpoints.replies import Account
from pipelines.endpoints.stage import EndpointStage
from pipelines.prompts import input_error, prompt_and_seed


@dataclass(frozen=True, slots=True)
class _Drawing:
    """One request, ready to be sent."""

    prompt: str
    body: Mapping[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)


class ImagesEndpoint(EndpointStage[ImageRequest, _Drawing, Image]):
    """ImageRequest -> Image, by a server."""

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """Ask the server what it is; `settings` are the fields of `ImagesSettings`.

        No picture is drawn for it. Raises EndpointError when the server is dead, the key
        wrong, the model unknown, or a setting not one that the server takes. `weights` do
        not apply to endpoints.
        """
        self.settings = ImagesSettings.model_validate(settings)
        self._reader = MediaReader(self.settings.image_hosts)
        self._response_format = self.settings.sent_response_format
        self._accepted = False
        """Whether the server has answered any request with a reply."""
        super().__init__(self.settings)

    async def begin(self) -> None:
        """Ask the server what it is."""
        recognition = ServerRecognition(self._client, self.settings)
        self.dialect = await recognition.dialect()

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        super().continue_from(usage)
        self._accepted = self._accepted or usage.get("images", 0) > 0

    def prepared(self, request: ImageRequest) -> _Drawing | Failure:
        """What the server is sent for a request."""
        if reason := input_error(request):
            return Failure(reason, Fault.BAD_INPUT)
        return self._drawing(request)

    async def answer(self, drawing: _Drawing) -> Outcome[Image]:
        """The picture of the server's reply."""
        answered = await self._client.request(
            lambda: self._sent(drawing), self._used, drawing.notes
        )
        if isinstance(answered, Failure):
            return self._kept_open(answered)
        self._accepted = True
        account = Account(
            answered.reply.as_usage() | answered.usage,
            drawing.notes | {"attempts": answered.attempts},
        )
        asked = Asked(drawing.prompt, self.settings.size)
        return await picture_outcome(answered.reply, asked, account, self._reader)

    def _kept_open(self, failure: Failure) -> Failure:
        """A rejection is final for its record only where the settings have worked once."""
        if failure.fault is not Fault.BAD_INPUT or self._accepted:
            return failure
        advice = f"no request has been accepted yet; check {self.settings.checked}"
        reason = f"{failure.reason.rstrip('.')} ({advice})"
        return replace(failure, reason=reason, fault=Fault.ENDPOINT)

    def _drawing(self, request: ImageRequest) -> _Drawing:
        s = self.settings
        prompt, seed = prompt_and_seed(request, s.prompt_prefix)
        body: dict[str, Any] = {"size": s.size, **self.dialect.defaults}
        body |= {self.dialect.fields[name]: value for name, value in s.chosen.items()}
        notes: dict[str, Any] = {"prompt": prompt, "dialect": self.dialect.name}
        if self.dialect.seeded:
            # Not shortened: the same number gives the same noise as a stage run here.
            body["seed"] = notes["seed"] = seed
        else:
            notes["seed"] = "not taken by the server"
        body = {name: value for name, value in body.items() if value is not None}
        return _Drawing(prompt, body | s.extra_body, notes)

    async def _sent(self, drawing: _Drawing) -> ImagesReply:
        sent = self._response_format
        try:
            return await self._drawn(drawing, sent)
        except openai.BadRequestError as error:
            # LiteLLM rejects the field for models whose names do not tell.
            own_choice = sent is not None and self.settings.response_format is None
            if not own_choice or "response_format" not in str(error):
                raise
        self._response_format = None
        return await self._drawn(drawing, None)

    async def _drawn(self, drawing: _Drawing, response_format: str | None) -> ImagesReply:
        form = {"response_format": response_format} if response_format else {}
        raw = await self._client.openai.images.with_raw_response.generate(
            prompt=drawing.prompt,
            model=self.settings.model,
            extra_body={**form, **drawing.body},
        )
        return images_reply(raw.http_response.content)

    def _used(self, reply: ImagesReply) -> Mapping[str, float] | None:
        """The reply's usage; None where a ceiling on tokens could not be kept."""
        usage, s = reply.as_usage(), self.settings
        needs_tokens = s.prices_tokens or s.max_total_tokens is not None
        return None if needs_tokens and "output_tokens" not in usage else usage
