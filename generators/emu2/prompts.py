"""A conversation as Emu2-Chat reads it, by one of its two official templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from generators.document import Content, Image, Request, Text, Turn
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
