"""Settings of interleaved systems behind a server. Imports no SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, model_validator

from generators.settings import unkeyed
from pipelines.chat.settings import ConversationSettings, plain_url

GEMINI_URL = "https://generativelanguage.googleapis.com"


def _hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """ValueError for what is no host: a URL, a port, an empty name, a bare star."""
    for host in hosts:
        bare = host.removeprefix("*.")
        url = "://" in host or host.rstrip("]").rpartition(":")[2].isdecimal()
        if not bare or (url and host.count(":") < 2) or "*" in bare or " " in bare:
            raise ValueError(
                f"{host!r} is not a valid host: give a name (cdn.example.com), "
                "*.example.com, an address or a network (10.0.0.0/8), without a port"
            )
    return hosts


ImageHosts = Annotated[tuple[str, ...], AfterValidator(_hosts)]
"""Hosts that pictures may be fetched from; private addresses are listed themselves."""


class InterleavedSettings(ConversationSettings):
    """A model behind a server that answers with text and pictures."""

    seeded: ClassVar[bool] = True
    sends_seed: ClassVar[bool] = True
    """Whether the API has a field for seeds."""

    image_hosts: ImageHosts = unkeyed(())
    """Hosts from which pictures that a reply names by URL are fetched: names, `*.DOMAIN`,
    addresses, networks. By default none are fetched."""
    price_per_million_image_output: float | None = unkeyed(None, ge=0)
    """Of the output tokens that are pictures; by default as for all others."""
    price_per_image: float | None = unkeyed(None, ge=0)
    """Of each picture, besides its tokens."""
    # A reply with pictures takes up to minutes.
    concurrency: int = unkeyed(8, ge=1)
    timeout_s: float = unkeyed(600.0, gt=0)
    give_up_s: float = unkeyed(1800.0, gt=0)

    @model_validator(mode="after")
    def _priced(self) -> Self:
        """As for every server, or by the picture."""
        if self.max_cost is not None and self.cost_of({}) is None:
            raise ValueError(
                "max_cost needs price_per_image, or price_per_million_input and "
                "price_per_million_output"
            )
        return self

    def cost_of(self, usage: Mapping[str, float]) -> float | None:
        """By the token, by the picture, or both; None where no prices are known."""
        by_token = super().cost_of(usage)
        if by_token is None and self.price_per_image is None:
            return None
        dearer = 0.0
        if self.price_per_million_image_output is not None:
            text_price = self.price_per_million_output or 0.0
            dearer = self.price_per_million_image_output - text_price
        pictured = usage.get("image_output_tokens", 0.0) * dearer / 1e6
        each = self.price_per_image or 0.0
        return (by_token or 0.0) + pictured + usage.get("images", 0.0) * each


class ChatImagesSettings(InterleavedSettings):
    """A chat endpoint whose replies hold pictures (OpenRouter, LiteLLM, vLLM-Omni)."""

    stage: ClassVar[str] = "chat-images-endpoint"
    target: ClassVar[str] = "pipelines.endpoints.chat_images:ChatImagesEndpoint"

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The server's name for the longest answer."""
    modalities: tuple[str, ...] = ("image", "text")
    """Sent as `modalities`; nothing is sent where it is empty."""
    send_seed: bool = False
    """Whether to send the record's seed; not every server takes one."""


class OmniSettings(ChatImagesSettings):
    """SGLang-Omni: a chat endpoint whose replies are ordered segments."""

    stage: ClassVar[str] = "omni-endpoint"

    modalities: tuple[str, ...] = ("text", "image")
    """Sent as `modalities`; nothing is sent where it is empty."""
    send_seed: bool = True
    """Whether to send the record's seed."""


class ResponsesSettings(InterleavedSettings):
    """A model behind OpenAI's Responses API, with its image_generation tool."""

    stage: ClassVar[str] = "responses-endpoint"
    target: ClassVar[str] = "pipelines.endpoints.responses:ResponsesEndpoint"
    sends_seed: ClassVar[bool] = False

    image_model: str | None = None
    """Model that draws; None for the server's own."""
    size: str | None = None
    """`WIDTHxHEIGHT`, or `auto`."""
    quality: str | None = None
    """`low`, `medium`, `high`, ..."""
    output_format: Literal["png", "webp", "jpeg"] | None = None
    background: Literal["opaque", "transparent", "auto"] | None = None
    must_draw: bool = False
    """Whether the tool is required; by default the model decides."""


class GeminiSettings(InterleavedSettings):
    """A model behind Gemini's own API."""

    stage: ClassVar[str] = "gemini-endpoint"
    target: ClassVar[str] = "pipelines.endpoints.gemini:GeminiEndpoint"
    url_form: ClassVar[str] = "leave out the API's version (api_version)"

    aspect_ratio: str | None = None
    """Of pictures, such as `1:1`; None for the server's own."""
    image_size: Literal["1K", "2K", "4K"] | None = None
    """Of pictures; None for the server's own."""
    send_seed: bool = True
    """Whether to send the record's seed."""
    api_version: str = unkeyed("v1beta")
    api_key_env: str = unkeyed("GEMINI_API_KEY")
    """Environment variable that holds the key; the key itself is never stored."""

    @property
    def url(self) -> str:
        """Base URL that requests go to, without the API's version."""
        set_url = self.base_url or os.environ.get("GOOGLE_GEMINI_BASE_URL") or GEMINI_URL
        return plain_url(set_url)


def omni_settings(model: str) -> OmniSettings:
    """Of a model behind SGLang-Omni; LLaDA2 reads no pictures there."""
    blind = "llada2" in model.lower().replace("-", "").replace(".", "")
    return OmniSettings(model=model, max_images=0 if blind else None)
