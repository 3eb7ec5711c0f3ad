"""Samples, replies and games for the tests of pairwise judging."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from contents import document, query_of
from paths import DATA

from plait.generators.base import Kind, Outcome, Result, StageSpec, Unscored
from plait.generators.document import Content, Draft, Image, Query, Text
from plait.scorers.features import Style
from plait.scorers.pairwise.games import (
    Aspect,
    FactualityScores,
    Game,
    Judgement,
    ReplyReading,
    Verdict,
)
from plait.scorers.pairwise.protocol import Pairwise

CHAT = StageSpec(name="judge", kind=Kind.DRAFT, target="stages:Paragraphs")
PICTURE = Image.of(b"the question's picture")
DRAWN = Image.of(b"the answer's picture")


def upstream(name: str) -> Any:
    """Results of the released programs on seeded synthetic judgements."""
    path = DATA / "pairwise_upstream.json"
    return json.loads(path.read_text())[name]


def sample(*question: str | Image, id: str = "q1", **about: Any) -> Query:
    return query_of(*question, **{"id": id, "category": "c", "field": "f"} | about)


def draft_of(text: str) -> Result[Draft]:
    return Result(Draft((Text(text),)))


def outcome_of(protocol: Pairwise, reply: str, aspect: Aspect = "preference") -> Any:
    result = protocol.read(reply, aspect)
    return Result(result) if isinstance(result, Verdict | FactualityScores) else result


def judged(
    protocol: Pairwise, replies: Sequence[str], marks: Sequence[str] = ()
) -> Result[Judgement]:
    """The judgement of replies to the pair as given, then swapped."""
    readings = [
        ReplyReading("preference", swapped, outcome_of(protocol, reply))
        for swapped, reply in zip((False, True), replies, strict=False)
    ]
    readings += [
        ReplyReading("factuality", swapped, outcome_of(protocol, reply, "factuality"))
        for swapped, reply in zip((False, True), marks, strict=False)
    ]
    return Result(Judgement(tuple(readings)))


def game(
    question: str,
    outcome: Outcome[Judgement],
    first: str = "base",
    second: str = "mine",
    **about: Any,
) -> Game:
    group = {"category": "c", "field": "f", "first": first, "second": second}
    return Game(question=question, outcome=outcome, **(group | about))


def preferred(
    question: str,
    forward: int | None,
    swapped: int | None,
    styles: tuple[Style | None, Style | None] = (None, None),
) -> Game:
    """A game by its preferences for the answer shown first; None for an unread reply."""
    readings = tuple(
        ReplyReading(
            "preference", s, Unscored("?") if p is None else Result(Verdict(str(p), p))
        )
        for s, p in ((False, forward), (True, swapped))
    )
    return game(question, Result(Judgement(readings)), styles=styles)


ONE = document("Once", DRAWN, "the end")
OTHER = document("Another {story}")


def flat(content: Content) -> str:
    """`content` with its images as marks."""
    marks = {PICTURE.digest: "<Q>", DRAWN.digest: "<D>"}
    return "".join(s.text if isinstance(s, Text) else marks[s.digest] for s in content)


def shown(protocol: Pairwise, number: int = 0, **about: str) -> str:
    """What the judge of a protocol reads last: question `number` on ONE and OTHER."""
    asks = protocol.requests(sample("See", PICTURE, "and write", **about), ONE, OTHER)
    return flat(asks[number].turns[-1].content)
