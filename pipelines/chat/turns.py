"""A request's turns as chat models read them, with control tokens broken in its text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from generators.base import Skip
from generators.content import joined
from generators.document import Request, Text, Turn


def turns_of(request: Request, system: str | None = None) -> tuple[Turn, ...]:
    """The turns, `system` before all others, with neighbouring texts joined into one."""
    turns = list(request.turns)
    if system:
        if turns and turns[0].role == "system":
            turns[0] = Turn("system", (Text(f"{system}\n\n"), *turns[0].content))
        else:
            turns.insert(0, Turn("system", (Text(system),)))
    return tuple(Turn(t.role, joined(t.content)) for t in turns)


def too_many_images(request: Request, limit: int | None) -> Skip | None:
    """The skip of a request with more pictures than the model takes."""
    count = len(request.images)
    if limit is None or count <= limit:
        return None
    return Skip(f"the model reads {limit} image(s) per request; this one has {count}")


class ControlTokens:
    """The tokens by which a chat template structures a prompt: `<image>`, `<|im_end|>`.

    Inside a user's text they would move pictures to other places or open turns, so each
    is broken by a space after its first character: `< image>`.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        # Without the spaces around it, a token stays broken by the space put into it.
        visible = sorted({t.strip() for t in tokens if len(t.strip()) > 1})
        longest_first = sorted(visible, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def neutralise(self, turns: Iterable[Turn]) -> tuple[list[Turn], list[str]]:
        """The turns with all such tokens broken, and the tokens that were broken."""
        parts = [self._neutralise(turn) for turn in turns]
        return [turn for turn, _ in parts], [t for _, tokens in parts for t in tokens]

    def _neutralise(self, turn: Turn) -> tuple[Turn, list[str]]:
        """One turn.

        A token cut in two by a picture counts too: some templates (LLaVA's) put all
        pictures first and so would join its halves.
        """
        texts = [s.text for s in turn.content if isinstance(s, Text)]
        tokens: list[str] = []
        while matches := list(self._pattern.finditer("".join(texts))):
            tokens += [m.group() for m in matches]
            texts = _with_spaces(texts, [m.start() + 1 for m in matches])
        rest = iter(texts)
        content = tuple(
            Text(next(rest)) if isinstance(s, Text) else s for s in turn.content
        )
        return Turn(turn.role, content), tokens


def _with_spaces(texts: Sequence[str], places: Iterable[int]) -> list[str]:
    """`texts` with spaces inserted at `places`, counted over all texts joined."""
    new = list(texts)
    for place in sorted(places, reverse=True):
        start = 0
        for i, text in enumerate(texts):
            if place <= start + len(text):
                new[i] = new[i][: place - start] + " " + new[i][place - start :]
                break
            start += len(text)
    return new
