"""How the text of Emu2-Chat and the pictures of Emu2-Gen become one document.

No model of the family interleaves: Chat was tuned on text only, Gen on pictures only. The
recipe is OpenING's (generator_codes/emu2_inference.py of LanceZPF/OpenING): each step of
an answer is Chat's text, then the picture Gen draws for that text, the task and the
first picture of the question. Imports no model code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from generators.document import Draft, Image, ImageRequest, Sample, Text


def _with_text(template: str) -> str:
    if "{text}" not in template:
        raise ValueError("must hold {text}, what Emu2-Chat wrote, and may {instruction}")
    return template


class Composing(BaseModel):
    """What Emu2-Gen is asked for; the defaults are OpenING's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int = Field(default=1, ge=1)
    """Steps of an answer, each text and picture. OpenING takes the reference's number."""
    image_prompt: Annotated[str, AfterValidator(_with_text)] = (
        "The prompt for this generation is: {text}. "
        "The context of this task is: {instruction}."
    )
    """`{text}` is what Chat wrote in this step, `{instruction}` the text of the query."""
    instruction_limit: int = Field(default=1000, ge=0)
    """A longer instruction is cut, in characters; the next two say to what."""
    instruction_head: int = Field(default=500, ge=0)
    instruction_tail: int = Field(default=400, ge=0)
    context_images: int = Field(default=1, ge=0)
    """How many of the query's pictures Gen sees, the first ones."""


def composed(told: Composing, draft: Draft, sample: Sample) -> Draft:
    """Chat's text, and after it a request for its picture where the query wants one.

    A pure function of `draft` and `sample`, as `System.compose` has to be. The request
    holds no seed and no payload yet; its prompt is read after its pictures.
    """
    segments: list[Text | ImageRequest] = []
    if draft.text.strip() or not sample.wants_images:
        segments.append(Text(draft.text))
    if sample.wants_images:
        prompt = _prompt(told, draft.text.strip(), sample)
        pictures = tuple(s for s in sample.question if isinstance(s, Image))
        context = pictures[: told.context_images]
        segments.append(ImageRequest(prompt=prompt, context=context))
    return Draft(tuple(segments))


def _prompt(told: Composing, text: str, sample: Sample) -> str:
    question = " ".join(s.text for s in sample.question if isinstance(s, Text))
    values = {"text": text, "instruction": _cut(told, question)}
    return filled(told.image_prompt, values)


def filled(template: str, values: Mapping[str, str]) -> str:
    """`template` with each `{name}` replaced; braces inside values stay as they are."""
    names = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({names})\}}", lambda match: values[match[1]], template)


def _cut(told: Composing, instruction: str) -> str:
    if len(instruction) <= told.instruction_limit:
        return instruction
    tail = instruction[len(instruction) - told.instruction_tail :]
    return instruction[: told.instruction_head] + tail
