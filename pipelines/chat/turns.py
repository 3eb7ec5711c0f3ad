"""A request's turns as chat models read them, with control tokens broken in its text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from plait.generators.base import Skip
from plait.generators.content import join_texts
from plait.generators.document import Content, Image, Request, Text, Turn


def turns_of(request: Request, system: str | None = None) -> tuple[Turn, ...]:
    """Return the turns, `system` before all others, with neighbouring texts joined."""
    turns = list(request.turns)
    if system:
        if turns and turns[0].role == "system":
            turns[0] = Turn("system", (Text(f"{system}\n\n"), *turns[0].content))
        else:
            turns.insert(0, Turn("system", (Text(system),)))
    return tuple(Turn(turn.role, join_texts(turn.content)) for turn in turns)


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
        stripped = sorted({token.strip() for token in tokens})
        # What has one character cannot be broken after its first.
        breakable = [token for token in stripped if len(token) > 1]
        # A pattern takes the first alternative that matches, which must be the longest.
        longest_first = sorted(breakable, key=len, reverse=True)
        alternatives = "|".join(map(re.escape, longest_first))
        # An empty pattern would match everywhere; this one matches nowhere.
        self._pattern = re.compile(alternatives or "(?!)")

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
        whole = ""
        ends: list[int] = []
        for segment in turn.content:
            if isinstance(segment, Text):
                whole += segment.text
                ends.append(len(whole))
        tokens: list[str] = []
        # What is left of a broken token may make another one with the text beside it.
        while matches := list(self._pattern.finditer(whole)):
            tokens += [match.group() for match in matches]
            # From the last on, so that the places of the others stay right.
            for match in reversed(matches):
                place = match.start() + 1
                whole = f"{whole[:place]} {whole[place:]}"
                for number, end in enumerate(ends):
                    if end >= place:
                        ends[number] = end + 1
        return Turn(turn.role, _with_texts(turn, whole, ends)), tokens


def _with_texts(turn: Turn, whole: str, ends: Iterable[int]) -> Content:
    """Return a turn's content with its texts replaced by parts of `whole`.

    `ends` are where the part of each text ends.
    """
    spans = pairwise((0, *ends))
    content: list[Text | Image] = []
    for segment in turn.content:
        if isinstance(segment, Text):
            start, end = next(spans)
            content.append(Text(whole[start:end]))
        else:
            content.append(segment)
    return tuple(content)
