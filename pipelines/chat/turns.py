"""A request's turns as chat models read them, with control tokens broken in its text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate, pairwise

from plait.generators.base import Skip
from plait.generators.content import join_texts
from plait.generators.document import Request, Text, Turn


def turns_of(request: Request, system: str | None = None) -> tuple[Turn, ...]:
    """Return the turns, `system` before all others, with neighbouring texts joined."""
    turns = list(request.turns)
    if system:
        if turns and turns[0].role == "system":
            turns[0] = Turn("system", (Text(f"{system}\n\n"), *turns[0].content))
        else:
            turns.insert(0, Turn("system", (Text(system),)))
    return tuple(Turn(t.role, join_texts(t.content)) for t in turns)


def too_many_images(request: Request, limit: int | None) -> Skip | None:
    """Return the skip of a request with more images than the model takes."""
    count = len(request.images)
    if limit is None or count <= limit:
        return None
    return Skip(f"the model reads {limit} image(s) per request; this one has {count}")


class ControlTokens:
    """The tokens by which a chat template structures a prompt: `<image>`, `<|im_end|>`.

    Inside a user's text they would move images to other places or open turns, so each
    is broken by a space after its first character: `< image>`.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        # Without the spaces around it, a token stays broken by the space put into it.
        visible = sorted({t.strip() for t in tokens if len(t.strip()) > 1})
        longest_first = sorted(visible, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def neutralise(self, turns: Iterable[Turn]) -> tuple[list[Turn], list[str]]:
        """Return the turns with all such tokens broken, and the tokens that were."""
        changed: list[Turn] = []
        broken: list[str] = []
        for turn in turns:
            plain, tokens = self._neutralise(turn)
            changed.append(plain)
            broken += tokens
        return changed, broken

    def _neutralise(self, turn: Turn) -> tuple[Turn, list[str]]:
        """Return one turn.

        A token cut in two by an image counts too: some templates (LLaVA's) put all images
        first and so would join its halves.
        """
        texts = [s.text for s in turn.content if isinstance(s, Text)]
        whole = "".join(texts)
        ends = list(accumulate(map(len, texts)))
        tokens = []
        while matches := list(self._pattern.finditer(whole)):
            tokens += [m.group() for m in matches]
            for place in sorted((m.start() + 1 for m in matches), reverse=True):
                whole = f"{whole[:place]} {whole[place:]}"
                ends = [end + (end >= place) for end in ends]
        rest = (Text(whole[a:b]) for a, b in pairwise((0, *ends)))
        content = tuple(next(rest) if isinstance(s, Text) else s for s in turn.content)
        return Turn(turn.role, content), tokens
