"""One judged game between two systems, as ratings read it."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Battle:
    """A game on one question; everything is told from the side of `first`."""

    question: str
    first: str
    second: str
    score: float
    """Of `first`: 1 for a win, 0 for a loss, 0.5 for a tie."""
    weight: float = 1.0
    order: int = 0
    """1 where `first` was shown first to the judge, -1 where second, 0 unknown."""
    style: tuple[float, ...] = ()
    """Style differences, `first` minus `second`."""

    @property
    def flipped(self) -> "Battle":
        """The same game told from the other side."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            score=1.0 - self.score,
            order=-self.order,
            style=tuple(-d for d in self.style),
        )

    @property
    def upright(self) -> "Battle":
        """The game told from the side whose name sorts first."""
        return self if self.first <= self.second else self.flipped
