"""Settings of Emu2's three stages, with upstream's defaults, and the system they make.

Defaults are those of baaivision/Emu (Emu2/emu/chat.py and diffusion.py) and of its README.
Imports no model code.

No model of the family interleaves: Chat was tuned on text only, Gen on images only. So each
step of an answer is Chat's text, then the image that Gen draws for that text, the task and
the first image of the question (generator_codes/emu2_inference.py of LanceZPF/OpenING).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from plait.generators.architectures import read_config
from plait.generators.base import Kind, Weights
from plait.generators.diffusion.designs import Architecture
from plait.generators.diffusion.settings import DiffusionSettings
from plait.generators.document import Content, Query, images_in
from plait.generators.errors import UsageError
from plait.generators.natives import assemble
from plait.generators.rounds import Continuation, ImagePrompt, Rounds
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.work import PROMPT_TOKENS, FigureRange, Work, answer_tokens
from plait.generators.writing import NativeSystem

CHAT = "BAAI/Emu2-Chat"
GEN = "BAAI/Emu2-Gen"

LAYERS_B = 32.102
"""Billions of parameters in the decoder layers, which are what quantisation shrinks."""
_LANGUAGE = read_config("emu2")["language"]

Quantization = Literal["int8", "int4"]
BYTES: Mapping[Quantization, float] = {"int8": 1.0, "int4": 0.5625}
"""Of a quantised weight; 4-bit ones share a float32 scale among 64."""


class Emu2Settings(ModelSettings):
    """Settings of both language models. Each has 36.9 billion parameters.

    Several visible GPUs share the decoder layers where `device` is `auto`.
    """

    params_b: float | None = unkeyed(36.9, gt=0)
    context: int | None = Field(default=None, ge=1)
    """Most positions of a sequence; by default the model's (2048)."""
    strip_text: bool = True
    """Strip white space beside special tokens, as the slow tokenizer of emu/lm.py does;
    the fast one that `AutoTokenizer` gave to the Hub's code keeps it."""
    quantization: Quantization | None = None
    """Decoder layers in 8 or 4 bits by bitsandbytes (LLM.int8(), and FP4 as upstream's
    `load_in_4bit`); embeddings, head and vision keep `dtype`."""

    def memory_estimate_gib(self, weights: Weights) -> float:
        """Return the weights, and the caches of a batch of full contexts."""
        if weights == "tiny" or self.params_b is None:
            return 0.0
        caches_gib = self.per_record_gib() * self.batch_size
        return self.weight_bytes * 1.05 / 2**30 + caches_gib

    @property
    def weight_bytes(self) -> float:
        """Size of the weights, of which quantisation shrinks the decoder layers."""
        whole = super().weight_bytes
        if self.quantization is None:
            return whole
        return whole - LAYERS_B * 1e9 * (self._width - BYTES[self.quantization])

    def per_record_gib(self) -> float:
        """Return the size of the caches of full contexts."""
        positions = self.context or _LANGUAGE["max_position_embeddings"]
        states = 2 * _LANGUAGE["num_hidden_layers"] * _LANGUAGE["hidden_size"]
        caches = positions * self.streams_per_record() * states * self._width
        return float(caches / 2**30)

    @property
    def _width(self) -> int:
        return 4 if self.dtype == "float32" else 2

    def streams_per_record(self) -> int:
        """Return the rows of the cache that one record takes."""
        return 1

    def _num_gpus(self, weights: Weights, estimate: float, gpu_gib: float) -> float:
        # One record has to fit; a batch whose caches do not is halved.
        one = self.model_copy(update={"batch_size": 1}).memory_estimate_gib(weights)
        return super()._num_gpus(weights, min(estimate, one), gpu_gib)


class Emu2DraftSettings(Emu2Settings):
    """Emu2-Chat, which reads text and images and writes text by beam search."""

    kind: ClassVar[Kind] = Kind.DRAFT
    stage: ClassVar[str] = "emu2-draft"
    target: ClassVar[str] = "plait.generators.emu2.draft:Emu2Draft"

    model: str = unkeyed(CHAT)
    """A Hub id or folder in the layout of `BAAI/Emu2-Chat`, or a folder with the native
    `Emu2-Chat_pytorch_model.bf16.bin` beside upstream's `emu/conf/llama_config` files."""
    batch_size: int = unkeyed(4, ge=1)
    template: Literal["native", "hf"] = "native"
    """`native` is emu/chat.py's, with a system message and spaces around the marks; `hf`
    that of the Hub's modeling_emu.py, without either."""
    system_message: str | None = None
    """Instead of the template's own. System turns of a request are put after it."""
    continuation: Continuation = "question"
    feed_images: bool = False
    """Whether they also read the answer's images; OpenING feeds back text only."""
    num_beams: int = Field(default=5, ge=1)
    max_new_tokens: int = Field(default=64, ge=1)
    """The README's and OpenING's; the code's own default is 10."""
    min_new_tokens: int = Field(default=0, ge=0)
    """Upstream's `min_len` less one, because its count began with an artificial `<s>`."""
    length_penalty: float = -1.0
    """Below 0 favours short answers."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Applies to tokens of the answer."""

    def streams_per_record(self) -> int:
        """Return one for each beam."""
        return self.num_beams

    def _work(self) -> Work:
        answer = answer_tokens(self.max_new_tokens)
        # `generate` of transformers searches, and launches layer by layer.
        sizes = {"streams": self.num_beams, "blocks": _LANGUAGE["num_hidden_layers"]}
        return self._decoding(PROMPT_TOKENS, answer, **sizes)


