"""Requests as the inputs of a vision-language model: prompt text and images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from PIL import Image as Pillow

from plait.generators.base import Failure, Skip
from plait.generators.content import failure_without_seed
from plait.generators.document import Request, Text, Turn
from plait.generators.images import ImageError, decode
from plait.generators.thoughts import opens_thought
from plait.pipelines.chat.settings import ChatSettings
from plait.pipelines.chat.turns import ControlTokens, too_many_images, turns_of

_PLACEHOLDERS = ("<image>", "<video>", "<audio>")
"""Texts that processors replace by images even if the tokenizer does not list them."""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """One record, ready to be encoded."""

    text: str
    """The checkpoint's chat template, filled in."""
    images: tuple[Pillow.Image, ...]
    neutralised: Sequence[str]
    """Control tokens that were broken in the user's text."""
    request: Request

    @property
    def image_digests(self) -> list[str]:
        """Those of the request's images, in order."""
        return [image.digest for image in self.request.images]


class ChatPromptWriter:
    """Fills in a checkpoint's chat template and encodes batches of prompts."""

    def __init__(self, processor: Any, settings: ChatSettings) -> None:
        """ValueError when `min_pixels` is set for a model of fixed resolution."""
        self._processor = processor
        self._settings = settings
        self._control = ControlTokens(control_tokens(processor))
        self._shrink_to: int | None = None
        self._image_kwargs: dict[str, Any] = {}
        if _has_dynamic_resolution(processor):
            self._image_kwargs = _pixel_budget(processor, settings)
        elif settings.min_pixels is None:
            self._shrink_to = settings.max_pixels
        else:
            raise ValueError(
                f"min_pixels is for models of dynamic resolution such as Qwen2-VL; "
                f"{settings.model!r} scales all images to fixed tiles"
            )

    def __call__(self, request: Request) -> ChatPrompt | Skip | Failure:
        """Return the prompt of one request, or why there is none."""
        if skip := too_many_images(request, self._settings.max_images):
            return skip
        if failure := failure_without_seed(request, self._settings.is_seeded()):
            return failure
        turns = turns_of(request, self._settings.system)
        try:
            images = tuple(self._fit(decode(image)) for image in request.images)
            plain, broken = self._control.neutralise(turns)
            messages = [_message(turn) for turn in plain]
            text: str = self._processor.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except ImageError as error:
            return Failure(str(error))
        except jinja2.TemplateError as error:
            return Failure(f"the chat template refuses the conversation: {error}")
        return ChatPrompt(text, images, broken, request)

    def _fit(self, image: Pillow.Image) -> Pillow.Image:
        """Return the image, within the budget where the processor does not keep it."""
        limit = self._shrink_to
        pixels = image.width * image.height
        if limit is None or pixels <= limit:
            return image
        scale = math.sqrt(limit / pixels)
        # A very narrow image keeps a pixel at least.
        width = max(int(image.width * scale), 1)
        height = max(int(image.height * scale), 1)
        return image.resize((width, height), Pillow.Resampling.LANCZOS)

    def encode(self, prompts: Sequence[ChatPrompt]) -> Any:
        """Return a batch padded on the left: input_ids (prompts, length), ..."""
        images = [list(prompt.images) for prompt in prompts]
        # Some templates write the first token themselves.
        bos = self._processor.tokenizer.bos_token
        has_bos = bool(bos) and prompts[0].text.startswith(bos)
        return self._processor(
            text=[prompt.text for prompt in prompts],
            images=images if any(images) else None,
            padding=True,
            return_tensors="pt",
            add_special_tokens=not has_bos,
            **self._image_kwargs,
        )


def control_tokens(processor: Any) -> set[str]:
    """Return the tokens that only a chat template may write, never a user."""
    tokens = set(_PLACEHOLDERS)
    template = str(processor.chat_template)
    for token in processor.tokenizer.added_tokens_decoder.values():
        if token.special or token.content in template:
            tokens.add(token.content)
    for name in ("image_token", "video_token", "audio_token"):
        placeholder = getattr(processor, name, None)
        if isinstance(placeholder, str):
            tokens.add(placeholder)
    return tokens


def special_tokens(tokenizer: Any) -> dict[int, str]:
    """Return the tokens that are no part of a text, by their ids."""
    added = tokenizer.added_tokens_decoder.items()
    return {id: token.content for id, token in added if token.special}


def ends_in_thought(processor: Any) -> bool:
    """Return whether a checkpoint's chat template ends its prompts inside a thought."""
    asked = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    try:
        prompt = processor.apply_chat_template(
            asked, tokenize=False, add_generation_prompt=True
        )
    except (jinja2.TemplateError, ValueError):
        return False
    return opens_thought(prompt)


def _message(turn: Turn) -> dict[str, Any]:
    """Return a turn as chat templates take it; images are given to the processor."""
    content: list[dict[str, str]] = []
    for segment in turn.content:
        if isinstance(segment, Text):
            content.append({"type": "text", "text": segment.text})
        else:
            content.append({"type": "image"})
    return {"role": turn.role, "content": content}


def _has_dynamic_resolution(processor: Any) -> bool:
    """Return whether images are read at their own size, within a budget of pixels."""
    image_processor = getattr(processor, "image_processor", None)
    accepted = getattr(image_processor, "valid_kwargs", None)
    options = getattr(accepted, "__annotations__", {})
    return {"min_pixels", "max_pixels"} <= options.keys()


def _pixel_budget(processor: Any, settings: ChatSettings) -> dict[str, Any]:
    """`size` counts pixels here: transformers' names for it are those of other models.

    A limit that is not set is the checkpoint's own, moved if the other one exceeds it.
    """
    low = settings.min_pixels
    high = settings.max_pixels
    if low is None and high is None:
        return {}
    default = processor.image_processor.size
    if low is None:
        low = min(default["shortest_edge"], high)
    if high is None:
        high = max(default["longest_edge"], low)
    return {"images_kwargs": {"size": {"shortest_edge": low, "longest_edge": high}}}
