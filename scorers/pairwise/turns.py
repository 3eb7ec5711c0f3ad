"""Answers and questions of one turn or several."""

from __future__ import annotations

from generators.content import joined
from generators.document import Content, Document, Sample, Text, Turn
from scorers.pairwise.filling import spaced, told


def whole(answer: Document) -> Content:
    """All of an answer in order, every segment on a line of its own."""
    return spaced(answer.segments)


def asked(sample: Sample) -> tuple[Turn, ...]:
    """The user's turns."""
    return tuple(t for t in sample.turns if t.role == "user")


def history(sample: Sample) -> Content:
    """Everything said before the last user turn, each turn under its speaker's name."""
    last = max(i for i, t in enumerate(sample.turns) if t.role == "user")
    segments: list[Content] = []
    for turn in sample.turns[:last]:
        who = {"user": "User", "assistant": "Assistant", "system": "System"}[turn.role]
        segments += [told(f"{who}:\n"), spaced(turn.content), (Text("\n\n"),)]
    return joined(s for content in segments for s in content)
