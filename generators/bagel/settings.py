"""Settings of BAGEL's three stages, with upstream's defaults, and the system they make.

Defaults are those of `InterleaveInferencer.interleave_inference` (inferencer.py of
ByteDance-Seed/Bagel@056b5fd), unless said otherwise. Imports no model code.

A call of the authors' program writes text or draws one image. So an answer is the text that
the model writes to the query, and the image that it draws to it, or rounds of both
(`plait.generators.rounds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from plait.generators.architectures import read_config
from plait.generators.base import Kind, Weights
from plait.generators.content import join_texts
from plait.generators.diffusion.flops import DECODER_FLOPS_PER_PIXEL
from plait.generators.diffusion.settings import DECODING_BYTES
from plait.generators.document import (
    Content,
    Image,
    ImageRequest,
    Query,
    Text,
    Turn,
    images_in,
)
from plait.generators.natives import assemble
from plait.generators.rounds import Rounds
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.system import System
from plait.generators.work import (
    DRAWN_S,
    NOTHING,
    PROMPT_TOKENS,
    FigureRange,
    Work,
    answer_tokens,
    thought_tokens,
    usage_of_drawing,
)

BAGEL = "ByteDance-Seed/BAGEL-7B-MoT"
NAME = "bagel-7b-mot"
_SIZES = read_config(NAME)
_LONGEST_READ = 6000
"""Positions of an image of 980 x 980 pixels that is seen (4902), and a text."""
_TOKEN_PIXELS = 16
"""Pixels along a side of a latent patch."""
_LATENT_B = 6.53
"""Billions of parameters that a latent patch goes through."""
TINY_TIMESTEPS = 4
"""Tiny weights draw by at most so many."""

Renorm = Literal["global", "channel", "text_channel"]


class BagelSettings(ModelSettings):
    """Settings of every stage."""

    spans_gpus: ClassVar[bool] = False
    index: ClassVar[str | None] = "llm_config.json"

    model: str = unkeyed(BAGEL)
    """A Hub id or folder in the layout of `ByteDance-Seed/BAGEL-7B-MoT`."""


class BagelLanguageSettings(BagelSettings):
    """Settings of the two stages that run the language model."""

    context: int | None = Field(default=None, ge=1)
    """Most positions of a sequence; by default the model's (32,768)."""
    think: bool = False
    """Whether it thinks before it answers or draws. A thought is noted, and is no part of
    an answer."""
    temperature: float = Field(default=0.0, ge=0)
    """0 decodes greedily; upstream's demonstration samples at 0.3."""

    def cache_gib(self, positions: int) -> float:
        """Return the size of keys and values of so many positions."""
        language = _SIZES["language"]
        size = language["hidden_size"] // language["num_attention_heads"]
        values = 2 * language["num_hidden_layers"] * language["num_key_value_heads"] * size
        return float(positions * values * (4 if self.dtype == "float32" else 2) / 2**30)


class BagelDraftSettings(BagelLanguageSettings):
    """The language model with its image encoder, which writes text.

    It reads texts and images in their order, without names of roles: the authors' program
    knows none, and marks the beginning and the end of every text.
    """

    kind: ClassVar[Kind] = Kind.DRAFT
    stage: ClassVar[str] = "bagel-draft"
    target: ClassVar[str] = "plait.generators.bagel.draft:BagelDraft"

    params_b: float | None = unkeyed(8.05, gt=0)
    max_new_tokens: int = Field(default=999, ge=1)
    """Upstream's 1000 (`max_think_token_n`) counts the mark at the beginning too."""
    feed_images: bool = True
    """Whether later rounds also read the answer's images."""

    def is_seeded(self) -> bool:
        """Return whether text is sampled."""
        return self.temperature > 0

    def per_record_gib(self) -> float:
        """Return the size of the cache of a prompt with a large image, and its answer."""
        most = _LONGEST_READ + self.max_new_tokens
        return self.cache_gib(min(most, self.context or most))

    def _work(self) -> Work:
        most = self.max_new_tokens
        written = thought_tokens(most) if self.think else answer_tokens(most)
        return self._decoding(PROMPT_TOKENS, written, most=most)


