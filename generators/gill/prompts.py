"""A conversation as GILL reads it: text and pictures in order, in dialogue form."""

from __future__ import annotations

from collections.abc import Sequence

from generators.document import Content, Image, Turn
from generators.gill.settings import GillDraftSettings

Piece = str | Image


def pieces(turns: Sequence[Turn], settings: GillDraftSettings, vokens: str) -> list[Piece]:
    """Text and pictures of a prompt, each text to be tokenized separately.

    A user's turn is `Q: ...`, newline, `A:`, after its leading pictures; an earlier
    answer is followed by a newline; a system turn is left as it is
    (`generate_dialogue`, GILL_Inference_Examples.ipynb). `vokens` are the names of all
    image tokens.
    """
    prompt: list[Piece] = []
    for turn in turns:
        content = _plain(turn.content)
        match turn.role:
            case "user":
                prompt += _question(content, settings.question, settings.answer)
            case "assistant":
                prompt += _answer(content, settings, vokens)
            case "system":
                prompt += content
    return [piece for piece in prompt if piece != ""]


def _plain(content: Content) -> list[Piece]:
    return [s if isinstance(s, Image) else s.text for s in content]


def _question(content: list[Piece], before: str, after: str) -> list[Piece]:
    first_text = next(
        (i for i, p in enumerate(content) if isinstance(p, str)), len(content)
    )
    text = content[first_text:] or [""]
    assert isinstance(text[0], str)
    return _with_end([*content[:first_text], before + text[0], *text[1:]], after)


def _answer(content: list[Piece], settings: GillDraftSettings, vokens: str) -> list[Piece]:
    if settings.history_images == "vokens":
        texts = [p if isinstance(p, str) else f" {vokens}" for p in content]
        content = ["".join(texts)]
    return _with_end(content, settings.answer_end)


def _with_end(content: list[Piece], end: str) -> list[Piece]:
    """The content with `end` in its last text, or after its last picture."""
    if content and isinstance(content[-1], str):
        return [*content[:-1], content[-1] + end]
    return [*content, end]


def display_text(prompt: Sequence[Piece]) -> str:
    """The prompt for people, with a mark for each picture."""
    return "".join("<image>" if isinstance(p, Image) else p for p in prompt)
