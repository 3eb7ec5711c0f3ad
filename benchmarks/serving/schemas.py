"""The requests, as JSON: nothing in them is ignored unless it cannot change an answer."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from generators.unicode import trouble

MOST_SEEDS = 2**63
"""Seeds are below this."""
MOST_PICTURES = 10
"""Of one request for pictures, as in OpenAI's API."""

Seed = Annotated[int | None, Field(ge=0, lt=MOST_SEEDS, strict=True)]


def _encodable(text: str) -> str:
    if wrong := trouble(text):
        raise ValueError(f"not valid text: {wrong}")
    return text


ValidText = Annotated[str, AfterValidator(_encodable)]
Count = Annotated[int | None, Field(ge=1, strict=True)]


class ApiRequest(BaseModel):
    """A request, in which fields that plait does not know may only be at their default."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {}
    """Values of unknown fields that ask for nothing."""
    labels: ClassVar[frozenset[str]] = frozenset(
        {"user", "metadata", "safety_identifier", "prompt_cache_key", "store"}
    )
    """Fields that say something about the request and ask for nothing."""

    @model_validator(mode="after")
    def _ask_for_nothing_unknown(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if value is None or name in self.labels:
                continue
            valid = self.neutral.get(name)
            if valid is None:
                known = ", ".join(sorted(type(self).model_fields))
                raise ValueError(f"the field {name!r} is not known here; valid are {known}")
            if value not in valid:
                allowed = " or ".join(repr(v) for v in valid)
                raise ValueError(
                    f"{name} is not honoured: it must be {allowed}, or left out"
                )
        return self


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PictureUrl(_Strict):
    """A picture as a data URL."""

    url: str
    detail: Literal["auto"] | None = None
    """Pictures are never scaled down for a client."""


class TextPart(_Strict):
    """Text among the parts of a message."""

    type: Literal["text"]
    text: ValidText


class PicturePart(BaseModel):
    """A picture among the parts of a message."""

    model_config = ConfigDict(frozen=True)  # `index` and the like are not needed

    type: Literal["image_url"]
    image_url: PictureUrl | str

    @property
    def url(self) -> str:
        """The data URL."""
        return self.image_url if isinstance(self.image_url, str) else self.image_url.url


class PictureData(BaseModel):
    """The picture of a segment, as SGLang-Omni writes it."""

    model_config = ConfigDict(frozen=True)

    url: str


class SegmentPart(BaseModel):
    """One segment of an earlier answer."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["text", "image"]
    data: ValidText | PictureData


class ChatMessage(ApiRequest):
    """One turn. Answers may be sent back as they came, with their pictures."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"tool_calls": ([],)}
    labels: ClassVar[frozenset[str]] = frozenset({"name", "annotations"})

    role: Literal["system", "developer", "user", "assistant"]
    content: ValidText | list[TextPart | PicturePart] | None = None
    images: list[PicturePart] | None = None
    segments: list[SegmentPart] | None = None


class StreamOptions(BaseModel):
    """What a stream says besides the answer."""

    model_config = ConfigDict(frozen=True)

    include_usage: bool = False


class ChatRequest(ApiRequest):
    """`POST /v1/chat/completions`."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "n": (1,),
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "logprobs": (False,),
        "top_logprobs": (0,),
        "logit_bias": ({},),
        "stop": ([],),
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "parallel_tool_calls": (True, False),
        "response_format": ({"type": "text"},),
        "service_tier": ("auto", "default"),
        "ignore_eos": (False,),
    }

    model: str | None = None
    messages: list[ChatMessage] = Field(min_length=1)
    modalities: list[Literal["text", "image"]] | None = None
    seed: Seed = None
    max_tokens: Count = None
    max_completion_tokens: Count = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    picture_format: Literal["segments", "images", "content"] | None = None
    """Where the answer's pictures are; by default in `segments` and in `images`."""

    @property
    def most_tokens(self) -> int | None:
        """The longest answer that is asked for."""
        limits = (self.max_tokens, self.max_completion_tokens)
        return min((n for n in limits if n is not None), default=None)


class ImageGenerationRequest(ApiRequest):
    """`POST /v1/images/generations`."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "quality": ("auto",),
        "background": ("auto", "opaque"),
        "moderation": ("auto",),
        "output_format": ("png",),
        "partial_images": (0,),
        "stream": (False,),
        "generator_device": ("cpu",),
        "return_stage_metrics": (False,),
        "enable_teacache": (False,),
    }

    model: str | None = None
    prompt: ValidText
    n: int = Field(default=1, ge=1, le=MOST_PICTURES, strict=True)
    size: str | None = None
    """`WIDTHxHEIGHT`, or `auto`."""
    width: Count = None
    height: Count = None
    seed: Seed = None
    num_inference_steps: Count = None
    guidance_scale: float | None = None
    true_cfg_scale: float | None = None
    negative_prompt: str | None = None
    max_sequence_length: Count = None
    response_format: str | None = None
