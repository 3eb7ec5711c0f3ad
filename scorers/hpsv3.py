"""The stage of HPSv3: a Qwen2-VL that reads a question beside an image, and a head.

As in inference.py, model/qwen2vl_trainer.py and dataset/data_collator_qwen.py of
MizzenAI/HPSv3@d232ff8 (MIT), whose instruction is read from the user's copy. The head reads
the hidden state of a token that was added for it. Tokens of an image are numbered one by
one like those of a text, as the reward model was trained, and not by rows and columns as
Qwen2-VL's are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image as Pillow
from torch import Tensor, nn
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from plait.generators.architectures import config_of
from plait.generators.architectures.random_weights import configuration_of, processor_of
from plait.generators.base import Failure, Outcome, Result, Weights
from plait.generators.checkpoints import with_revision
from plait.generators.content import answer_all
from plait.generators.document import Candidate, Document, Score
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
from plait.generators.overflow import SCORES, no_numbers
from plait.generators.released import read_published
from plait.scorers.preferences import Hpsv3Settings

REWARD = "<|Reward|>"
OWN = "Rate how good the image is, and how well it shows this: {text_prompt}\n"
"""The instruction to random weights, in our words."""
DIGESTS = {
    "INSTRUCTION": "0393599dad45a971903d1d62a3acf9bad3ccccdafa7f40f680523419e1f68b7a"
}
"""Of the instruction that the published weights were trained with."""
ENDING = f"\nPlease provide the overall ratings of this image: {REWARD}\n\nEND\n"
"""`prompt_with_special_token` there; its white space counts."""
PIXELS = 256 * 28 * 28
"""Of every image, as near as multiples of SIDE on both sides come to it."""
SIDE = 28
"""Pixels along a side of what becomes one token."""
SEED = 7
_HEAD = "rm_head."
_RENAMES = [
    (r"^visual\.", "model.visual."),
    (r"^model\.(?!language_model\.|visual\.)", "model.language_model."),
]
"""From the names of transformers 4.45, by which the weights are published, to today's."""


class RewardModel(nn.Module):
    """Qwen2-VL without its language-modelling head, and the head of rewards in float32."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.model = empty_model("AutoModel", config)
        # The dropout does nothing here, but the stored weights count it as a layer.
        self.rm_head = nn.Sequential(
            nn.Linear(config.text_config.hidden_size, 1024),
            nn.ReLU(),
            nn.Dropout(0.05),
            nn.Linear(1024, 16),
            nn.ReLU(),
            nn.Linear(16, 2),
        )

    def forward(self, inputs: Any, reward: int) -> Tensor:
        """Return (texts, 2), the outputs of the head at the token `reward` of each text."""
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
        outputs: Tensor = self.rm_head(states[ids == reward].float())
        return outputs


@dataclass(frozen=True, slots=True)
class _Prompt:
    image: Pillow.Image
    text: str


class Hpsv3:
    """Scores documents of one image each against their questions.

    The value is the mean of the reward; `parts["sigma"]` its standard deviation.
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = Hpsv3Settings(**settings)
        self._device = device_of(config.device)
        self._instruction = _read_instruction(config) if weights == "pretrained" else OWN
        loaded = (
            _load_published(config) if weights == "pretrained" else _random(config, weights)
        )
        self._model, self._processor = loaded
        qwen = self._model.eval().requires_grad_(False).model
        rebuild_rotary(qwen.language_model, qwen.config.text_config, self._device)
        rebuild_rotary(qwen.visual, qwen.config.vision_config, self._device)
        self._tokenizer = self._processor.tokenizer
        self._tokenizer.padding_side = "right"
        self._reward = self._tokenizer.convert_tokens_to_ids(REWARD)
        self._context = self._model.model.config.text_config.max_position_embeddings
        self._decoders = ThreadPoolExecutor(config.decoders, "decode")

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """One reward per document, in order; Failure for a broken image."""
        return answer_all(list(self._decoders.map(self._prompt, inputs)), self._scores)

    def _prompt(self, given: Candidate) -> _Prompt | Failure:
        # All of Qwen2-VL's control tokens begin so: in a question they are plain text.
        asked = Document(given.question).text.replace("<|", "< |")
        instruction = self._instruction.replace("{text_prompt}", asked)
        told = {"type": "text", "text": instruction + ENDING}
        turns = [{"role": "user", "content": [{"type": "image"}, told]}]
        text = self._processor.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        tokens = len(self._tokenizer.encode(text)) + PIXELS // SIDE**2
        if tokens > self._context:
            return Failure(
                f"the question and its image have about {tokens} tokens; the model reads "
                f"{self._context}"
            )
        try:
            image = decode(given.document.images[0])
            # Over 200 times as long as wide, it is a ValueError.
            height, width = smart_resize(image.height, image.width, SIDE, PIXELS, PIXELS)
            # By Pillow's bicubic filter, as in HPSv3's own reader.
            return _Prompt(image.resize((width, height), Pillow.Resampling.BICUBIC), text)
        except (ImageError, ValueError) as error:
            return Failure(str(error))

    def _scores(self, prompts: Sequence[_Prompt]) -> list[Outcome[Score]]:
        inputs = self._processor(
            text=[prompt.text for prompt in prompts],
            images=[[prompt.image] for prompt in prompts],
            padding=True,
            return_tensors="pt",
        ).to(self._device)
        with torch.inference_mode():
            outputs = self._model(inputs, self._reward).double().tolist()
        lengths = inputs["attention_mask"].sum(1).tolist()
        outcomes: list[Outcome[Score]] = []
        for (mean, spread), length in zip(outputs, lengths, strict=True):
            if math.isfinite(mean) and math.isfinite(spread):
                score = Score(mean, {"sigma": math.exp(spread)})
                outcomes.append(Result(score, {"input_tokens": length, "images": 1}))
            else:
                outcomes.append(no_numbers(SCORES, self._model.model.dtype))
        return outcomes


