"""The requests, as JSON: nothing in them is ignored unless it cannot change an answer.

Fields that plait cannot honour may only have the value that asks for nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from plait.cluster.local import HIGHEST_PRIORITY
from plait.generators.unicode import trouble

MOST_SEEDS = 2**63
"""Seeds are below this."""
MOST_IMAGES = 10
"""Of one request for images, as in OpenAI's API."""
MOST_ITEMS = 1024
"""Of one request for scores."""
ONE_ITEM = "item"
BATCH = "batch"
FORMS = (ONE_ITEM, BATCH)
"""Of a request for scores."""


def _valid(text: str) -> str:
    if wrong := trouble(text):
        raise ValueError(f"not valid text: {wrong}")
    return text


ValidText = Annotated[str, AfterValidator(_valid)]
Seed = Annotated[int | None, Field(ge=0, lt=MOST_SEEDS, strict=True)]
Count = Annotated[int | None, Field(ge=1, strict=True)]
Zero = Annotated[float | None, Field(ge=0, le=0)]
Nothing = Annotated[list[Any] | dict[str, Any] | None, Field(max_length=0)]
"""Of fields that clients send as they are by default, and that change nothing then."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class _Request(_Strict):
    """What all requests may say of themselves."""

    model: str | None = None
    # What follows changes no answer, whatever it says.
    user: Any = None
    metadata: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    store: Any = None
    seed: Seed = None


class TextPart(_Strict):
    """Text among the parts of a message."""

    type: Literal["text"]
    text: ValidText


class ImageUrl(_Strict):
    """An image as a data URL; images are never scaled down for a client."""

    url: str
    detail: Literal["auto"] | None = None


class ImagePart(BaseModel):
    """An image among the parts of a message."""

    type: Literal["image_url"]
    image_url: Annotated[
        ImageUrl, BeforeValidator(lambda v: {"url": v} if isinstance(v, str) else v)
    ]


class ImageData(BaseModel):
    """The image of a segment, as SGLang-Omni writes it."""

    url: str


class SegmentPart(BaseModel):
    """One segment of an earlier answer."""

    kind: Literal["text", "image"]
    data: ValidText | ImageData


class ChatMessage(_Strict):
    """One turn. Answers may be sent back as they came, with their images."""

    role: Literal["system", "developer", "user", "assistant"]
    content: ValidText | list[TextPart | ImagePart] | None = None
    images: list[ImagePart] | None = None
    segments: list[SegmentPart] | None = None
    name: Any = None
    annotations: Any = None
    tool_calls: Nothing = None


class StreamOptions(BaseModel):
    """What a stream says besides the answer."""

    include_usage: bool = False


class ChatRequest(_Request):
    """`POST /v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    modalities: list[Literal["text", "image"]] | None = None
    max_tokens: Count = None
    max_completion_tokens: Count = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    picture_format: Literal["segments", "images", "content"] | None = None
    """Where the answer's images are; by default in `segments` and in `images`."""
    n: Literal[1] | None = None
    frequency_penalty: Zero = None
    presence_penalty: Zero = None
    logprobs: Literal[False] | None = None
    top_logprobs: Zero = None
    logit_bias: Nothing = None
    stop: Nothing = None
    tools: Nothing = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[Literal["type"], Literal["text"]] | None = None
    service_tier: Literal["auto", "default"] | None = None
    ignore_eos: Literal[False] | None = None


class ImageGenerationRequest(_Request):
    """`POST /v1/images/generations`."""

    prompt: ValidText
    n: int = Field(default=1, ge=1, le=MOST_IMAGES, strict=True)
    size: str | None = None
    """`WIDTHxHEIGHT`, or `auto`."""
    width: Count = None
    height: Count = None
    num_inference_steps: Count = None
    guidance_scale: float | None = None
    true_cfg_scale: float | None = None
    negative_prompt: str | None = None
    max_sequence_length: Count = None
    response_format: str | None = None
    quality: Literal["auto"] | None = None
    background: Literal["auto", "opaque"] | None = None
    moderation: Literal["auto"] | None = None
    output_format: Literal["png"] | None = None
    partial_images: Zero = None
    stream: Literal[False] | None = None
    generator_device: Literal["cpu"] | None = None
    return_stage_metrics: Literal[False] | None = None
    enable_teacache: Literal[False] | None = None


ScoredContent = ValidText | Annotated[list[TextPart | ImagePart], Field(min_length=1)]
"""Text, or texts and images in order."""
Priority = Annotated[int, Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY, strict=True)]


class ScoreItem(_Strict):
    """An answer that is to be scored, and what scorers may read of its query.

    The fields are those of a run's query: with the same values a score is the run's.
    """

    scorer: str | None = None
    """May be left out where one is served."""
    query: ScoredContent | None = None
    messages: list[ChatMessage] | None = Field(default=None, min_length=1)
    """In place of `query`: a conversation that ends with the user's turn."""
    answer: ScoredContent
    reference: ScoredContent | None = None
    """The ground truth."""
    criteria: ValidText | None = None
    """What a judge should look for."""
    id: ValidText = "query"
    """A judge that samples is seeded by it and by `seed`."""
    category: ValidText = "query"
    """Decides which of plait's rubrics a judge has."""
    field: ValidText = "query"
    metadata: dict[ValidText, ValidText] = Field(default_factory=dict)
    """What single benchmarks' scorers read of their queries."""
    wants_images: bool = True
    """Whether the query asks for images; else scorers of images do not apply."""
    seed: Seed = None
    """Of a judge that samples; by default that of the server's config."""

    @model_validator(mode="after")
    def _check_asked_once(self) -> Self:
        if (self.query is None) == (self.messages is None):
            raise ValueError("give either query or messages")
        return self


class ScoreRequest(ScoreItem):
    """`POST /score` of one answer."""

    priority: Priority = 0
    """Of requests that wait, those with a higher one are computed first."""


class ScoreBatch(_Strict):
    """`POST /score` of several answers; `scorer` and `seed` are of items without them."""

    items: list[ScoreItem] = Field(min_length=1, max_length=MOST_ITEMS)
    scorer: str | None = None
    seed: Seed = None
    priority: Priority = 0


def _form(body: Any) -> str:
    """Return which form a body has, so that errors are of that one alone."""
    is_batch = isinstance(body, ScoreBatch) or (isinstance(body, dict) and "items" in body)
    return BATCH if is_batch else ONE_ITEM


ScoreBody = Annotated[
    Annotated[ScoreRequest, Tag(ONE_ITEM)] | Annotated[ScoreBatch, Tag(BATCH)],
    Discriminator(_form),
]
"""Either form of `POST /score`."""