class BagelConditionSettings(BagelLanguageSettings):
    """The language model with both sets of weights, which draws latents.

    Guidance (arXiv:2505.14683) compares what the whole request leads to with what it does
    without its last text (`cfg_text_scale`), and with its texts alone (`cfg_img_scale`).
    """

    kind: ClassVar[Kind] = Kind.CONDITION
    stage: ClassVar[str] = "bagel-condition"
    target: ClassVar[str] = "plait.generators.bagel.condition:BagelCondition"
    seeded: ClassVar[bool] = True

    params_b: float | None = unkeyed(14.1, gt=0)
    batch_size: int = unkeyed(2, ge=1)
    height: int | None = Field(default=None, ge=16, multiple_of=16)
    """Of an image that is drawn from text alone, by default the model's largest (1024);
    another has the size of the last image that the request shows, resized."""
    width: int | None = Field(default=None, ge=16, multiple_of=16)
    num_timesteps: int = Field(default=50, ge=2)
    """Times from 1 to 0, both among them: the network is evaluated at all but the last, so
    that 50 are 49 steps. 24 is the default of `Bagel.generate_image`."""
    timestep_shift: float = Field(default=3.0, gt=0)
    """Above 1 there are more steps at the noisy end."""
    cfg_text_scale: float = Field(default=3.0, ge=1)
    """1 for no guidance at all; the demonstration has 4."""
    cfg_img_scale: float = Field(default=1.5, ge=1)
    """1 for none; 2 in the demonstration's edits. Has no effect where `cfg_text_scale` is
    1."""
    cfg_interval: tuple[float, float] = (0.4, 1.0)
    """Steps are guided at times above the first and up to the second."""
    cfg_renorm_min: float = Field(default=0.0, ge=0, le=1)
    """Least factor by which a guided velocity is scaled down to the length of the plain
    one; 1 does not scale."""
    cfg_renorm_type: Renorm = "global"
    """Over what lengths are taken: the whole image, each patch (`channel`), or each patch
    and only text guidance (`text_channel`, of the demonstration's edits)."""
    max_think_tokens: int = Field(default=999, ge=1)
    """Most tokens of a thought."""

    @field_validator("cfg_interval")
    @classmethod
    def _check_interval(cls, interval: tuple[float, float]) -> tuple[float, float]:
        low, high = interval
        if not 0 <= low <= high <= 1:
            raise ValueError(
                f"({low:g}, {high:g}) is not a valid interval of times: 0 <= first <= "
                "second <= 1"
            )
        return interval

    def key_fields(self, weights: Weights) -> dict[str, Any]:
        """Return the fields that enter the key; tiny weights draw in few steps."""
        settings = super().key_fields(weights)
        if weights != "tiny":
            return settings
        return settings | {
            "num_timesteps": min(self.num_timesteps, TINY_TIMESTEPS),
        }

    @property
    def streams(self) -> int:
        """The most contexts that one image has: the whole, and one for each guidance."""
        if self.cfg_text_scale <= 1:
            return 1
        return 3 if self.cfg_img_scale > 1 else 2

    @property
    def _patches(self) -> int:
        largest = _SIZES["side"] * _TOKEN_PIXELS
        pixels = (self.height or largest) * (self.width or largest)
        return int(pixels // _TOKEN_PIXELS**2)

    def per_record_gib(self) -> float:
        """Return the size of the caches of an edit, and of what its image is drawn in."""
        # An image of the request is in its context twice, as latents and as it is seen.
        most = _LONGEST_READ + 2 * self._patches
        language = _SIZES["language"]
        inner = 3 * language["intermediate_size"] + 8 * language["hidden_size"]
        width = 4 if self.dtype == "float32" else 2
        states_gib = float(self._patches * inner * width / 2**30)
        return self.streams * (self.cache_gib(most) + states_gib)

    def _work(self) -> Work:
        """Return the evaluations of the network; one of two contexts, or of three."""
        steps = self.num_timesteps - 1
        guided = sum(self._is_guided(time) for time in self.timesteps()[:-1])
        fewer = min(self.streams, 2)
        evaluations = FigureRange.between(
            steps + guided * (fewer - 1), steps + guided * (self.streams - 1)
        )
        language = _SIZES["language"]
        attended = 4 * language["num_hidden_layers"] * language["hidden_size"]
        each = self._patches * (2e9 * _LATENT_B + attended * self._patches)
        thought = thought_tokens(self.max_think_tokens) if self.think else NOTHING
        payload = FigureRange.exact(4.0 * self._patches * 64)
        return Work(
            weight_bytes=self.weight_bytes,
            flops=evaluations * each + PROMPT_TOKENS * (2e9 * _LATENT_B),
            passes=steps,
            blocks=language["num_hidden_layers"],
            steps=thought,
            step_flops=2e9 * _LATENT_B,
            usage={"steps": FigureRange.exact(steps), "disk_bytes": payload},
        )

    def timesteps(self) -> list[float]:
        """Return the times from 1 to 0, shifted (`Bagel.generate_image`)."""
        count = self.num_timesteps - 1
        shift = self.timestep_shift
        times: list[float] = []
        for step in range(count + 1):
            time = 1 - step / count
            times.append(shift * time / (1 + (shift - 1) * time))
        return times

    def _is_guided(self, time: float) -> bool:
        low, high = self.cfg_interval
        return low < time <= high


class BagelRenderSettings(BagelSettings):
    """The autoencoder's decoder, which turns latents into pixels. Always in float32."""

    kind: ClassVar[Kind] = Kind.RENDER
    stage: ClassVar[str] = "bagel-render"
    target: ClassVar[str] = "plait.generators.bagel.render:BagelRender"

    params_b: float | None = unkeyed(0.0495, gt=0)
    dtype: Literal["float32"] = "float32"

    def per_record_gib(self) -> float:
        """Return the memory for decoding an image of the largest size."""
        pixels = (_SIZES["side"] * _TOKEN_PIXELS) ** 2
        return float(pixels * DECODING_BYTES / 2**30)

    def _work(self) -> Work:
        """Its decoder has the widths of Stable Diffusion's, likewise in float32."""
        pixels = (_SIZES["side"] * _TOKEN_PIXELS) ** 2
        return Work(
            weight_bytes=self.weight_bytes,
            flops=FigureRange.exact(2 * pixels * DECODER_FLOPS_PER_PIXEL),
            cpu_s=DRAWN_S,
            usage=usage_of_drawing(pixels),
        )


class BagelComposition(Rounds):
    """From what an answer's image is drawn."""

    drawn_from: Literal["query", "text"] = "query"
    """`query`: from the texts and images of the conversation, in their order, as the
    authors' program is given them. `text`: from the query's images and `image_prompt`."""

    @model_validator(mode="after")
    def _follows_the_text(self) -> BagelComposition:
        if self.rounds > 1 and self.drawn_from == "query":
            raise ValueError(
                f"{self.rounds} rounds would draw {self.rounds} images of the same query; "
                "set drawn_from to 'text'"
            )
        return self

    def context(self, query: Query) -> Content:
        """Return the query's images."""
        return images_in(query.question)

    def request(self, text: str, query: Query) -> ImageRequest:
        """Return the request for the image of a round."""
        if self.drawn_from == "text":
            return super().request(text, query)
        return ImageRequest(context=terms_of(query.turns))


def terms_of(turns: Iterable[Turn]) -> Content:
    """Return what the model reads of a conversation: texts and images, one after another.

    Neighbouring texts of a turn are one; texts of white space are left out.
    """
    terms: list[Text | Image] = []
    for turn in turns:
        for segment in join_texts(turn.content):
            if not isinstance(segment, Text) or segment.text.strip():
                terms.append(segment)
    return tuple(terms)


def bagel_7b_mot(weights: Weights, overrides: Mapping[str, Any], gpu_gib: float) -> System:
    """Return BAGEL-7B-MoT; UsageError for overrides that no stage takes."""
    stages = {
        "draft": BagelDraftSettings(),
        "condition": BagelConditionSettings(),
        "render": BagelRenderSettings(),
        "compose": BagelComposition(),
    }
    return assemble(NAME, stages, weights, overrides, gpu_gib)
