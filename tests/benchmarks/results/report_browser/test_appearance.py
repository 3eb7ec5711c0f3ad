"""A report on a phone, in light and dark, and on paper."""

from __future__ import annotations

import pytest
from browser_helpers import CONTRAST
from report_browser_helpers import (
    BROWSER_MARKS,
    PBL,
    opened,
)
from report_helpers import (
    MANIFEST,
    at_hand,
    mixed_board,
)

from benchmarks.results.report import write_report

pytestmark = BROWSER_MARKS


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_has_no_sideways_scroll_and_its_filters_unfold(chromium, tmp_path, scheme):
    names = ["anole", "gpt-4o+sdxl-turbo@outline", "qwen2-vl-72b+openjourney"]
    page = write_report(mixed_board(24, names), tmp_path, MANIFEST, at_hand)
    chromium.screen(375, 740, scale=2, phone=True)
    chromium.media(scheme)
    opened(chromium, page)
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert chromium.run("return document.documentElement.scrollWidth") == 375
    assert (
        chromium.run("return getComputedStyle(document.querySelector('#choices')).display")
        == "none"
    )
    chromium.click("#more")
    chromium.choose("#category", PBL)
    chromium.wait("document.querySelectorAll('.card').length === 8")
    assert chromium.run("return document.documentElement.scrollWidth") == 375


WORST = """
    const behind = (node) => {
      for (let n = node; n; n = n.parentElement) {
        const c = rgba(getComputedStyle(n).backgroundColor);
        if (c[3] === 255) return c;
      }
      return [255, 255, 255];
    };
    const worst = [];
    for (const node of document.querySelectorAll("main *")) {
      const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
      if (!own || !node.checkVisibility()) continue;
      if (node.closest(":disabled, .sr, option")) continue;
      const style = getComputedStyle(node);
      if (style.opacity !== "1") { worst.push([0, "opacity " + node.className]); continue; }
      const seen = contrast(rgba(style.color), behind(node));
      worst.push([seen, node.localName + "." + node.className]);
    }
    return worst.sort((x, y) => x[0] - y[0])[0];"""


def test_nothing_on_a_phone_scrolls_sideways(chromium, tmp_path):
    names = ["anole", "gpt-4o+sdxl-turbo@outline", "qwen2-vl-72b+openjourney", "W" * 80]
    page = write_report(mixed_board(24, names), tmp_path, MANIFEST, at_hand)
    chromium.screen(390, 844, scale=2, phone=True)
    opened(chromium, page)
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    beyond = """return [...document.querySelectorAll("main *")]
        .filter((n) => n.checkVisibility() && !n.closest("thead, .sr, svg, .pages, .raw"))
        .filter((n) => n.getBoundingClientRect().right > innerWidth + 1)
        .map((n) => n.localName + "." + n.className)"""
    assert chromium.run(beyond) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_the_contrast_of_wcag_aa(chromium, page, scheme):
    chromium.media(scheme)
    opened(chromium, page, "#size=25")
    chromium.wait("document.querySelectorAll('.card').length === 12")
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    ratio, where = chromium.run(CONTRAST + WORST)
    assert ratio >= 4.5, where


def test_theme_can_be_switched(chromium, page):
    opened(chromium, page)
    paper = "return getComputedStyle(document.body).backgroundColor"
    before = chromium.run(paper)
    chromium.click("#theme")
    assert chromium.run(paper) != before


def test_print_shows_answers_without_controls(chromium, page):
    opened(chromium, page)
    chromium.media("dark", "print")
    display = "return getComputedStyle(document.querySelector(arguments[0])).display"
    assert chromium.run(display, "#filters") == "none"
    assert chromium.run(display, ".card") != "none"
    assert (
        chromium.run("return getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
