"""What reward models on a Qwen-VL share: a head that reads the state of a token of its own.

HPSv3 (MizzenAI/HPSv3@d232ff8, MIT) came first, and EditReward
(TIGER-AI-Lab/EditReward@edb027e, MIT) took its program over. The head reads the hidden
state of a token that was added for it. Tokens of an image are numbered one by one like
those of a text, as these models were trained, and not by rows and columns as Qwen-VL's are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL import Image as Pillow
from torch import Tensor, nn
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from plait.generators.architectures import config_of
from plait.generators.architectures.random_weights import configuration_of, processor_of
from plait.generators.base import Failure, Weights
from plait.generators.checkpoints import with_revision
from plait.generators.document import Image
from plait.generators.errors import CheckpointError
from plait.generators.images import ImageError, decode
from plait.generators.loading.files import Files, config_of_class, in_safetensors, read_json
from plait.generators.loading.strict import (
    device_of,
    empty_model,
    fill,
    identical,
    load_processor,
    randomise,
    rebuild_rotary,
    rename,
)
from plait.generators.released import read_published
from plait.scorers.preferences import QwenRewardSettings

REWARD = "<|Reward|>"
ENDING = f"\nPlease provide the overall ratings of this image: {REWARD}\n\nEND\n"
"""`prompt_with_special_token` of both programs; its white space counts."""
PIXELS = 256 * 28 * 28
"""Of every image, as near as multiples of SIDE on both sides come to it."""
SIDE = 28
"""Pixels along a side of what becomes one token."""
SEED = 7
_RENAMES = [
    (r"^visual\.", "model.visual."),
    (r"^model\.(?!language_model\.|visual\.)", "model.language_model."),
]
"""From the names of transformers 4.45, by which HPSv3 is published, to today's, by which
EditReward is."""


def reward_head(width: int) -> nn.Sequential:
    """Return a head: `width` numbers to the mean of a reward and the log of its deviation.

    The dropout does nothing here, but the stored weights count it as a layer.
    """
    return nn.Sequential(
        nn.Linear(width, 1024),
        nn.ReLU(),
        nn.Dropout(0.05),
        nn.Linear(1024, 16),
        nn.ReLU(),
        nn.Linear(16, 2),
    )


class QwenRewardModel(nn.Module, ABC):
    """A Qwen-VL without its language-modelling head; subclasses add heads in float32."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.model = empty_model("AutoModel", config)
        self.width: int = config.text_config.hidden_size

    @property
    @abstractmethod
    def heads(self) -> Mapping[str, nn.Module]:
        """The heads, by what the names of their stored weights begin with."""

    def rewards(self, head: nn.Module, inputs: Any, reward: int) -> Tensor:
        """Return (texts, 2), the outputs of a head at the token `reward` of each text."""
        ids = inputs["input_ids"]
        mask = inputs["attention_mask"]
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        states = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions.expand(3, -1, -1),
            pixel_values=inputs["pixel_values"],
            image_grid_thw=inputs["image_grid_thw"],
        ).last_hidden_state
        outputs: Tensor = head(states[ids == reward].float())
        return outputs


