"""Answers of models that do not interleave: rounds, each a text and then its image.

A round's text is written after the answer so far; its image is drawn from the text, and
from the query where the prompt's template says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from plait.generators.document import (
    Content,
    Draft,
    Image,
    ImageRequest,
    Query,
    Text,
    Turn,
    texts_in,
)


def _with_text(template: str) -> str:
    if "{text}" not in template:
        raise ValueError(
            "must contain {text}, what the model wrote, and may contain {instruction}"
        )
    return template


ImagePrompt = Annotated[str, AfterValidator(_with_text)]
"""`{text}` is what was written in this round, `{instruction}` the text of the query."""


class Rounds(BaseModel):
    """How many rounds an answer has, and how each asks for its image."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int = Field(default=1, ge=1)
    """Steps of an answer, each text and image."""
    image_prompt: ImagePrompt = "{text}"
    instruction_limit: int = Field(default=1000, ge=0)
    """A longer instruction is cut to its head and tail; all three in characters."""
    instruction_head: int = Field(default=500, ge=0)
    instruction_tail: int = Field(default=400, ge=0)

    def context(self, query: Query) -> Content:
        """Return what the image is conditioned on besides its prompt."""
        return ()

    def request(self, text: str, query: Query) -> ImageRequest:
        """Return the request for the image of a round in which `text` was written.

        It holds no seed and no payload yet; its prompt is read after its images.
        """
        question = " ".join(texts_in(query.question))
        values = {"text": text.strip(), "instruction": _cut(self, question)}
        prompt = fill_template(self.image_prompt, values)
        return ImageRequest(prompt=prompt, context=self.context(query))


def compose(settings: Rounds, draft: Draft, query: Query) -> Draft:
    """Return the round's text, then a request for its image where the query wants one.

    A pure function of `draft` and `query`, as each `Compose` has to be.
    """
    segments: list[Text | ImageRequest] = []
    if draft.text.strip() or not query.wants_images:
        segments.append(Text(draft.text))
    if query.wants_images:
        segments.append(settings.request(draft.text, query))
    return Draft(tuple(segments))


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Return `template` with each `{name}` replaced; braces in values stay as they are."""
    names = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({names})\}}", lambda match: values[match[1]], template)


def _cut(settings: Rounds, instruction: str) -> str:
    if len(instruction) <= settings.instruction_limit:
        return instruction
    tail = instruction[len(instruction) - settings.instruction_tail :]
    return instruction[: settings.instruction_head] + tail


Continuation = Literal["question", "answer"]
"""Where later rounds read the answer so far: after the question (as OpenING does,
emu2_inference.py of LanceZPF/OpenING), or as the beginning of the model's own turn."""


def continue_turns(
    turns: Sequence[Turn], continuation: Continuation, feed_images: bool, gap: str = ""
) -> tuple[list[Turn], Content]:
    """Return the turns to write out, and the beginning of the answer, from `turns`.

    A last turn of the assistant is the answer so far, of which images are left out unless
    they are fed; `gap` is put before each of its segments.
    """
    rest = list(turns)
    if not rest or rest[-1].role != "assistant":
        return rest, ()
    segments: list[Text | Image] = []
    for segment in rest.pop().content:
        if isinstance(segment, Text) or feed_images:
            if gap:
                segments.append(Text(gap))
            segments.append(segment)
    so_far = tuple(segments)
    if continuation == "answer" or not rest:
        return rest, so_far
    question = rest.pop()
    return [*rest, Turn("user", question.content + so_far)], ()