def _read_instruction(settings: Hpsv3Settings) -> str:
    """Return the instruction in the user's copy; CheckpointError where there is none."""
    if settings.instruction is None:
        raise CheckpointError(
            "hpsv3 needs the instruction that it was trained with: set "
            "models.hpsv3.instruction to your copy of hpsv3/dataset/data_collator_qwen.py "
            "from github.com/MizzenAI/HPSv3"
        )
    return read_published(Path(settings.instruction), DIGESTS)["INSTRUCTION"]


def _load_published(settings: Hpsv3Settings) -> tuple[RewardModel, Any]:
    """Load the checkpoint; CheckpointError where it does not fit."""
    files = Files(settings.model, settings.revision)
    files.refuse_adapter()
    source = files.need("HPSv3.safetensors")
    base, revision = with_revision(settings.base)
    about = Files(base, revision).need("config.json")
    config = config_of_class("Qwen2VLConfig", read_json(about), str(about))
    processor = load_processor(base, revision)
    processor.tokenizer.add_tokens([REWARD], special_tokens=True)
    # The published weights have no rows beyond the tokenizer's, as Qwen2-VL's have.
    config.text_config.vocab_size = len(processor.tokenizer)
    model = RewardModel(config)
    put = partial(fill, source=str(source), device=device_of(settings.device))
    body = in_safetensors(source, lambda name: not name.startswith(_HEAD))
    put(
        model.model,
        ((rename(name, _RENAMES), tensor) for name, tensor in body),
        identical(model.model.state_dict(), "model."),
        dtype=getattr(torch, settings.dtype),
        tolerated=("lm_head",),
    )
    put(
        model.rm_head,
        in_safetensors(source, lambda name: name.startswith(_HEAD)),
        identical(model.rm_head.state_dict(), _HEAD),
        dtype=torch.float32,
    )
    return model, processor


def _random(settings: Hpsv3Settings, weights: Weights) -> tuple[RewardModel, Any]:
    tiny = weights == "tiny"
    files = config_of("qwen2-vl-7b", tiny=tiny)
    words = files["tokenizer"]
    files["tokenizer"] = {**words, "specials": [*words["specials"], REWARD]}
    processor = processor_of(files)
    config = configuration_of(files, processor.tokenizer)
    config.text_config.vocab_size = len(processor.tokenizer)
    model = RewardModel(config)
    dtype = torch.float32 if tiny else getattr(torch, settings.dtype)
    randomise(model, device=device_of(settings.device), dtype=dtype, seed=SEED)
    model.rm_head.float()
    return model, processor
