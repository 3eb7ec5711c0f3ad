"""Settings of LVLMs: local checkpoints, and endpoints. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, field_validator, model_validator

from plait.generators.base import Kind, Placement, StageSpec, Weights
from plait.generators.batches import BATCH_PRICE
from plait.generators.extras import Extra
from plait.generators.settings import ModelSettings, StageSettings, unkeyed
from plait.generators.work import (
    PROMPT_TOKENS,
    Work,
    answer_tokens,
    thought_tokens,
    usage_of_writing,
)
from plait.pipelines.servers.settings import ENGINE_FIELDS, EngineModelSettings

OPENAI_URL = "https://api.openai.com/v1"
"""Where requests go by default."""

_REPLY_BYTES = 128 << 20
_TEXT_BYTES = 8 << 20
_TOKEN_BYTES = 4096
"""A token has some bytes of text; servers may add what else they thought of (logprobs)."""
_HANDING_IN_S = 86_400.0
"""Longest time in which batches are handed in, or collected: files may be many."""
_NEW_TOKENS = 1024
_TINY_NEW_TOKENS = 48


class ChatSettings(EngineModelSettings):
    """Any `AutoModelForImageTextToText` checkpoint with a chat template.

    It is run by plait's own stage, or by an `engine` behind a server that plait starts.
    """

    kind: ClassVar[Kind] = Kind.DRAFT
    stage: ClassVar[str] = "vision-language-model"
    target: ClassVar[str] = "plait.pipelines.vlm.stage:VisionLanguageModel"
    index: ClassVar[str | None] = "config.json"
    placed: ClassVar[frozenset[str]] = EngineModelSettings.placed | ENGINE_FIELDS

    engine: Literal["vllm", "sglang"] | None = unkeyed(None)
    """Program that runs the model; None for plait's own stage."""

    batch_size: int = unkeyed(16, ge=1)
    """Requests answered at once. A CPU writes more tokens a second with 64; GPUs do too
    where their memory allows it."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Longest answer; by default 1024 tokens, 48 with `tiny` weights."""
    temperature: float = Field(default=0.0, ge=0)
    """0 decodes greedily; above 0 text is sampled with the record's own seed."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """When sampling: only the likeliest tokens that sum to this probability."""
    top_k: int = Field(default=0, ge=0)
    """When sampling: only this many of the likeliest tokens; 0 for all."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Divides the scores of earlier tokens (Keskar et al. 2019, section 4.1)."""
    system: str | None = None
    """Text of the system turn, before any that the request has."""
    max_images: int | None = Field(default=None, ge=0)
    """Requests with more images are skipped; None for no limit."""
    min_pixels: int | None = Field(default=None, ge=1)
    """Smaller images are enlarged (models of dynamic resolution only)."""
    max_pixels: int | None = Field(default=None, ge=1)
    """Larger images are scaled down; None for the checkpoint's own limit."""
    max_input_tokens: int | None = Field(default=None, ge=1)
    """Longer requests fail; by default they may fill the model's context."""
    rows: int = unkeyed(64, ge=1)
    """Most answers of a batch written at a time by models that streams serve (Qwen2-VL,
    LLaVA-NeXT); others of the batch take the place of those that end."""
    device_map: Literal["auto", "none"] = unkeyed("auto")
    """`auto` spreads the model over all visible GPUs where there are several."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        low = self.min_pixels
        high = self.max_pixels
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_pixels {low} is more than max_pixels {high}")
        return self

    def new_tokens(self, weights: Weights) -> int:
        """Return the longest answer in tokens."""
        default = _TINY_NEW_TOKENS if weights == "tiny" else _NEW_TOKENS
        return default if self.max_new_tokens is None else self.max_new_tokens

    def key_fields(self, weights: Weights) -> dict[str, Any]:
        """As for every model, with the length of the answer made explicit."""
        return super().key_fields(weights) | {"max_new_tokens": self.new_tokens(weights)}

    def is_seeded(self) -> bool:
        """Return whether text is sampled."""
        return self.temperature > 0

    def _work(self) -> Work:
        most = self.new_tokens("pretrained")
        return self._decoding(PROMPT_TOKENS, answer_tokens(most), most=most)


class GeneratedImagesSettings(ModelSettings):
    """Images by any class of transformers whose `output_modalities` have `image`.

    None stands for what is published with the model's class.
    """

    kind: ClassVar[Kind] = Kind.RENDER
    stage: ClassVar[str] = "generated-images"
    target: ClassVar[str] = "plait.pipelines.vlm.images:GeneratedImages"
    seeded: ClassVar[bool] = True

    batch_size: int = unkeyed(4, ge=1)
    """Of Emu3, whose images are drawn together; others are drawn one at a time."""
    guidance: float | None = Field(default=None, ge=1)
    """Scale of classifier-free guidance: Janus 5, Emu3 3; 1 for none."""
    greedy: bool = False
    temperature: float = Field(default=1.0, gt=0)
    top_k: int | None = Field(default=None, ge=0)
    """Only so many of the likeliest codes: Emu3 2048, others all, which is 0."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    prompt_suffix: str | None = None
    """Put after every prompt; Emu3 has one."""
    negative_prompt: str | None = None
    """What guidance leads away from (Emu3 alone)."""
    ratio: str = Field(default="1:1", pattern=r"^\d+:\d+$")
    """Width to height (Emu3 alone)."""
    image_area: int = Field(default=518_400, ge=64)
    """Pixels of an image (Emu3 alone)."""


