"""Settings of models behind a server that draw. Imports no HTTP client."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from plait.generators.base import Kind
from plait.generators.settings import unkeyed
from plait.pipelines.chat.settings import (
    BatchedSettings,
    ConversationSettings,
    ServerSettings,
    plain_url,
)

GEMINI_URL = "https://generativelanguage.googleapis.com"


def _hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for host in hosts:
        bare = host.removeprefix("*.")
        url = "://" in host or host.rstrip("]").rpartition(":")[2].isdecimal()
        if not bare or (url and host.count(":") < 2) or "*" in bare or " " in bare:
            raise ValueError(
                f"{host!r} is not a valid host: give a name (cdn.example.com), "
                "*.example.com, an address or a network (10.0.0.0/8), without a port"
            )
    return hosts


class DrawingSettings(ServerSettings):
    """A model behind a server whose replies hold images: what they may cost."""

    seeded: ClassVar[bool] = True

    image_hosts: Annotated[tuple[str, ...], AfterValidator(_hosts)] = unkeyed(())
    """Hosts from which images that a reply names by URL are fetched: names, `*.DOMAIN`,
    addresses, networks; private addresses must be listed themselves. By default none."""
    price_per_image: float | None = unkeyed(None, ge=0)
    """Of each image, besides its tokens where those have prices."""
    # A reply with images takes up to minutes.
    concurrency: int = unkeyed(8, ge=1)
    timeout_s: float = unkeyed(600.0, gt=0)
    give_up_s: float = unkeyed(1800.0, gt=0)

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        priced = self.price_per_image is not None or self.prices_tokens
        if self.max_cost is not None and not priced:
            raise ValueError(
                "max_cost needs price_per_image, or price_per_million_input and "
                "price_per_million_output"
            )
        return self

    def cost_of(self, usage: Mapping[str, float]) -> float | None:
        """As for every server, by the token, the image, or both."""
        by_token = super().cost_of(usage)
        if by_token is None and (self.prices_tokens or self.price_per_image is None):
            return None
        each = self.price_per_image or 0.0
        return (by_token or 0.0) + usage.get("images", 0.0) * each


class InterleavedSettings(DrawingSettings, ConversationSettings):
    """A model behind a server that answers with text and images."""

    price_per_million_image_output: float | None = unkeyed(None, ge=0)
    """Of the output tokens that are images; by default as for all others."""

    def cost_of(self, usage: Mapping[str, float]) -> float | None:
        """As for every model that draws, tokens of images at a price of their own."""
        cost = super().cost_of(usage)
        price = self.price_per_million_image_output
        if cost is None or price is None:
            return cost
        dearer = price - (self.price_per_million_output or 0.0)
        return cost + usage.get("image_output_tokens", 0.0) * dearer / 1e6


class ChatImagesSettings(InterleavedSettings):
    """A chat endpoint whose replies hold images (OpenRouter, LiteLLM, vLLM-Omni)."""

    stage: ClassVar[str] = "chat-images-endpoint"
    target: ClassVar[str] = "plait.pipelines.endpoints.chat:ChatImagesEndpoint"

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


class KitSettings(ChatImagesSettings):
    """A model that draws behind a chat endpoint, asked as its published kit asks it."""

    stage: ClassVar[str] = "kit-endpoint"
    target: ClassVar[str] = "plait.pipelines.endpoints.chat:KitEndpoint"

    send_seed: bool = True
    """Whether to send the record's seed."""
    seed_fields: tuple[str, ...] = ("seed",)
    """Where: `image_config.seed` is a field inside another."""
    image_form: str = "{text}"
    """What is sent of a user's turn where an image is asked for. `{text}` is its text, and
    `{images}` has the `image_mark` of each of its images, which follow the text."""
    text_form: str | None = "{text}"
    """Likewise where text alone is; None skips such queries."""
    image_mark: str = ""


class ResponsesSettings(InterleavedSettings):
    """A model behind OpenAI's Responses API, with its image_generation tool."""

    stage: ClassVar[str] = "responses-endpoint"
    target: ClassVar[str] = "plait.pipelines.endpoints.responses:ResponsesEndpoint"

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


class GeminiSettings(BatchedSettings, InterleavedSettings):
    """A model behind Gemini's own API."""

    stage: ClassVar[str] = "gemini-endpoint"
    target: ClassVar[str] = "plait.pipelines.endpoints.gemini:GeminiEndpoint"
    url_form: ClassVar[str] = "leave out the API's version (api_version)"

    aspect_ratio: str | None = None
    """Of images, such as `1:1`; None for the server's own."""
    image_size: Literal["1K", "2K", "4K"] | None = None
    """Of images; None for the server's own."""
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

    def headers(self, key: str) -> dict[str, str]:
        """Return the key, and how long the server may take."""
        return {"x-goog-api-key": key, "x-server-timeout": f"{math.ceil(self.timeout_s)}"}


def omni_settings(model: str) -> OmniSettings:
    """Return those of a model behind SGLang-Omni; LLaDA2 reads no images there."""
    blind = "llada2" in model.lower().replace("-", "").replace(".", "")
    return OmniSettings(model=model, max_images=0 if blind else None)


DialectName = Literal["openai", "sglang", "vllm-omni", "plait"]

