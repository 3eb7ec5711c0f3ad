"""The page of worst pairs in real headless Chromium, opened from disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_helpers import MISSING, browser

from benchmarks.fidelity.config import load_config
from benchmarks.fidelity.measure import measured
from benchmarks.fidelity.page import page_of

pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ways = (
        {"name": "batch 1"},
        {"name": "engine", "spots": 3, "changed": [0, 1], "failing": [7], "alone": [2]},
        {"name": "shaky", "unsteady": True},
        {"name": "gone", "broken": True},
    )
    given = {"system": "fidelity_helpers:Illustrated", "ways": ways, "clip": "off"}
    given |= {"data": "fidelity_helpers:numbers", "gates": ("text.equal>=0.9",), "worst": 4}
    made = measured(load_config(None, given), ["fidelity_helpers:Illustrated"])
    place = tmp_path_factory.mktemp("page") / "fidelity.html"
    place.write_text(page_of(made, 4))
    return place


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


def test_the_worst_pairs_stand_side_by_side(chromium, page: Path) -> None:
    chromium.screen(1400, 1000)
    chromium.open(page)
    groups = chromium.run(
        "return [...document.querySelectorAll('h2')].map(h => h.innerText)"
    )
    assert groups[-4:] == [
        "engine",
        "shaky",
        "shaky, run again with the same seeds",
        "About",
    ]
    first = "document.querySelector('#section-worst .cards')"
    # The failure first, then the answer without its picture, then the changed texts.
    ids = chromium.run(f"return [...{first}.querySelectorAll('h3')].map(h => h.innerText)")
    assert ids[:2] == ["7", "2"]
    assert chromium.run(f"return {first}.querySelector('.broken').innerText") == "refused"
    marks = f"[...{first}.querySelectorAll('mark')].map(m => m.innerText)"
    assert chromium.run(f"return {marks}") != []
    sizes = "[...document.images].map(i => i.naturalWidth)"
    assert set(chromium.run(f"return {sizes}")) == {16}
    tops = f"[...{first}.querySelectorAll('.card')[2].querySelectorAll('.answer')]"
    places = chromium.run(f"return {tops}.map(a => a.getBoundingClientRect().top)")
    assert len(places) == 3
    assert len(set(places)) == 1
    outside = [url for url in chromium.requests() if not url.startswith("data:")]
    assert outside == [page.as_uri()]
    assert [e for e in chromium.logs("browser") if e["level"] == "SEVERE"] == []


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_wider_than_the_screen(chromium, page: Path, width: int) -> None:
    chromium.screen(width, 900, phone=width < 500)
    chromium.open(page)
    assert chromium.run("return document.documentElement.scrollWidth") <= width