class ServerSettings(StageSettings):
    """A model behind a server: where it is, and what its requests may take and cost.

    Result keys name the model by `model` and the server: host, port and path of its URL,
    or `server` where the address changes from run to run.
    """

    url_form: ClassVar[str] = "end in the API's path, such as /v1"
    """What a right `base_url` does, for people."""
    account_variables: ClassVar[Mapping[str, str]] = {
        "OPENAI_ORG_ID": "openai-organization",
        "OPENAI_PROJECT_ID": "openai-project",
    }
    """Environment variables that name the caller's account, and the headers they are sent
    in."""

    model: str
    """As the server names it."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Fields beyond the documented ones, sent unchanged."""

    base_url: str | None = unkeyed(None)
    """By default `OPENAI_BASE_URL`, else OpenAI's own."""
    server: str | None = unkeyed(None)
    """Stands for the URL in result keys, for a server whose address changes."""
    api_key_env: str = unkeyed("OPENAI_API_KEY")
    """Environment variable that holds the key; the key itself is never stored."""
    concurrency: int = unkeyed(16, ge=1)
    """Requests in flight at the endpoint."""
    timeout_s: float = unkeyed(300.0, gt=0)
    """One attempt, from connecting to the last byte of the reply."""
    connect_timeout_s: float = unkeyed(10.0, gt=0)
    max_attempts: int = unkeyed(8, ge=1)
    """How often a request is sent before it counts as failed."""
    give_up_s: float = unkeyed(900.0, gt=0)
    """No attempt begins later than this after the first one."""
    backoff_s: float = unkeyed(1.0, gt=0)
    """First wait between attempts; doubles each time, with jitter."""
    max_total_tokens: int | None = unkeyed(None, ge=1)
    """Input and output tokens after which one stage of a run directory sends no more
    requests, whatever worker or command used them; raise it to go on."""
    price_per_million_input: float | None = unkeyed(None, ge=0)
    price_per_million_output: float | None = unkeyed(None, ge=0)
    max_cost: float | None = unkeyed(None, gt=0)
    """Cost after which one stage of a run directory sends no more, in the currency of the
    prices; likewise."""

    batch_size: int = unkeyed(1, ge=1)
    workers: int | None = unkeyed(1, ge=1)
    num_gpus: float | None = unkeyed(0.0, ge=0)
    num_cpus: float = unkeyed(0.1, ge=0)

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, url: str | None) -> str | None:
        return url if url is None else plain_url(url)

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        if self.max_cost is not None and not self.prices_tokens:
            raise ValueError(
                "max_cost needs price_per_million_input and price_per_million_output"
            )
        return self

    @property
    def url(self) -> str:
        """Base URL that requests go to."""
        return self.base_url or plain_url(os.environ.get("OPENAI_BASE_URL") or OPENAI_URL)

    @property
    def host(self) -> str:
        """Host that requests go to."""
        return urlsplit(self.url).hostname or ""

    def headers(self, key: str) -> dict[str, str]:
        """Return what names the caller in each request."""
        headers = {"authorization": f"Bearer {key}"}
        for variable, header in self.account_variables.items():
            value = os.environ.get(variable, "").strip()
            if value:
                headers[header] = value
        return headers

    @property
    def prices_tokens(self) -> bool:
        """Whether it is known what tokens cost."""
        return None not in (self.price_per_million_input, self.price_per_million_output)

    @property
    def most_reply_bytes(self) -> int:
        """Longer replies are refused; several images of 4096 x 4096 pixels fit."""
        return _REPLY_BYTES

    @property
    def checked(self) -> str:
        """What to check where the server does not accept a request, for people."""
        return "model, max_tokens_field, temperature and extra_body"

    def cost_of(self, usage: Mapping[str, float]) -> float | None:
        """Return what a usage costs, None where a price or a count is not known.

        Cached input counts at the full price, so the cost is never too low.
        """
        price_in = self.price_per_million_input
        price_out = self.price_per_million_output
        read = usage.get("input_tokens")
        written = usage.get("output_tokens")
        if price_in is None or price_out is None or read is None or written is None:
            return None
        return (read * price_in + written * price_out) / 1e6

    def identity(self, weights: Weights) -> str:
        """Return the server; the model's name is one of the keyed settings."""
        parts = urlsplit(self.url)
        return f"endpoint:{self.server or parts.netloc + parts.path}"

    def options(self, weights: Weights) -> dict[str, Any]:
        """As for every stage, with the URL that this process resolved."""
        return super().options(weights) | {"base_url": self.url}

    def placement(self, weights: Weights, gpu_gib: float) -> Placement:
        """As for every stage, with the endpoint that its limit is shared by."""
        placement = super().placement(weights, gpu_gib)
        # First come first served: nothing is batched, and neighbours (one query's answers
        # before a judge) begin alike, which a server's prefix cache serves.
        return replace(
            placement,
            endpoint=self.url,
            concurrency=self.concurrency,
            longest_first=False,
        )

    def spec(self, name: str, weights: Weights, gpu_gib: float = 80.0) -> StageSpec:
        """As for every stage; `weights` say nothing about an endpoint."""
        spec = super().spec(name, weights, gpu_gib)
        options = dict(spec.options)
        options.pop("weights", None)
        return replace(spec, weights=None, options=options, secrets=(self.api_key_env,))


