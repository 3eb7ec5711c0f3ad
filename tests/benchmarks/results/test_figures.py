"""Figures are SVG that stands in the page: valid, alike every time, with its colours."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

from benchmarks.results.figures import ACCENT, INK, drawn, name_rows, short


def bars(figure) -> None:
    axes = figure.subplots()
    axes.stairs([1, 3, 2], [0, 0.123456, 2, 3], fill=True, color=ACCENT)
    axes.plot([0, 3], [0, 2], "o", color=INK)
    name_rows(axes, ["<script>alert(1)</script>", "$x$ & 漢字", "W" * 80])


def test_a_figure_is_valid_and_the_same_every_time() -> None:
    svg = drawn(400, 200, 'three "bars"', bars)
    np.random.default_rng().random()
    assert svg == drawn(400, 200, 'three "bars"', bars)
    root = ElementTree.fromstring(svg.replace("xlink:href", "href"))
    assert root.attrib["viewBox"] == "0 0 400 200"
    assert root.attrib["aria-label"] == root.findtext("title") == 'three "bars"'
    texts = [e.text for e in root.iter("text")]
    assert {"<script>alert(1)</script>", "$x$ & 漢字", short("W" * 80)} <= set(texts)
    ids = re.findall(r' id="([^"]*)"', svg)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#(\w+)', svg)) == set(ids)


def test_colours_are_those_of_the_page() -> None:
    svg = drawn(400, 200, "bars", bars)
    assert "var(--accent)" in svg
    assert "var(--ink)" in svg
    assert not re.search(r"#[0-9a-f]{6}\b", svg)


def test_settings_of_the_user_stay_as_they_are() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    drawn(100, 100, "", lambda figure: None)
    assert dict(matplotlib.rcParams) == before
