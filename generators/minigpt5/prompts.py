"""A conversation in upstream's template: parts of text with pictures between them."""

from __future__ import annotations

from collections.abc import Sequence

from generators.document import Image, Request, Text, Turn
from generators.minigpt5.settings import MiniGPT5DraftSettings

Part = str | Image


def asked(request: Request, told: MiniGPT5DraftSettings) -> list[Part]:
    """What the model reads: no two texts stand side by side, and none is empty.

    White space beside a picture is taken away, as upstream's tokenizer does beside
    `<ImageHere>`. System turns follow the model's own system prompt; the request comes
    after the last human turn; a conversation that ends with the assistant is gone on with.
    """
    wording = told.wording
    parts: list[Part] = [wording.system]
    for turn in request.turns:
        if turn.role == "system":
            parts += [told.turn_separator, *_content(turn, told)]
    talk = [turn for turn in request.turns if turn.role != "system"]
    last = max((i for i, t in enumerate(talk) if t.role == "user"), default=-1)
    for i, turn in enumerate(talk):
        if i:
            parts.append(told.turn_separator)
        if turn.role == "assistant":
            parts += [told.assistant, told.turn_separator, *_content(turn, told)]
        else:
            parts += [wording.human, *_content(turn, told)]
        if i == last:
            if _ends_with_picture(turn):
                parts.append(wording.after_last_image)
            parts.append(wording.request)
    if not talk or talk[-1].role == "user":
        parts.append(told.assistant)
    return _joined(parts)


def shown(parts: Sequence[Part]) -> str:
    """For people: the text, with upstream's mark for each picture."""
    return "".join("<ImageHere>" if isinstance(p, Image) else p for p in parts)


def _ends_with_picture(turn: Turn) -> bool:
    return bool(turn.content) and not isinstance(turn.content[-1], Text)


def _content(turn: Turn, told: MiniGPT5DraftSettings) -> list[Part]:
    parts: list[Part] = []
    for segment in turn.content:
        if isinstance(segment, Text):
            parts.append(segment.text)
        else:
            parts += [told.before_image, segment, told.after_image]
    return parts


def _joined(parts: Sequence[Part]) -> list[Part]:
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return [p for p in map(_stripped, *_neighbours(joined)) if p != ""]


def _neighbours(parts: list[Part]) -> tuple[list[Part], list[bool], list[bool]]:
    """The parts, and whether a picture stands before and after each."""
    pictures = [isinstance(part, Image) for part in parts]
    return parts, [False, *pictures[:-1]], [*pictures[1:], False]


def _stripped(part: Part, before: bool, after: bool) -> Part:
    if isinstance(part, Image):
        return part
    text = part.lstrip() if before else part
    return text.rstrip() if after else text
