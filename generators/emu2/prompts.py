"""What Emu2-Chat and Emu2-Gen are asked, in words. Imports no model code.

Emu2-Chat reads a conversation by one of its two official templates. No model of the family
interleaves: Chat was tuned on text only, Gen on pictures only. To make a document of both,
each step of an answer is Chat's text, then the picture Gen draws for that text, the task
and the first picture of the question (generator_codes/emu2_inference.py of
LanceZPF/OpenING).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from generators.document import (
    Content,
    Draft,
    Image,
    ImageRequest,
    Request,
    Sample,
    Text,
    Turn,
)

if TYPE_CHECKING:
    from generators.emu2.settings import Emu2DraftSettings

PromptPart = str | Image


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """The marks around the turns of a conversation."""

    system: str
    user: str
    """Before a question."""
    assistant: str
    """Before an answer."""
    again: str
    """Between an answer and the next question's mark."""


TEMPLATES: Mapping[str, ChatTemplate] = {
    "native": ChatTemplate(
        "You are a helpful assistant, dedicated to delivering comprehensive and "
        "meticulous responses.",
        " [USER]: ",
        " [ASSISTANT]:",
        "</s>",
    ),
    "hf": ChatTemplate("", "[USER]: ", "[ASSISTANT]:", "</s>"),
}
"""`_prepare_chat_inputs` of emu/chat.py (baaivision/Emu), and `_prepare_chat_template` of
modeling_emu.py on the Hub, which takes one question only: the marks between turns are
the other's. A special token drops the spaces beside it (`Emu2Tokens`)."""


def chat_parts(request: Request, settings: Emu2DraftSettings) -> list[PromptPart]:
    """Text and pictures of a conversation that the model continues.

    A last turn of the assistant is the answer so far, from an earlier round.
    """
    template = TEMPLATES[settings.template]
    turns, answer = _turns(request, settings)
    parts: list[PromptPart] = [_system(request, template, settings)]
    after_answer = False
    for turn in turns:
        if turn.role == "user":
            mark = template.user.lstrip() if after_answer else template.user
            parts += [template.again + mark if after_answer else mark]
        else:
            parts += [template.assistant + " "]
        parts += _content(turn.content)
        after_answer = turn.role == "assistant"
    return [*parts, template.assistant, *answer]


def _turns(
    request: Request, settings: Emu2DraftSettings
) -> tuple[list[Turn], list[PromptPart]]:
    """The turns to write out, and the beginning of the answer."""
    turns = [turn for turn in request.turns if turn.role != "system"]
    if not turns or turns[-1].role != "assistant":
        return turns, []
    so_far = turns.pop().content
    if not settings.feed_images:
        so_far = tuple(s for s in so_far if isinstance(s, Text))
    spaced = tuple(s for segment in so_far for s in (Text(" "), segment))
    if settings.continuation == "answer" or not turns:
        return turns, _content(spaced)
    # OpenING puts what was written after the question (emu2_inference.py).
    question = turns.pop()
    return [*turns, Turn("user", question.content + spaced)], []


def _system(request: Request, template: ChatTemplate, settings: Emu2DraftSettings) -> str:
    own = template.system if settings.system_message is None else settings.system_message
    turns = [turn for turn in request.turns if turn.role == "system"]
    texts = [s.text for turn in turns for s in turn.content if isinstance(s, Text)]
    return " ".join(text for text in (own, *texts) if text)


def _content(content: Content) -> list[PromptPart]:
    return [s.text if isinstance(s, Text) else s for s in content]


def display_text(parts: Sequence[PromptPart]) -> str:
    """The prompt for readers of the result, with a mark for each picture."""
    return "".join("<image>" if isinstance(part, Image) else part for part in parts)


def _with_text(template: str) -> str:
    if "{text}" not in template:
        raise ValueError(
            "must contain {text}, what Emu2-Chat wrote, and may contain {instruction}"
        )
    return template


class Emu2Composition(BaseModel):
    """How a step's picture is requested; the defaults are OpenING's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int = Field(default=1, ge=1)
    """Steps of an answer, each text and picture. OpenING takes the reference's number."""
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
    """How many of the query's pictures Gen sees, the first ones."""


def compose(settings: Emu2Composition, draft: Draft, sample: Sample) -> Draft:
    """Chat's text, then a request for its picture where the query wants one.

    A pure function of `draft` and `sample`, as `System.compose` has to be. The request
    holds no seed and no payload yet; its prompt is read after its pictures.
    """
    segments: list[Text | ImageRequest] = []
    if draft.text.strip() or not sample.wants_images:
        segments.append(Text(draft.text))
    if sample.wants_images:
        prompt = _prompt(settings, draft.text.strip(), sample)
        pictures = tuple(s for s in sample.question if isinstance(s, Image))
        context = pictures[: settings.context_images]
        segments.append(ImageRequest(prompt=prompt, context=context))
    return Draft(tuple(segments))


def _prompt(settings: Emu2Composition, text: str, sample: Sample) -> str:
    question = " ".join(s.text for s in sample.question if isinstance(s, Text))
    values = {"text": text, "instruction": _cut(settings, question)}
    return fill_template(settings.image_prompt, values)


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """`template` with each `{name}` replaced; braces inside values stay as they are."""
    names = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({names})\}}", lambda match: values[match[1]], template)


def _cut(settings: Emu2Composition, instruction: str) -> str:
    if len(instruction) <= settings.instruction_limit:
        return instruction
    tail = instruction[len(instruction) - settings.instruction_tail :]
    return instruction[: settings.instruction_head] + tail
