"""A conversation as GILL reads it: text and pictures in order, in dialogue form."""

from __future__ import annotations

from collections.abc import Sequence

from generators.document import Content, Image, Turn
from generators.gill.settings import GillDraftSettings

Piece = str | Image


def pieces(turns: Sequence[Turn], told: GillDraftSettings, vokens: str) -> list[Piece]:
    """Text and pictures of a prompt, each text to be tokenized alone.

    A user's turn is `Q: ...`, newline, `A:`, after the pictures that open it; an earlier
    answer is followed by a newline; what the system says is put as it stands
    (`generate_dialogue`, GILL_Inference_Examples.ipynb). `vokens` are the names of all
    image tokens.
    """
    made: list[Piece] = []
    for turn in turns:
        content = _plain(turn.content)
        match turn.role:
            case "user":
                made += _question(content, told.question, told.answer)
            case "assistant":
                made += _answer(content, told, vokens)
            case "system":
                made += content
    return [piece for piece in made if piece != ""]


def _plain(content: Content) -> list[Piece]:
    return [s if isinstance(s, Image) else s.text for s in content]


def _question(content: list[Piece], before: str, after: str) -> list[Piece]:
    opening = next((i for i, p in enumerate(content) if isinstance(p, str)), len(content))
    text = content[opening:] or [""]
    assert isinstance(text[0], str)
    return _followed([*content[:opening], before + text[0], *text[1:]], after)


def _answer(content: list[Piece], told: GillDraftSettings, vokens: str) -> list[Piece]:
    if told.history_images == "vokens":
        texts = [p if isinstance(p, str) else f" {vokens}" for p in content]
        content = ["".join(texts)]
    return _followed(content, told.answer_end)


def _followed(content: list[Piece], end: str) -> list[Piece]:
    """The content with `end` in its last text, or after its last picture."""
    if content and isinstance(content[-1], str):
        return [*content[:-1], content[-1] + end]
    return [*content, end]


def shown(prompt: Sequence[Piece]) -> str:
    """The prompt for people, with a mark for each picture."""
    return "".join("<image>" if isinstance(p, Image) else p for p in prompt)
