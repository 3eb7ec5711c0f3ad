"""Figures of the page: matplotlib draws them, and the style of the page colours them.

    drawn(640, 300, "a line", lambda figure: figure.subplots().plot([1, 2], color=ACCENT))

A figure stands in the page as SVG with text that can be selected. Equal figures are equal
bytes: nothing in them is drawn by chance, or tells when they were made.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from plait.scorers.statistics.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMES = ("ink", "muted", "line", "accent", "surface", "failed", "skipped", "unscored")
_COLOURS = {name: f"#f0000{i}" for i, name in enumerate(_NAMES)}
# No drawing has these by chance, so that each can be found and replaced in the SVG.
INK, MUTED, LINE, ACCENT, SURFACE, FAILED, SKIPPED, UNSCORED = _COLOURS.values()
"""Colours to draw with; each stands for one of the page, which differs by its theme."""
_STYLE = Path(__file__).parent / "report" / "template" / "figures.mplstyle"
_NARROW = 560
"""On narrower screens a figure scrolls sideways, so that its text stays legible; on a phone
it is as wide as the screen, where two fingers enlarge it."""


def draw(
    width: float, height: float, words: str, paint: Callable[[Figure], None]
) -> Markup:
    """An element of the page: what `paint` draws in an empty figure of the style above.

    Width and height are in CSS pixels; `words` tell what the figure shows.
    """
    import matplotlib
    from matplotlib.figure import Figure

    file = io.StringIO()
    with matplotlib.rc_context(fname=_STYLE), warnings.catch_warnings():
        # Of letters that the browser has and matplotlib's font lacks; of little room.
        warnings.simplefilter("ignore", UserWarning)
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        paint(figure)
        figure.savefig(file, format="svg", metadata={"Date": None})
    return Markup(
        '<svg class="figure" viewBox="0 0 {0:g} {1:g}" style="max-width:{0:g}px;'
        'min-width:{2:g}px" role="img" aria-label="{3}"><title>{3}</title>{4}</svg>'
    ).format(width, height, min(width, _NARROW), words, _content(file.getvalue()))


def _content(svg: str) -> Markup:
    svg = svg[svg.index("<g ") : svg.rindex("</svg>")]
    # What is referred to is named by its content; all other names repeat in each figure.
    svg = re.sub(r' id="[A-Za-z][\w.]*_\d+"', "", svg)
    svg = re.sub(r"font-family: [^;]*", "font-family: var(--sans)", svg)
    svg = re.sub(r'(?<= d=")[^"]*', lambda path: _shorter(path[0]), svg)
    for name, colour in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return Markup(svg)


def _shorter(path: str) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", " ".join(path.split()))


def name_rows(axes: Axes, names: list[str]) -> None:
    """Label one row for each name, the first on top, without an axis between them."""
    places = range(len(names))
    axes.set_yticks(places, [short(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def short(name: str, most: int = 34) -> str:
    """Cut a long name to `most` characters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def error_bar(estimate: Estimate) -> list[list[float]] | None:
    """Return the distances to the ends of an interval, as `errorbar` takes them."""
    if estimate.ci95 is None or estimate.value is None:
        return None
    low = max(0.0, estimate.value - estimate.ci95[0])
    high = max(0.0, estimate.ci95[1] - estimate.value)
    return [[low], [high]]