_DIFFUSION = {
    "steps": "num_inference_steps",
    "guidance": "guidance_scale",
    "true_cfg_scale": "true_cfg_scale",
    "negative_prompt": "negative_prompt",
    "generator_device": "generator_device",
    "output_format": "output_format",
}
_WITH_LENGTH = _DIFFUSION | {"max_sequence_length": "max_sequence_length"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The fields that one kind of server reads of a request for an image."""

    fields: Mapping[str, str]
    """Setting -> name of the request's field. All servers take a size; a setting that is
    not here is not taken."""
    own_model: bool = True
    """Whether it draws with the one model it lists, from the seed that a request names."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Sent where the user sets nothing, because the server's own default loses quality."""
    edits: bool = True
    """Whether it has `/v1/images/edits`."""
    of_generations: frozenset[str] = frozenset()
    """Settings that its `/v1/images/edits` would ignore without a word."""


# The default of SGLang is JPEG of quality 75.
_PNG = {"output_format": "png"}
_OPENAI = {"quality": "quality", "output_format": "output_format"}
DIALECTS: Mapping[DialectName, Dialect] = {
    "openai": Dialect(_OPENAI, own_model=False),
    "sglang": Dialect(
        _WITH_LENGTH, defaults=_PNG, of_generations=frozenset({"max_sequence_length"})
    ),
    "vllm-omni": Dialect(_DIFFUSION, defaults=_PNG),
    "plait": Dialect(_WITH_LENGTH, edits=False),  # of `plait serve`
}
"""Read from the servers' released code: sglang 0.5.23, vllm-omni 0.30.0, openai 3.54."""

_OPTIONAL = frozenset(chain.from_iterable(d.fields for d in DIALECTS.values()))
"""Settings that not every dialect takes."""
_OWN_FIELDS = ("model", "prompt", "n", "stream", "size", "seed", "response_format")
"""Fields that `extra_body` may not set: the stage does, or needs them as they are."""
_NO_RESPONSE_FORMAT = "gpt-image"
"""Part of the names of models that refuse the field and always send base64."""


_MOST_INPUT_IMAGES = 16
"""Of one edit, by OpenAI's documentation of the GPT image models."""


class ImagesSettings(DrawingSettings):
    """A model behind `/v1/images/generations` and `/v1/images/edits`.

    None leaves a setting to the server.
    """

    kind: ClassVar[Kind] = Kind.RENDER
    stage: ClassVar[str] = "images-endpoint"
    target: ClassVar[str] = "plait.pipelines.endpoints.images:ImagesEndpoint"

    dialect: DialectName = "openai"
    """Whose fields the server takes: those of OpenAI's API, or more."""
    width: int | None = Field(default=None, ge=16)
    """In pixels."""
    height: int | None = Field(default=None, ge=16)
    steps: int | None = Field(default=None, ge=1)
    """Denoising steps."""
    guidance: float | None = Field(default=None, ge=0)
    true_cfg_scale: float | None = Field(default=None, ge=0)
    """Of classifier-free guidance, where `guidance` is a distilled one (Qwen-Image)."""
    negative_prompt: str | None = None
    max_sequence_length: int | None = Field(default=None, ge=8)
    """Tokens that T5 reads of a prompt."""
    generator_device: str | None = None
    """Where noise is drawn: only `cpu` can give that of `diffusers:` at equal seeds."""
    quality: str | None = None
    """`low`, `medium`, `high`, ...: OpenAI's name for what an image may cost."""
    output_format: Literal["png", "jpeg", "webp"] | None = None
    """By default lossless PNG."""
    response_format: Literal["b64_json", "url", "none"] | None = None
    """`none` leaves the field out, as GPT image models need; by default by the model's
    name."""
    prompt_prefix: str = ""
    """Put before every prompt, verbatim."""
    input_images: int | None = unkeyed(None, ge=1, le=_MOST_INPUT_IMAGES)
    """From how many of the last images each image is drawn under the protocols
    `outline-edit` and `edit`, by default one; keys hold the images themselves."""
    # Most servers draw one image after another.
    concurrency: int = unkeyed(4, ge=1)

    @model_validator(mode="after")
    def _sendable(self) -> Self:
        if (self.width is None) != (self.height is None):
            raise ValueError("width and height are set together or not at all")
        if own := [name for name in _OWN_FIELDS if name in self.extra_body]:
            raise ValueError(f"extra_body must not set {', '.join(own)}")
        taken = DIALECTS[self.dialect].fields
        if wrong := [name for name in self.chosen if name not in taken]:
            known = " and no ".join(f"{name} ({_takers(name)})" for name in wrong)
            raise ValueError(
                f"the images dialect {self.dialect!r} takes no {known}; it takes width, "
                f"height, {', '.join(taken)}, and extra_body"
            )
        return self

    @property
    def reason_not_to_edit(self) -> str | None:
        """Why the server cannot be sent images with these settings; None if it can."""
        dialect = DIALECTS[self.dialect]
        if not dialect.edits:
            return (
                f"servers of the images dialect {self.dialect!r} have no /v1/images/edits"
            )
        if ignored := [name for name in self.chosen if name in dialect.of_generations]:
            return (
                f"/v1/images/edits of the images dialect {self.dialect!r} takes no "
                f"{', '.join(ignored)}: leave it out"
            )
        return None

    @property
    def checked(self) -> str:
        """What to check where the server does not accept a request, for people."""
        return f"model, width, height, dialect {self.dialect!r} and extra_body"

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that not every server takes, and that the user has set."""
        values = {n: getattr(self, n) for n in type(self).model_fields if n in _OPTIONAL}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def size(self) -> str | None:
        """`WIDTHxHEIGHT`."""
        return None if self.width is None else f"{self.width}x{self.height}"

    @property
    def sent_response_format(self) -> str | None:
        """The request's `response_format`; None where it is left out."""
        if self.response_format is not None:
            return None if self.response_format == "none" else self.response_format
        return None if _NO_RESPONSE_FORMAT in self.model else "b64_json"


def _takers(setting: str) -> str:
    return f"taken by {', '.join(n for n, d in DIALECTS.items() if setting in d.fields)}"
