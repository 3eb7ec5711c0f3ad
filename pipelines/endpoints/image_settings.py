"""Settings of a text-to-image model behind a server. Imports no SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from generators.base import Kind
from generators.settings import unkeyed
from pipelines.chat.settings import ServerSettings
from pipelines.endpoints.dialects import DIALECTS, DialectName
from pipelines.endpoints.interleaved_settings import ImageHosts

_OPTIONAL = (
    "quality",
    "output_format",
    "steps",
    "guidance",
    "true_cfg_scale",
    "negative_prompt",
    "max_sequence_length",
    "generator_device",
)
"""Settings that not every dialect takes."""
_OWN_FIELDS = ("model", "prompt", "n", "stream", "size", "seed", "response_format")
"""Fields that `extra_body` may not set: the stage does, or needs them as they are."""
_NO_RESPONSE_FORMAT = ("gpt-image", "chatgpt-image")
"""Parts of the names of models that refuse the field and always send base64."""


class ImagesSettings(ServerSettings):
    """A model behind `/v1/images/generations`; None leaves a setting to the server."""

    kind: ClassVar[Kind] = Kind.RENDER
    stage: ClassVar[str] = "images-endpoint"
    target: ClassVar[str] = "pipelines.endpoints.images:ImagesEndpoint"
    seeded: ClassVar[bool] = True
    checked: ClassVar[str] = "model, width, height, dialect and extra_body"

    dialect: DialectName | None = None
    """Which server it is; by default found from its own answers."""
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
    """`low`, `medium`, `high`, ...: OpenAI's name for what a picture may cost."""
    output_format: Literal["png", "jpeg", "webp"] | None = None
    """By default lossless PNG."""
    response_format: Literal["b64_json", "url", "none"] | None = None
    """`none` leaves the field out, as GPT image models need; by default by the model's
    name."""
    prompt_prefix: str = ""
    """Put before every prompt, verbatim."""

    image_hosts: ImageHosts = unkeyed(())
    """Hosts from which pictures that a reply names by URL are fetched; by default none."""
    price_per_image: float | None = unkeyed(None, ge=0)
    """Of each picture, besides its tokens where those have prices."""
    # Diffusion takes seconds a picture, and most servers draw one after another.
    concurrency: int = unkeyed(4, ge=1)
    timeout_s: float = unkeyed(600.0, gt=0)
    give_up_s: float = unkeyed(1800.0, gt=0)

    @model_validator(mode="after")
    def _priced(self) -> Self:
        """As for every server, or by the picture."""
        priced = self.price_per_image is not None or self.prices_tokens
        if self.max_cost is not None and not priced:
            raise ValueError(
                "max_cost needs price_per_image, or price_per_million_input and "
                "price_per_million_output"
            )
        return self

    @model_validator(mode="after")
    def _sendable(self) -> Self:
        """Refuse what no request could hold."""
        if (self.width is None) != (self.height is None):
            raise ValueError("width and height are set together or not at all")
        if own := [name for name in _OWN_FIELDS if name in self.extra_body]:
            raise ValueError(f"extra_body must not set {', '.join(own)}")
        reason = self.dialect and DIALECTS[self.dialect].unknown(self.chosen)
        if reason:
            raise ValueError(reason)
        return self

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that not every server takes, and that the user has set."""
        values = {name: getattr(self, name) for name in _OPTIONAL}
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
        named = any(part in self.model for part in _NO_RESPONSE_FORMAT)
        return None if named else "b64_json"

    @property
    def prices_tokens(self) -> bool:
        """Whether tokens cost something."""
        return None not in (self.price_per_million_input, self.price_per_million_output)

    def cost_of(self, usage: Mapping[str, float]) -> float | None:
        """By the picture, the token, or both; None where price or count is not known."""
        by_token = super().cost_of(usage) if "output_tokens" in usage else None
        if self.prices_tokens and by_token is None:
            return None
        if self.price_per_image is None:
            return by_token
        return usage.get("images", 0.0) * self.price_per_image + (by_token or 0.0)