class Emu2ConditionSettings(Emu2Settings):
    """Emu2-Gen's language model, which turns a request into vectors for the UNet."""

    kind: ClassVar[Kind] = Kind.CONDITION
    stage: ClassVar[str] = "emu2-condition"
    target: ClassVar[str] = "plait.generators.emu2.condition:Emu2Condition"

    model: str = unkeyed(GEN)
    """A Hub id or folder in the layout of `BAAI/Emu2-Gen`, or a folder with the native
    `Emu2-Gen_pytorch_model.bf16.safetensors` beside upstream's llama_config files."""

    def _work(self) -> Work:
        """A vector is a step; it is stored with the one that guidance leads away from."""
        vectors = read_config("emu2")["queries"]["gen"]
        payload_bytes = 2 * vectors * read_config("emu2")["vision"]["width"] * self._width
        steps = FigureRange.exact(vectors)
        return self._decoding(PROMPT_TOKENS, steps, payload_bytes=payload_bytes)


class Emu2RenderSettings(DiffusionSettings):
    """Emu2-Gen's UNet and autoencoder, which draw from the vectors."""

    stage: ClassVar[str] = "emu2-render"
    target: ClassVar[str] = "plait.generators.emu2.render:Emu2Render"

    model: str = unkeyed(GEN)
    """As for conditioning; a native folder may hold `unet/` and `vae/` configs."""
    params_b: float | None = unkeyed(2.93, gt=0)
    architecture: Architecture | None = "emu2"
    steps: int | None = Field(default=50, ge=1)
    guidance: float | None = Field(default=3.0, ge=0)
    height: int | None = Field(default=1024, ge=16, multiple_of=16)
    width: int | None = Field(default=1024, ge=16, multiple_of=16)
    original_size: tuple[int, int] = (1024, 1024)
    """Height and width that the UNet reads as those before any scaling; upstream's
    stay the same whatever is drawn."""
    variant: str | None = "bf16"
    batch_size: int = unkeyed(4, ge=1)

    @model_validator(mode="after")
    def _without_text(self) -> Emu2RenderSettings:
        unread = ("prompt_prefix", "negative_prompt", "max_sequence_length")
        unusable = [name for name in unread if getattr(self, name) not in (None, "")]
        if unusable:
            raise ValueError(f"Emu2's UNet reads vectors, not text: omit {unusable[0]}")
        return self


class Emu2Composition(Rounds):
    """How a step's image is requested; the defaults are OpenING's.

    OpenING takes the reference's number of steps.
    """

    image_prompt: ImagePrompt = (
        "The prompt for this generation is: {text}. "
        "The context of this task is: {instruction}."
    )
    context_images: int = Field(default=1, ge=0)
    """How many of the query's images Gen sees, the first ones."""

    def context(self, query: Query) -> Content:
        """Return the query's first images."""
        return images_in(query.question)[: self.context_images]


def emu2(weights: Weights, overrides: Mapping[str, Any], gpu_gib: float) -> NativeSystem:
    """Return the system draft -> condition -> render; UsageError for unknown overrides."""
    stages = {
        "draft": Emu2DraftSettings(),
        "condition": Emu2ConditionSettings(),
        "render": Emu2RenderSettings(),
        "compose": Emu2Composition(),
    }
    if shared := {"model", "revision"} & set(overrides):
        name = min(shared)
        raise UsageError(
            f"{name} in models.emu2: Emu2-Chat and Emu2-Gen are two checkpoints; set "
            f"draft.{name} for the one, condition.{name} and render.{name} for the other"
        )
    labels = {"draft": "emu2-chat", "condition": "emu2-gen-lm", "render": "emu2-gen-unet"}
    return assemble("emu2", stages, weights, overrides, gpu_gib, labels=labels)
