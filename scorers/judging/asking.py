"""A judge's request: what is asked of whom, and what had to be left out of it."""

from __future__ import annotations

from dataclasses import dataclass

from generators.content import followed_up
from generators.document import Content, Image, Request, Turn
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
    return Request(followed_up(request.turns, reply, asking), seed)
