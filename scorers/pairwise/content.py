"""Answers and questions as content for a judge: turns, layouts, text-only variants.

The text-only variant is Creation-MMBench-TO: systems are asked a sample whose pictures are
replaced by a description, judges are shown the original one. The two lines around a
description are Figure 30 of the paper's appendix.
"""

from __future__ import annotations

from dataclasses import replace

from generators.base import Job, Result, StageSpec, Walk
from generators.content import joined
from generators.document import Content, Document, Image, Request, Sample, Text, Turn
from scorers.pairwise.prompts import DESCRIBE


def spaced(content: Content) -> Content:
    """`content` with every segment on a line of its own."""
    lines: list[Text | Image] = []
    for i, segment in enumerate(content):
        lines += [Text("\n"), segment] if i else [segment]
    return joined(lines)


def as_content(text: str) -> Content:
    """One text as content."""
    return (Text(text),)


def texts(content: Content) -> Content:
    """The text of `content`, one segment a line, as one segment."""
    return as_content(Document(content).text)


def pictures(content: Content) -> Content:
    """The pictures of `content`."""
    return Document(content).images


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
        segments += [as_content(f"{who}:\n"), spaced(turn.content), (Text("\n\n"),)]
    return joined(s for content in segments for s in content)


DESCRIPTION = "image_description"
"""Metadata of a sample: what its pictures show."""
_BEFORE = (
    "This question does not provide images, only descriptions of images by a large "
    "language model. Please answer based on the descriptions.\n"
    "Description of the image: "
)


def text_only(sample: Sample, description: str | None = None) -> Sample:
    """`sample` without pictures and with `description` after its last user turn's text.

    The description is taken from the sample's metadata where none is given. Raises
    ValueError where a sample with pictures has none.
    """
    if not pictures(sample.question):
        return sample
    description = description or sample.metadata.get(DESCRIPTION)
    if not description:
        raise ValueError(f"sample {sample.id!r} has pictures and no {DESCRIPTION!r}")
    last = max(i for i, t in enumerate(sample.turns) if t.role == "user")
    turns = [
        _described(t, description if i == last else "") for i, t in enumerate(sample.turns)
    ]
    return replace(sample, turns=tuple(turns))


def _described(turn: Turn, description: str) -> Turn:
    kept = spaced(tuple(s for s in turn.content if isinstance(s, Text)))
    added = f"\n{_BEFORE}{description}" if description else ""
    return Turn(turn.role, joined((*kept, Text(added))))


def describe(sample: Sample, chat: StageSpec, seed: int | None = None) -> Walk[str]:
    """Walk to a description of the sample's pictures, asking the stage `chat`."""
    content = (*pictures(sample.question), Text(DESCRIBE))
    request = Request((Turn("user", content),), seed if chat.seeded else None)
    outcome = (yield [Job(chat, request, sample.id)])[0]
    if not isinstance(outcome, Result):
        return outcome
    return Result(outcome.value.text)
