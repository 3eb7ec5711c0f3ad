"""The axis of a column whose intervals are drawn as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from plait.benchmarks.results.numbers import NumberForm
from plait.scorers.base import ends_of

Span = tuple[float, float, float]
"""Lower end, value and upper end of one interval."""
WHOLE = 1 / 3
"""Share of a scale: where intervals take up more of it, it is shown as a whole."""
MOST_TIED = 1 / 2
"""Share of an axis that may lie between two values that cannot be told apart."""


@dataclass(frozen=True, slots=True)
class BarAxis:
    """From where to where the bars of a column can reach."""

    low: float
    high: float
    digits: int = 2
    """After the point, of the numbers at its ends."""

    @classmethod
    def of(cls, spans: Sequence[Span], scale: str, tie: float = 0.0) -> BarAxis | None:
        """Return the axis of some intervals on a scale; None for no interval.

        It covers every interval. Where the scale has ends and the intervals take up more
        than a third of it (`WHOLE`), or are a single point, it is the whole scale.
        Elsewhere it goes from the lowest to the highest end of an interval, and further, by
        the same on both sides, until `tie` is at most half of it (`MOST_TIED`): the largest
        distance between two values that cannot be told apart. It never goes beyond the
        scale. Its ends are rounded outward to two digits of its width, or to as many digits
        as numbers are printed with.
        """
        if not spans:
            return None
        low = min(span[0] for span in spans)
        high = max(span[2] for span in spans)
        form = NumberForm.of(scale)
        least, most = ends_of(scale)
        whole = most - least
        if math.isfinite(whole) and (high - low > whole * WHOLE or high == low):
            digits = 0 if least.is_integer() and most.is_integer() else form.digits
            return cls(min(least, low), max(most, high), digits)
        spare = max(0.0, tie / MOST_TIED - (high - low))
        # What one side has no room for is added to the other.
        below = min(spare / 2, low - least)
        above = min(spare - below, most - high)
        below = min(spare - above, low - least)
        return cls._round_outward(low - below, high + above, form.digits, (least, most))

    @classmethod
    def _round_outward(
        cls, low: float, high: float, digits: int, limits: tuple[float, float]
    ) -> BarAxis:
        """Return an axis with its ends rounded outward, within the limits of its scale."""
        width = high - low
        if not 0 < width < math.inf:
            return cls(low, high, digits)
        digits = min(digits, 1 - math.floor(math.log10(width)))
        step = 10.0**-digits
        # An end that is a multiple of the step stays one, whatever its last bit.
        below = math.floor(round(low / step, 6)) * step
        above = math.ceil(round(high / step, 6)) * step
        lowest = min(low, max(below, limits[0]))
        return cls(lowest, max(high, min(above, limits[1])), max(0, digits))

    @property
    def texts(self) -> tuple[str, str]:
        """What stands at its ends."""
        form = NumberForm(self.digits)
        return form.number(self.low), form.number(self.high)

    def places(self, span: Span) -> list[float]:
        """Return where an interval and its value are, in percent of the axis."""
        width = self.high - self.low
        places = []
        for value in span:
            # An axis without width is a single point, which stands in the middle.
            place = 100 * (value - self.low) / width if width else 50.0
            places.append(round(place, 1))
        return places
