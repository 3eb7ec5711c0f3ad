"""The pairings' heat map and frontier in headless Chromium: wide, on a phone, dark."""

from __future__ import annotations

import pytest
from browser_helpers import CONTRAST, MISSING, browser
from pairings_helpers import pairing_board, scores_of
from report_helpers import MANIFEST, at_hand

from benchmarks.results.report import write_report

pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

OF_CELLS = """
    return [...document.querySelectorAll(".heat .cell")].flatMap((cell) =>
      [...cell.children].map((text) => contrast(
        rgba(getComputedStyle(text).color), rgba(getComputedStyle(cell).backgroundColor))));
"""
BOXES = """
    return [...document.querySelectorAll(arguments[0])].map((e) => {
      const box = e.getBoundingClientRect();
      return [box.left, box.top, box.right, box.bottom];
    });
"""


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    made = pairing_board(scores_of(3, 4, 30), skipped={(0, 0): [1, 2]}, others=["native"])
    return write_report(made, tmp_path_factory.mktemp("run"), MANIFEST, at_hand)


def shown(chromium, page, scheme="light", width=1300, *, phone=False):
    chromium.screen(width, 900, phone=phone)
    chromium.media(scheme)
    chromium.open(page)
    chromium.wait("document.readyState === 'complete'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_in_coloured_cells_can_be_read(chromium, page, scheme):
    shown(chromium, page, scheme)
    contrasts = chromium.run(CONTRAST + OF_CELLS)
    # 12 means and 12 interactions, each with its interval; WCAG's limit for small text.
    assert len(contrasts) == 48
    assert min(contrasts) >= 4.5


def test_better_cells_have_more_colour(chromium, page):
    shown(chromium, page)
    tints = chromium.run(
        "return [...document.querySelector('.heat').querySelectorAll('.cell')].map((c) =>"
        " [parseFloat(c.querySelector('b').textContent),"
        "  parseFloat(c.style.getPropertyValue('--tint'))])"
    )
    ordered = [tint for _, tint in sorted(tints)]
    assert ordered == sorted(ordered)
    assert ordered[0] < ordered[-1]


@pytest.mark.parametrize(("width", "phone"), [(1300, False), (390, True)])
def test_heat_map_and_plot_stay_in_place(chromium, page, width, phone):
    shown(chromium, page, width=width, phone=phone)
    assert chromium.run("return document.documentElement.scrollWidth") == width
    assert chromium.run(
        "return getComputedStyle(document.querySelector('.heat')).display"
    ) == ("table")
    (panel,) = chromium.run(BOXES, ".pairings")
    (plot,) = chromium.run(BOXES, ".pairings .wider:has(.figure)")
    assert panel[0] < plot[0] < plot[2] < panel[2]
    texts = chromium.run(
        "return [...document.querySelectorAll('.pairings .figure text')]"
        ".map((e) => e.textContent)"
    )
    assert {str(i + 1) for i in range(12)} < set(texts)
