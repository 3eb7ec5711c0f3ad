"""Draws with any text-to-image model behind `/v1/images/generations`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import openai
from pydantic import BaseModel, ValidationError

from generators.base import Failure, Fault, Outcome, Weights
from generators.document import Image, ImageRequest
from pipelines.endpoints.client import EndpointClient
from pipelines.endpoints.completions import body_start
from pipelines.endpoints.dialects import DIALECTS, Dialect, by_owner, by_status
from pipelines.endpoints.errors import EndpointError, MalformedReply
from pipelines.endpoints.image_replies import (
    Asked,
    ImagesReply,
    images_reply,
    picture_outcome,
)
from pipelines.endpoints.image_settings import ImagesSettings
from pipelines.prompts import input_error, prompt_and_seed

_LISTS_MODELS = (401, 403, 408, 409, 429, 503)
"""Statuses of `/models` that say something; others (404, 500) that it lists none."""


class _Model(BaseModel):
    id: str
    owned_by: str = ""


class _Listing(BaseModel):
    data: list[_Model]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """One request, ready to be sent."""

    prompt: str
    body: Mapping[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)


class ImagesEndpoint:
    """ImageRequest -> Image, by a server; calls may come from several threads."""

    concurrent: ClassVar[bool] = True

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """Ask the server what it is; `settings` are the fields of `ImagesSettings`.

        No picture is drawn for it. Raises EndpointError when the server is dead, the key
        wrong, the model unknown, or a setting not one that the server takes. `weights` do
        not apply to endpoints.
        """
        self.settings = ImagesSettings.model_validate(settings)
        self._client = EndpointClient(self.settings)
        self._reader = MediaReader(self.settings.image_hosts)
        try:
            self.dialect = self._client.run(self._introduced())
        except BaseException:
            self.close()
            raise

    def continue_from(self, usage: Mapping[str, float]) -> None:
        """Count what earlier workers of the stage have used towards its ceilings."""
        self._client.continue_from(usage)

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._client.close()

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Image]]:
        """One picture per request; a request that cannot be drawn fails alone."""
        return self._client.run(self._all(inputs))

    async def _all(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Image]]:
        return list(await asyncio.gather(*map(self._outcome, inputs)))

    async def _outcome(self, request: ImageRequest) -> Outcome[Image]:
        if reason := input_error(request):
            return Failure(reason, Fault.BAD_INPUT)
        drawing = self._drawing(request)
        answered = await self._client.request(
            lambda: self._sent(drawing), self._used, drawing.notes
        )
        if isinstance(answered, Failure):
            return answered
        account = Account(
            answered.reply.as_usage() | answered.usage,
            drawing.notes | {"attempts": answered.attempts},
        )
        asked = Asked(drawing.prompt, self.settings.size)
        return await picture_outcome(answered.reply, asked, account, self._reader)

    def _drawing(self, request: ImageRequest) -> _Drawing:
        s = self.settings
        prompt, seed = prompt_and_seed(request, s.prompt_prefix)
        body: dict[str, Any] = {"size": s.size, "response_format": s.sent_response_format}
        body |= self.dialect.defaults
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
        raw = await self._client.openai.images.with_raw_response.generate(
            prompt=drawing.prompt, model=self.settings.model, extra_body=drawing.body
        )
        return images_reply(raw.http_response.content)

    def _used(self, reply: ImagesReply) -> Mapping[str, float] | None:
        """The reply's usage; None where a ceiling on tokens could not be kept."""
        usage, s = reply.as_usage(), self.settings
        needs_tokens = s.prices_tokens or s.max_total_tokens is not None
        return None if needs_tokens and "output_tokens" not in usage else usage

    async def _introduced(self) -> Dialect:
        """What the server is; EndpointError where it cannot draw what is asked for."""
        models: list[_Model] = []

        async def listed() -> None:
            models[:] = await self._listed()

        await self._client.preflight(listed, lambda _: {})
        named = self.settings.dialect
        dialect = DIALECTS[named] if named else await self._recognised(models)
        if reason := self._refusal(dialect, [m.id for m in models]):
            raise EndpointError(f"endpoint {self.settings.url}: {reason}")
        assert dialect is not None
        return dialect

    async def _recognised(self, models: Sequence[_Model]) -> Dialect | None:
        """The dialect by who owns the models, else by what only some servers answer."""
        own = [m for m in models if m.id == self.settings.model]
        if dialect := by_owner(m.owned_by for m in own or models):
            return dialect
        health, server_info = await asyncio.gather(
            self._answer_at("/health"), self._answer_at("/server_info")
        )
        return by_status(health, server_info)

    def _refusal(self, dialect: Dialect | None, models: Sequence[str]) -> str | None:
        if dialect is None:
            return (
                "neither /v1/models nor /health says what kind of server it is; set "
                f"dialect to one of {', '.join(DIALECTS)}"
            )
        s = self.settings
        if dialect.one_model and models and s.model not in models:
            return f"it has no model {s.model!r}; it has {', '.join(models)}"
        return dialect.unknown(s.chosen)

    async def _listed(self) -> list[_Model]:
        """The models at `/models`; none where the server does not list them."""
        try:
            raw = await self._client.openai.models.with_raw_response.list()
        except openai.APIStatusError as error:
            if error.status_code in _LISTS_MODELS:
                raise
            return []
        body = raw.http_response.content
        try:
            return _Listing.model_validate_json(body).data
        except ValidationError as error:
            reason = f"/models gave no list: {body_start(error, body)}"
            raise MalformedReply(reason) from None

    async def _answer_at(self, path: str) -> Any:
        """The JSON at a path of the server's root, None where there is none."""
        root = self.settings.url.removesuffix("/v1")
        try:
            reply: Any = await self._client.openai.get(f"{root}{path}", cast_to=object)
        except (openai.OpenAIError, ValueError):
            return None
        return reply
