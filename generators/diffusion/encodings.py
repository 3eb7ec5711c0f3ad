"""Prompts encoded before a pipeline is called, each distinct one once.

Text encoders take a large part of a call of few steps, and the same prompt comes again:
the negative one with every batch, one of several images with other seeds. So prompts are
encoded by the pipeline's own `encode_prompt`, remembered, and handed to its call as the
`*_embeds` that it has for that. How each class does so was read in the sources of
diffusers 0.42.1; classes that are not in `FAMILIES` encode prompts in every call.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from plait.generators.diffusion.calls import Call
from plait.generators.diffusion.settings import DiffusionSettings
from plait.generators.loading.strict import device_of
from plait.generators.memo import Memo

REMEMBERED_BYTES = 2**28
"""Of encodings on the device: those of 64 prompts by T5-XXL at 512 tokens."""
_NEGATIVE = "negative_"
_STATES = "prompt_embeds"
_OTHER_TEXTS = ("prompt_", "negative_prompt_", "caption_")
_ADAPTER_SCALES = {"cross_attention_kwargs", "joint_attention_kwargs", "attention_kwargs"}

Row = Mapping[str, Tensor]
"""What one prompt was encoded as: argument of the call -> its entry, without a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the pipelines of a class encode prompts, and are given what was encoded."""

    returned: tuple[str | None, ...]
    """Arguments of the call that `encode_prompt` returns, in order; None for others."""
    negative_apart: bool = False
    """Whether a negative prompt is encoded as any prompt is, by a call of its own."""
    mask: str | None = None
    """Argument that says which positions hold the prompt, where others fill a batch."""
    listed: bool = False
    """Whether the call takes a list of tensors, each as long as its prompt."""


_CLIP = Family(returned=(_STATES, "negative_prompt_embeds"))
_POOLED = Family(
    returned=(
        _STATES,
        "negative_prompt_embeds",
        "pooled_prompt_embeds",
        "negative_pooled_prompt_embeds",
    )
)
_MASKED = Family(
    returned=(
        _STATES,
        "prompt_attention_mask",
        "negative_prompt_embeds",
        "negative_prompt_attention_mask",
    )
)
_LANGUAGE_MODEL = Family(returned=(_STATES, None), negative_apart=True)
FAMILIES: Mapping[str, Family] = {
    "StableDiffusionPipeline": _CLIP,
    "StableDiffusionXLPipeline": _POOLED,
    "StableDiffusion3Pipeline": _POOLED,
    "PixArtSigmaPipeline": _MASKED,
    "SanaPipeline": _MASKED,
    "FluxPipeline": Family(
        returned=(_STATES, "pooled_prompt_embeds", None), negative_apart=True
    ),
    "Flux2Pipeline": _LANGUAGE_MODEL,
    "Flux2KleinPipeline": _LANGUAGE_MODEL,
    "QwenImagePipeline": Family(
        returned=(_STATES, "prompt_embeds_mask"),
        negative_apart=True,
        mask="prompt_embeds_mask",
    ),
    "ZImagePipeline": Family(returned=(_STATES, None), negative_apart=True, listed=True),
}
"""By the pipeline's class. GLM-Image's refuses a prompt and a negative one of two lengths,
Qwen-Image-Edit reads images with the prompt, Cosmos 3 and InstructPix2Pix have no
`encode_prompt`."""


class PromptEncoder:
    """Encodes the prompts of one pipeline, and remembers the latest encodings."""

    def __init__(
        self, pipeline: Any, family: Family, call: Call, settings: DiffusionSettings
    ) -> None:
        """`call` is what the pipeline is called with; it decides how prompts are read."""
        self._pipeline = pipeline
        self._family = family
        self._negative_text = call.negative_prompt
        self._is_guided = call.is_guided
        taken = inspect.signature(pipeline.encode_prompt).parameters
        self._says_guided = "do_classifier_free_guidance" in taken
        device = device_of(settings.device)
        self._given = _arguments_of_encoding(pipeline, call, device)
        called = inspect.signature(pipeline.__call__).parameters
        self._no_texts: dict[str, None] = {}
        """Takes the texts out of a call: some classes have a text as their default."""
        for name in ("prompt", "negative_prompt"):
            if name in called:
                self._no_texts[name] = None
        # Alone, a prompt is encoded to the last bit as beside any others. A GPU, which is
        # not so exact, encodes many in little more time than one.
        self._group = 1 if device.type == "cpu" else settings.batch_size
        self.forget()

    def forget(self) -> None:
        """Forget all encodings, so that what follows is encoded anew."""
        self._negative_row: Row | None = None
        self._rows = Memo[str, str, Row](
            self._encode, self._group, REMEMBERED_BYTES, _bytes_of
        )

    def conditions(self, each: Mapping[str, Any]) -> dict[str, Any]:
        """Return what takes the place of the texts of a batch in the pipeline's call.

        `each` are the batch's conditions, with one entry per image. Where they have no
        prompt but encodings of their own, that is the negative prompt's encoding alone;
        empty where they have that, too.
        """
        encoded: dict[str, Any] = {}
        prompts = each.get("prompt")
        if not prompts and _NEGATIVE + _STATES in each:
            return {}
        if prompts:
            rows = self._rows({prompt: prompt for prompt in prompts})
            encoded = self._join([rows[prompt] for prompt in prompts])
        negative = self._negative()
        if not prompts and (negative is None or not _fits(negative, each)):
            return {}
        if negative is not None:
            joined = self._join([negative] * len(each["generator"]))
            for name, value in joined.items():
                encoded[_NEGATIVE + name] = value
        return encoded | self._no_texts

    def _negative(self) -> Row | None:
        if self._negative_row is None and self._is_guided:
            self._negative_row = self._encode_negative()
        return self._negative_row

    def _encode_negative(self) -> Row:
        text = self._negative_text
        if self._family.negative_apart:
            return self._encode([text or ""])[0]
        # The pipeline knows what no negative prompt means: zeros for SDXL.
        given = {} if text is None else {"negative_prompt": [text]}
        outputs = self._call([""], guided=True, **given)
        pairs = zip(self._family.returned, outputs, strict=True)
        row: dict[str, Tensor] = {}
        for name, value in pairs:
            if name is not None and name.startswith(_NEGATIVE):
                row[name.removeprefix(_NEGATIVE)] = value[0]
        return row

    def _encode(self, prompts: list[str]) -> list[Row]:
        outputs = self._call(prompts, guided=False)
        batch: dict[str, Any] = {}
        for name, value in zip(self._family.returned, outputs, strict=True):
            if name is not None and not name.startswith(_NEGATIVE):
                batch[name] = value
        mask = batch.pop(self._family.mask, None) if self._family.mask else None
        lengths = None if mask is None else mask.sum(1).tolist()
        rows: list[Row] = []
        for i in range(len(prompts)):
            row: dict[str, Tensor] = {}
            for name, value in batch.items():
                part = value[i]
                if name == _STATES and lengths is not None:
                    part = part[: lengths[i]]
                # A view would keep the whole batch in memory.
                row[name] = part.clone()
            rows.append(row)
        return rows

    def _call(self, prompts: list[str], *, guided: bool, **given: Any) -> Any:
        if self._says_guided:
            given["do_classifier_free_guidance"] = guided
        with torch.no_grad():
            # Z-Image's pipeline writes into the list.
            return self._pipeline.encode_prompt([*prompts], **self._given, **given)

    def _join(self, rows: Sequence[Row]) -> dict[str, Any]:
        joined: dict[str, Any] = {}
        for name in rows[0]:
            joined[name] = [row[name] for row in rows]
        if self._family.listed:
            return joined
        for name, values in joined.items():
            joined[name] = pad_sequence(values, batch_first=True)
        lengths = [len(row[_STATES]) for row in rows]
        if self._family.mask and len(set(lengths)) > 1:
            positions = torch.arange(max(lengths))
            mask = (positions < torch.tensor(lengths)[:, None]).long()
            joined[self._family.mask] = mask.to(joined[_STATES].device)
        return joined


def encoder_of(
    pipeline: Any, call: Call, settings: DiffusionSettings
) -> PromptEncoder | None:
    """Return what encodes the pipeline's prompts ahead; None where every call does.

    That is where its class is not in `FAMILIES` or it has no text encoder, and where
    further arguments give other texts or change what a text encoder computes.
    """
    family = FAMILIES.get(type(pipeline).__name__)
    if family is None or not _has_text_encoder(pipeline):
        return None
    for name in settings.arguments:
        if name.startswith(_OTHER_TEXTS) or name in _ADAPTER_SCALES:
            return None
    return PromptEncoder(pipeline, family, call, settings)


def _has_text_encoder(pipeline: Any) -> bool:
    for name, part in pipeline.components.items():
        if name.startswith("text_encoder") and part is not None:
            return True
    return False


def _arguments_of_encoding(
    pipeline: Any, call: Call, device: torch.device
) -> dict[str, Any]:
    """Return what the pipeline's call would give to `encode_prompt` besides prompts."""
    called = inspect.signature(pipeline.__call__).parameters
    own: dict[str, Any] = {"device": device, "num_images_per_prompt": 1}
    own |= {"prompt_2": None, "prompt_3": None}
    given: dict[str, Any] = {}
    for name in inspect.signature(pipeline.encode_prompt).parameters:
        if name in called and "prompt" not in name:
            given[name] = call.arguments.get(name, called[name].default)
        elif name in own:
            given[name] = own[name]
    return given


def _fits(negative: Row, each: Mapping[str, Any]) -> bool:
    """Return whether a negative encoding can stand beside a batch's own encodings."""
    for name, value in negative.items():
        if name not in each or each[name].shape[1:] != value.shape:
            return False
    return True


def _bytes_of(row: Row) -> int:
    return sum(value.numel() * value.element_size() for value in row.values())
