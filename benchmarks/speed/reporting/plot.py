"""A plot of one measurement: throughput and latency of each way, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.speed.reporting.figures import Figure
from benchmarks.speed.reporting.output import Report

_RATES = ("image_throughput", "output_token_throughput", "request_throughput")
"""The first that every way has is drawn."""
_BAR, _GAP, _LABEL, _PANEL, _VALUE = 18, 10, 120, 240, 90
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.title{font-weight:600}"
    ".quiet{fill:#666}.bar{fill:#2b6cb0}.tail{stroke:#dd8452;stroke-width:3}"
    ".ground{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#eee}.quiet{fill:#aaa}"
    ".bar{fill:#63a4e0}.ground{fill:#16181c}}"
)


@dataclass(frozen=True)
class _Bar:
    """One bar, and how far its tail goes."""

    value: float
    tail: float | None = None


def plot(title: str, report: Report) -> str:
    """Two panels of horizontal bars, one bar per way; an SVG of its own."""
    ways = [speed.way for speed in report.speeds]
    figures = [report.figures(speed).present for speed in report.speeds]
    name = next(n for n in _RATES if n == _RATES[-1] or all(n in f for f in figures))
    rates = [_bar(f.get(name)) for f in figures]
    times = [_bar(f.get("request_latency")) for f in figures]
    unit = next((f[name].unit for f in figures if name in f), "requests/s")
    right = _LABEL + _PANEL + _VALUE + 30
    height = 66 + len(ways) * (_BAR + _GAP) + 10
    panels = [
        *_panel(0, f"{name}, {unit}", ways, rates),
        *_panel(right, "request_latency, ms: median, line to p99", ways, times),
    ]
    width = right + _LABEL + _PANEL + _VALUE + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(title)}">\n'
        f'<style>{_STYLE}</style>\n<rect class="ground" width="100%" height="100%"/>\n'
        f'<text class="title" x="10" y="20">{escape(title)}</text>\n'
        + "\n".join(panels)
        + "\n</svg>\n"
    )


def _bar(figure: Figure | None) -> _Bar | None:
    if figure is None:
        return None
    if figure.spread is None:
        return _Bar(figure.value)
    return _Bar(figure.spread["median"], figure.spread["p99"])


def _panel(
    left: int, head: str, ways: Sequence[str], bars: Sequence[_Bar | None]
) -> list[str]:
    most = max((max(b.value, b.tail or 0.0) for b in bars if b), default=0.0) or 1.0
    lines = [f'<text class="quiet" x="{left + 10}" y="44">{escape(head)}</text>']
    for i, (way, bar) in enumerate(zip(ways, bars, strict=True)):
        top = 58 + i * (_BAR + _GAP)
        middle = top + _BAR / 2
        lines.append(f'<text x="{left + 10}" y="{middle + 4}">{escape(way)}</text>')
        lines += _drawn(left + _LABEL, top, bar, most)
    return lines


def _drawn(left: int, top: float, bar: _Bar | None, most: float) -> list[str]:
    middle = top + _BAR / 2
    if bar is None:
        return [f'<text class="quiet" x="{left}" y="{middle + 4}">not measured</text>']
    width, tail = (_PANEL * v / most for v in (bar.value, bar.tail or bar.value))
    lines = [
        f'<rect class="bar" x="{left}" y="{top}" width="{width:.1f}" height="{_BAR}"/>'
    ]
    if bar.tail is not None:
        ends = f'x1="{left + width:.1f}" x2="{left + tail:.1f}"'
        lines.append(f'<line class="tail" {ends} y1="{middle}" y2="{middle}"/>')
    at = left + max(width, tail) + 8
    lines.append(f'<text x="{at:.1f}" y="{middle + 4}">{bar.value:.4g}</text>')
    return lines
