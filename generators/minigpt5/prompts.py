"""A conversation in upstream's template: parts of text with pictures between them."""

from __future__ import annotations

from collections.abc import Sequence

from generators.document import Image, Request, Text, Turn
from generators.minigpt5.settings import MiniGPT5DraftSettings

PromptPart = str | Image


def prompt_parts(request: Request, settings: MiniGPT5DraftSettings) -> list[PromptPart]:
    """The prompt: no two texts are adjacent, and none is empty.

    White space beside a picture is stripped, as upstream's tokenizer does beside
    `<ImageHere>`. System turns follow the model's system prompt; the request comes after
    the last human turn; a conversation that ends with the assistant is continued.
    """
    wording = settings.wording
    parts: list[PromptPart] = [wording.system]
    for turn in request.turns:
        if turn.role == "system":
            parts += [settings.turn_separator, *_content(turn, settings)]
    dialogue = [turn for turn in request.turns if turn.role != "system"]
    last = max((i for i, t in enumerate(dialogue) if t.role == "user"), default=-1)
    for i, turn in enumerate(dialogue):
        if i:
            parts.append(settings.turn_separator)
        if turn.role == "assistant":
            parts += [
                settings.assistant,
                settings.turn_separator,
                *_content(turn, settings),
            ]
        else:
            parts += [wording.human, *_content(turn, settings)]
        if i == last:
            if _ends_with_picture(turn):
                parts.append(wording.after_last_image)
            parts.append(wording.request)
    if not dialogue or dialogue[-1].role == "user":
        parts.append(settings.assistant)
    return _joined(parts)


def display_text(parts: Sequence[PromptPart]) -> str:
    """For people: the text, with upstream's mark for each picture."""
    return "".join("<ImageHere>" if isinstance(p, Image) else p for p in parts)


def _ends_with_picture(turn: Turn) -> bool:
    return bool(turn.content) and not isinstance(turn.content[-1], Text)


def _content(turn: Turn, settings: MiniGPT5DraftSettings) -> list[PromptPart]:
    parts: list[PromptPart] = []
    for segment in turn.content:
        if isinstance(segment, Text):
            parts.append(segment.text)
        else:
            parts += [settings.before_image, segment, settings.after_image]
    return parts


def _joined(parts: Sequence[PromptPart]) -> list[PromptPart]:
    joined: list[PromptPart] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return [p for p in map(_stripped, *_neighbours(joined)) if p != ""]


def _neighbours(parts: list[PromptPart]) -> tuple[list[PromptPart], list[bool], list[bool]]:
    """The parts, and whether a picture is before and after each."""
    pictures = [isinstance(part, Image) for part in parts]
    return parts, [False, *pictures[:-1]], [*pictures[1:], False]


def _stripped(part: PromptPart, before: bool, after: bool) -> PromptPart:
    if isinstance(part, Image):
        return part
    text = part.lstrip() if before else part
    return text.rstrip() if after else text
