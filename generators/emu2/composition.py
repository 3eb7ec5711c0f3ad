"""How Emu2-Chat and Emu2-Gen make one document. Imports no model code.

No model of the family interleaves: Chat was tuned on text only, Gen on images only. So each
step of an answer is Chat's text, then the image that Gen draws for that text, the task and
the first image of the question (generator_codes/emu2_inference.py of LanceZPF/OpenING).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from generators.document import Draft, Image, ImageRequest, Sample, Text


def _with_text(template: str) -> str:
    if "{text}" not in template:
        raise ValueError(
            "must contain {text}, what Emu2-Chat wrote, and may contain {instruction}"
        )
    return template


class Emu2Composition(BaseModel):
    """How a step's image is requested; the defaults are OpenING's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int = Field(default=1, ge=1)
    """Steps of an answer, each text and image. OpenING takes the reference's number."""
    image_prompt: Annotated[str, AfterValidator(_with_text)] = (
        "The prompt for this generation is: {text}. "
        "The context of this task is: {instruction}."
    )
    """`{text}` is what Chat wrote in this step, `{instruction}` the text of the query."""
    instruction_limit: int = Field(default=1000, ge=0)
    """A longer instruction is cut to its head and tail; all three in characters."""
    instruction_head: int = Field(default=500, ge=0)
    instruction_tail: int = Field(default=400, ge=0)
    context_images: int = Field(default=1, ge=0)
    """How many of the query's images Gen sees, the first ones."""


def compose(settings: Emu2Composition, draft: Draft, sample: Sample) -> Draft:
    """Return Chat's text, then a request for its image where the query wants one.

    A pure function of `draft` and `sample`, as `System.compose` has to be. The request
    holds no seed and no payload yet; its prompt is read after its images.
    """
    segments: list[Text | ImageRequest] = []
    if draft.text.strip() or not sample.wants_images:
        segments.append(Text(draft.text))
    if sample.wants_images:
        prompt = _prompt(settings, draft.text.strip(), sample)
        images = tuple(s for s in sample.question if isinstance(s, Image))
        context = images[: settings.context_images]
        segments.append(ImageRequest(prompt=prompt, context=context))
    return Draft(tuple(segments))


def _prompt(settings: Emu2Composition, text: str, sample: Sample) -> str:
    question = " ".join(s.text for s in sample.question if isinstance(s, Text))
    values = {"text": text, "instruction": _cut(settings, question)}
    return fill_template(settings.image_prompt, values)


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Return `template` with each `{name}` replaced; braces in values stay as they are."""
    names = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({names})\}}", lambda match: values[match[1]], template)


def _cut(settings: Emu2Composition, instruction: str) -> str:
    if len(instruction) <= settings.instruction_limit:
        return instruction
    tail = instruction[len(instruction) - settings.instruction_tail :]
    return instruction[: settings.instruction_head] + tail