ModelT = TypeVar("ModelT", bound=QwenRewardModel)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a head is given: images, and the text that marks their places before its own."""

    images: tuple[Pillow.Image, ...]
    text: str


class QwenRewardStage:
    """The model and its processor: from images and a text to the outputs of a head."""

    def __init__(
        self, model: QwenRewardModel, processor: Any, device: torch.device
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.device = device
        qwen = self.model.model
        rebuild_rotary(qwen.language_model, qwen.config.text_config, device)
        rebuild_rotary(qwen.visual, qwen.config.vision_config, device)
        self._processor = processor
        self._tokenizer = processor.tokenizer
        self._tokenizer.padding_side = "right"
        self._reward = self._tokenizer.convert_tokens_to_ids(REWARD)
        self._context = qwen.config.text_config.max_position_embeddings

    @property
    def dtype(self) -> torch.dtype:
        """In which the language model computes."""
        found: torch.dtype = self.model.model.dtype
        return found

    def prompt(
        self, images: Sequence[Image], instruction: str, asked: str
    ) -> Prompt | Failure:
        """Return what is given for some images and a text in its instruction.

        A failure for a broken image, one over 200 times as long as wide, and a text that is
        too long.
        """
        # All of Qwen-VL's control tokens begin so: in a question they are plain text.
        told = instruction.replace("{text_prompt}", asked.replace("<|", "< |")) + ENDING
        shown = [{"type": "image"}] * len(images)
        turns = [{"role": "user", "content": [*shown, {"type": "text", "text": told}]}]
        text = self._processor.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        tokens = len(self._tokenizer.encode(text)) + len(images) * PIXELS // SIDE**2
        if tokens > self._context:
            seen = "its image" if len(images) == 1 else "its images"
            return Failure(
                f"the question and {seen} have about {tokens} tokens; the model reads "
                f"{self._context}"
            )
        try:
            return Prompt(tuple(map(_resize, images)), text)
        except (ImageError, ValueError) as error:
            return Failure(str(error))

    def outputs(
        self, head: nn.Module, prompts: Sequence[Prompt]
    ) -> tuple[list[list[float]], list[int]]:
        """Return the outputs of a head for each prompt, and how many tokens it has."""
        inputs = self._processor(
            text=[prompt.text for prompt in prompts],
            images=[list(prompt.images) for prompt in prompts],
            padding=True,
            return_tensors="pt",
        ).to(self.device)
        with torch.inference_mode():
            outputs = self.model.rewards(head, inputs, self._reward).double().tolist()
        return outputs, inputs["attention_mask"].sum(1).tolist()


def _resize(image: Image) -> Pillow.Image:
    pixels = decode(image)
    height, width = smart_resize(pixels.height, pixels.width, SIDE, PIXELS, PIXELS)
    # By Pillow's bicubic filter, as in the programs' own reader.
    return pixels.resize((width, height), Pillow.Resampling.BICUBIC)


def read_instructions(
    settings: QwenRewardSettings, digests: Mapping[str, str], name: str, source: str
) -> dict[str, str]:
    """Return the instructions in the user's copy; CheckpointError where there is none."""
    if settings.instruction is None:
        raise CheckpointError(
            f"{name} needs the instruction that it was trained with: set "
            f"models.{name}.instruction to your copy of {source}"
        )
    return read_published(Path(settings.instruction), digests)


def load_published(
    build: Callable[[Any], ModelT], settings: QwenRewardSettings, file: str, kind: str
) -> tuple[ModelT, Any]:
    """Load a checkpoint and its base's processor; CheckpointError where it does not fit.

    `kind` is the class of the base's configuration.
    """
    files = Files(settings.model, settings.revision)
    files.refuse_adapter()
    source = files.need(file)
    base, revision = with_revision(settings.base)
    about = Files(base, revision).need("config.json")
    config = config_of_class(kind, read_json(about), str(about))
    processor = load_processor(base, revision)
    processor.tokenizer.add_tokens([REWARD], special_tokens=True)
    # The published weights have no rows beyond the tokenizer's, as Qwen-VL's have.
    config.text_config.vocab_size = len(processor.tokenizer)
    model = build(config)
    put = partial(fill, source=str(source), device=device_of(settings.device))
    prefixes = tuple(model.heads)
    body = in_safetensors(source, lambda name: not name.startswith(prefixes))
    put(
        model.model,
        ((rename(name, _RENAMES), tensor) for name, tensor in body),
        identical(model.model.state_dict(), "model."),
        dtype=getattr(torch, settings.dtype),
        tolerated=("lm_head",),
    )
    for prefix, head in model.heads.items():
        put(
            head,
            in_safetensors(source, _begins_with(prefix)),
            identical(head.state_dict(), prefix),
            dtype=torch.float32,
        )
    return model, processor


def _begins_with(prefix: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(prefix)


def load_random(
    build: Callable[[Any], ModelT],
    settings: QwenRewardSettings,
    weights: Weights,
    architecture: str,
) -> tuple[ModelT, Any]:
    """Return the model of an architecture with random weights, and its processor."""
    tiny = weights == "tiny"
    files = config_of(architecture, tiny=tiny)
    words = files["tokenizer"]
    files["tokenizer"] = {**words, "specials": [*words["specials"], REWARD]}
    processor = processor_of(files)
    config = configuration_of(files, processor.tokenizer)
    config.text_config.vocab_size = len(processor.tokenizer)
    model = build(config)
    dtype = torch.float32 if tiny else getattr(torch, settings.dtype)
    randomise(model, device=device_of(settings.device), dtype=dtype, seed=SEED)
    for head in model.heads.values():
        head.float()
    return model, processor
