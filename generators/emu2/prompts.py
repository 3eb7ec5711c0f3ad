"""A conversation in the words of Emu2-Chat's two official templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from generators.document import Content, Image, Request, Text, Turn
from generators.emu2.settings import Emu2DraftSettings

Part = str | Image


@dataclass(frozen=True, slots=True)
class Template:
    """What stands around the turns of a conversation."""

    system: str
    user: str
    """Before a question."""
    assistant: str
    """Before an answer."""
    again: str
    """Between an answer and the next question's mark."""


TEMPLATES: Mapping[str, Template] = {
    "native": Template(
        "You are a helpful assistant, dedicated to delivering comprehensive and "
        "meticulous responses.",
        " [USER]: ",
        " [ASSISTANT]:",
        "</s>",
    ),
    "hf": Template("", "[USER]: ", "[ASSISTANT]:", "</s>"),
}
"""`_prepare_chat_inputs` of emu/chat.py (baaivision/Emu), and `_prepare_chat_template` of
modeling_emu.py on the Hub, which knows one question only: what stands between turns is
the other's. A special token drops the spaces beside it (`Tokens`)."""


def chat_parts(request: Request, told: Emu2DraftSettings) -> list[Part]:
    """Text and pictures of a conversation, as the model is to continue it.

    A last turn of the assistant is the answer so far, from an earlier round.
    """
    template = TEMPLATES[told.template]
    said, answered = _turns(request, told)
    parts: list[Part] = [_system(request, template, told)]
    after_answer = False
    for turn in said:
        if turn.role == "user":
            mark = template.user.lstrip() if after_answer else template.user
            parts += [template.again + mark if after_answer else mark]
        else:
            parts += [template.assistant + " "]
        parts += _content(turn.content)
        after_answer = turn.role == "assistant"
    return [*parts, template.assistant, *answered]


def _turns(request: Request, told: Emu2DraftSettings) -> tuple[list[Turn], list[Part]]:
    """The turns to be spelt out, and the beginning of the answer."""
    said = [turn for turn in request.turns if turn.role != "system"]
    if not said or said[-1].role != "assistant":
        return said, []
    so_far = said.pop().content
    if not told.feed_images:
        so_far = tuple(s for s in so_far if isinstance(s, Text))
    spaced = tuple(s for segment in so_far for s in (Text(" "), segment))
    if told.continuation == "answer" or not said:
        return said, _content(spaced)
    # OpenING puts what was written after the question (emu2_inference.py).
    question = said.pop()
    return [*said, Turn("user", question.content + spaced)], []


def _system(request: Request, template: Template, told: Emu2DraftSettings) -> str:
    own = template.system if told.system_message is None else told.system_message
    turns = [turn for turn in request.turns if turn.role == "system"]
    texts = [s.text for turn in turns for s in turn.content if isinstance(s, Text)]
    return " ".join(text for text in (own, *texts) if text)


def _content(content: Content) -> list[Part]:
    return [s.text if isinstance(s, Text) else s for s in content]


def shown(parts: Sequence[Part]) -> str:
    """The prompt for people, with a mark for each picture."""
    return "".join("<image>" if isinstance(part, Image) else part for part in parts)
