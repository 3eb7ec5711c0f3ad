"""Times in words, as forecasts, traces and tables show them."""

from __future__ import annotations


def in_words(seconds: float, seconds_below: int = 60) -> str:
    """`12 s` up to `seconds_below`, then `2 min 05 s` or `3 h 10 min`."""
    whole = round(seconds)
    if whole < seconds_below:
        return f"{whole} s"
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours} h {minute:02} min" if hours else f"{minutes} min {second:02} s"
