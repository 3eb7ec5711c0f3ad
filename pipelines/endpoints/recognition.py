"""Finds out what an images server is, from its own answers and before a picture is paid."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import openai
from pydantic import BaseModel, ValidationError

from pipelines.endpoints.client import LISTING_FAILURES, EndpointClient
from pipelines.endpoints.completions import body_start
from pipelines.endpoints.dialects import DIALECTS, Dialect, by_owner, by_status
from pipelines.endpoints.errors import EndpointError, MalformedReply, described
from pipelines.endpoints.image_settings import ImagesSettings


class _Model(BaseModel):
    id: str
    owned_by: str = ""


class _Listing(BaseModel):
    data: list[_Model]


class ServerRecognition:
    """What a server at first says of itself."""

    def __init__(self, client: EndpointClient, settings: ImagesSettings) -> None:
        self._client = client
        self._settings = settings
        self._models: Sequence[_Model] = ()
        self._no_list = "/models names no owner that is known"

    async def dialect(self) -> Dialect:
        """Its dialect; EndpointError where it cannot draw what the settings say."""
        await self._client.preflight(self._list, lambda _: {})
        named = self._settings.dialect
        dialect = DIALECTS[named] if named else await self._recognised()
        reason = self._undecided() if dialect is None else self._mismatch(dialect)
        if dialect is None or reason:
            text = f"endpoint {self._settings.url}: {reason}"
            raise EndpointError(self._client.public(text))
        return dialect

    async def _list(self) -> None:
        """Read the models at `/models`; none where the server does not list them."""
        try:
            raw = await self._client.openai.models.with_raw_response.list()
        except openai.APIStatusError as error:
            if error.status_code in LISTING_FAILURES:
                raise
            self._no_list = f"/models answers {described(error)}"
            return
        body = raw.http_response.content
        try:
            self._models = _Listing.model_validate_json(body).data
        except ValidationError as error:
            reason = f"/models gave no list: {body_start(error, body)}"
            raise MalformedReply(reason) from None

    async def _recognised(self) -> Dialect | None:
        """By who owns the models, else by what only some servers answer."""
        own = [m for m in self._models if m.id == self._settings.model]
        if dialect := by_owner(m.owned_by for m in own or self._models):
            return dialect
        health, server_info = await asyncio.gather(
            self._answer_at("/health"), self._answer_at("/server_info")
        )
        return by_status(health, server_info)

    async def _answer_at(self, path: str) -> Any:
        """The JSON at a path of the server's root, None where there is none."""
        root = self._settings.url.removesuffix("/v1")
        try:
            reply: Any = await self._client.openai.get(f"{root}{path}", cast_to=object)
        except (openai.OpenAIError, ValueError):
            return None
        return reply

    def _undecided(self) -> str:
        return (
            f"it does not say what kind of server it is ({self._no_list.rstrip('.')}, and "
            f"/health tells nothing); set dialect to one of {', '.join(DIALECTS)}"
        )

    def _mismatch(self, dialect: Dialect) -> str | None:
        """Why it cannot draw what the settings say; None where it can."""
        model, names = self._settings.model, [m.id for m in self._models]
        if dialect.one_model and names and model not in names:
            return f"it has no model {model!r}; it has {', '.join(names)}"
        return dialect.unknown(self._settings.chosen)
