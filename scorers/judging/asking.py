"""A judge's request: what is asked of whom, and what had to be left out of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from generators.document import Content, Image, Request, Text, Turn
from scorers.judging.rubrics import Rubric


@dataclass(frozen=True, slots=True)
class RubricQuestion:
    """The one turn that asks for a judgement."""

    rubric: Rubric
    content: Content
    """Rubric, question and answer in this order, so that all that is asked about one
    question begins alike and a server's prefix cache serves it."""
    left_out: int = 0
    """Pictures of question and answer that the judge is not shown."""
    cut: bool = False
    """Whether text of the answer is left out."""
    neutralised: tuple[str, ...] = ()
    """What was found in question or answer that would have passed for control."""

    @property
    def images(self) -> int:
        """Pictures the judge is shown."""
        return sum(isinstance(s, Image) for s in self.content)

    def request(self, seed: int | None) -> Request:
        """The first question to the judge."""
        return Request((Turn("user", self.content),), seed)


def asked_again(
    request: Request, reply: str, problem: str, rubric: Rubric, seed: int | None
) -> Request:
    """The conversation so far, with a turn that asks for the verdict in its form."""
    asking = (
        f"This cannot be read: {problem}. Give your judgement again, in exactly this form "
        f"and with nothing before or after it:\n{rubric.form}"
    )
    said = Turn("assistant", (Text(reply or "(empty reply)"),))
    return Request((*request.turns, said, Turn("user", (Text(asking),))), seed)


def joined(segments: Iterable[Text | Image]) -> Content:
    """The segments with neighbouring texts made one, and without empty ones."""
    parts: list[Text | Image] = []
    for segment in segments:
        last = parts[-1] if parts else None
        if isinstance(segment, Text) and isinstance(last, Text):
            parts[-1] = Text(last.text + segment.text)
        elif isinstance(segment, Image) or segment.text:
            parts.append(segment)
    return tuple(parts)