class BatchedSettings(ServerSettings):
    """A model behind a server that also takes requests in batches, at half the price."""

    batch_api: bool = unkeyed(False)
    """Whether a run hands requests in to a batch of the provider: at half the price, within
    a day, collected by running the same command again."""
    batch_requests: int = unkeyed(50_000, ge=1)
    """Most requests in one batch."""
    batch_megabytes: float = unkeyed(200.0, gt=0)
    """Largest file of one batch, in 10^6 bytes."""

    def cost_of(self, usage: Mapping[str, float]) -> float | None:
        """As for every server, at the price of a batch where requests go into one."""
        cost = super().cost_of(usage)
        return cost * BATCH_PRICE if self.batch_api and cost is not None else cost

    def placement(self, weights: Weights, gpu_gib: float) -> Placement:
        """As for every server; where requests go into a batch, as many as it takes."""
        placement = super().placement(weights, gpu_gib)
        if not self.batch_api:
            return placement
        return replace(
            placement,
            batch_api=True,
            batch_size=self.batch_requests,
            concurrency=1,
            batch_timeout_s=_HANDING_IN_S,
        )


class ConversationSettings(ServerSettings):
    """A model behind a server that answers conversations: what it is sent, and how."""

    kind: ClassVar[Kind] = Kind.DRAFT

    temperature: float | None = Field(default=None, ge=0)
    """None for the server's own, or where it accepts none (reasoning models)."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest answer in tokens; None for the server's own limit."""
    system: str | None = None
    """Text of the system turn, before any that the request has."""
    max_images: int | None = Field(default=None, ge=0)
    """Requests with more images are skipped; None for no limit."""
    image_detail: Literal["auto", "low", "high"] = "auto"
    image_max_side: int = Field(default=2048, ge=16)
    """Images with a longer side are scaled down, in pixels."""
    image_format: Literal["png", "jpeg"] = "png"
    """Encoding of images that cannot be sent unchanged."""
    control_tokens: tuple[str, ...] = ()
    """Tokens of the server's chat template to break in users' text, such as `<image>`;
    servers of open models (vLLM, SGLang) would read them as their own."""


