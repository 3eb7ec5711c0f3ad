"""Dual evaluation: a pair of answers is shown to the judge in both orders."""

from __future__ import annotations

from typing import Protocol

from generators.base import StageSpec, Walk
from generators.document import Document, Sample
from scorers.features import Style
from scorers.pairwise.protocol import Judgement, Pairwise
from scorers.pairwise.walk import judged


def both_orders(
    first: Document, second: Document
) -> tuple[tuple[bool, Document, Document], ...]:
    """(whether swapped, the answer shown first, the other), as given and swapped."""
    return (False, first, second), (True, second, first)


class DualEvaluation(Pairwise, Protocol):
    """Base of the protocols: the walk, for what they ask and how they read."""

    __slots__ = ()

    @property
    def attempts(self) -> int:
        """Once more in corrected mode; once officially, as Creation-MMBench does."""
        return 2 if self.mode == "corrected" else 1

    def repeats_after(self, reply: str) -> bool:
        """Never, unless the released program does."""
        return False

    def style_of(self, answer: Document, *, first: bool) -> Style | None:
        """None: most protocols do not look at style."""
        return None

    def styles(self, first: Document, second: Document) -> tuple[Style, Style] | None:
        """Style of the pair's answers, where the protocol looks at style."""
        one, other = self.style_of(first, first=True), self.style_of(second, first=False)
        return None if one is None or other is None else (one, other)

    def judge(
        self,
        sample: Sample,
        first: Document,
        second: Document,
        chat: StageSpec,
        *,
        seed: int = 0,
        repeat: int = 0,
    ) -> Walk[Judgement]:
        """Walk to the judgement of one pair, asking the stage `chat`."""
        styles = self.styles(first, second)
        return judged(self, sample, (first, second), chat, (seed, repeat), styles)