class EndpointSettings(BatchedSettings, ConversationSettings):
    """A chat model behind an OpenAI-compatible endpoint."""

    stage: ClassVar[str] = "chat-endpoint"
    target: ClassVar[str] = "plait.pipelines.endpoints.chat:ChatEndpoint"

    temperature: float | None = Field(default=0.0, ge=0)
    """None where the server accepts none (reasoning models)."""
    max_tokens: int | None = Field(default=1024, ge=1)
    """Longest answer in tokens; None for the server's own limit."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The server's name for it; OpenAI's reasoning models accept only the second."""
    send_seed: bool = False
    """Whether to send the record's seed; not every server takes one."""

    @property
    def most_reply_bytes(self) -> int:
        """By the tokens asked for: a longer reply is not what was asked for."""
        if self.max_tokens is None:
            return _REPLY_BYTES
        return min(_REPLY_BYTES, _TEXT_BYTES + self.max_tokens * _TOKEN_BYTES)

    def is_seeded(self) -> bool:
        """Return whether text is sampled: repeats must then be separate records."""
        return self.temperature is None or self.temperature > 0

    def work(self, weights: Weights) -> Work | None:
        """Return the tokens of a request and its answer, where those have a limit."""
        if self.max_tokens is None:
            return None
        # Servers of models that think refuse a temperature or ignore it.
        if self.temperature is None:
            tokens = thought_tokens(self.max_tokens)
        else:
            tokens = answer_tokens(self.max_tokens)
        return Work(steps=tokens, usage=usage_of_writing(PROMPT_TOKENS, tokens))


class EngineChatSettings(EndpointSettings):
    """A chat model behind an engine's server that plait starts."""

    stage: ClassVar[str] = "chat-engine"
    target: ClassVar[str] = "plait.pipelines.endpoints.chat:EngineChat"
    extra: ClassVar[Extra | None] = "models"

    checkpoint: str = unkeyed("")
    """Folder or Hub id: its processor tells which tokens are the chat template's."""
    revision: str | None = unkeyed(None)
    parses_thoughts: bool = unkeyed(False)
    """Whether the engine tells thoughts from replies, by a parser that it was given."""


def plain_url(url: str) -> str:
    """Return `url` without its last slash; ValueError when it is no valid endpoint."""
    parts = urlsplit(url)
    # Reading the port raises ValueError for one that is no number up to 65535.
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("an endpoint's URL looks like https://HOST[:PORT]/PATH")
    if parts.username or parts.password or parts.query:
        raise ValueError(
            "an endpoint's URL must not hold a key; name its variable in api_key_env"
        )
    return url.rstrip("/")
