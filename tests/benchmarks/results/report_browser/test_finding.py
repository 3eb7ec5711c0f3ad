"""Queries are found in a report: filters, orders, pages, links and the search."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_browser_helpers import (
    BROWSER_MARKS,
    CARDS,
    MSR,
    PBL,
    complaints,
    ids,
    opened,
    text_of,
)
from report_helpers import (
    MANIFEST,
    at_hand,
    mixed_board,
    plain_board,
)

from benchmarks.results.report import write_report

pytestmark = BROWSER_MARKS


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"#category": PBL}, [1, 5, 9]),
        ({"#field": "art"}, [1, 5, 9]),
        ({"#category": MSR}, []),
        ({"#outcome": "failed"}, [7]),
        ({"#outcome": "failed", "#system": "a"}, []),
        ({"#outcome": "skipped"}, [11]),
        ({"#outcome": "not made"}, [10]),
        ({"#outcome": "unscored"}, [5]),
        ({"#outcome": "not applicable"}, [4]),
        ({"#outcome": "score skipped"}, [6]),
        ({"#low": "5"}, [1, 2, 4]),
        ({"#low": "5", "#system": "b"}, [1, 2]),
        ({"#low": "1", "#high": "2"}, [3, 5, 6, 7]),
        ({"#text": "answer 3 OF b"}, [3]),
        ({"#text": "q-0002"}, [2]),
        ({"#text": "ran out"}, [7]),
        ({"#order": "worst first", "#low": "0"}, [7, 3, 5, 6, 0, 1, 8, 9, 10, 11]),
        ({"#order": "worst first", "#high": "2", "#system": "b"}, [3, 5, 6]),
        ({"#order": "worst first", "#system": "b"}, [3, 5, 6, 0, 8, 9, 1, 2, 4, 7]),
        ({"#order": "best first", "#low": "5"}, [2, 4, 1]),
        ({"#order": "biggest disagreement", "#category": PBL}, [1, 9, 5]),
    ],
)
def test_filters_and_orders(chromium, page, choices, expected):
    opened(chromium, page)
    for selector, value in choices.items():
        if selector in ("#low", "#high", "#text"):
            chromium.type(selector, value)
        else:
            chromium.choose(selector, value)
    ids(chromium, expected)
    fragment = chromium.run("return location.hash")
    assert chromium.run("return document.querySelector('#reset').hidden") is False
    chromium.click("#reset")
    ids(chromium, list(range(10)))
    opened(chromium, page, fragment)
    ids(chromium, expected)
    assert complaints(chromium) == []


def test_systems_can_be_hidden(chromium, page):
    opened(chromium, page)
    chromium.click("#columns label:first-child input")
    chromium.wait("document.querySelectorAll('.answer').length === 10")
    assert "Answer 0 of a" not in text_of(chromium, "#cards")
    chromium.choose("#outcome", "unscored")
    ids(chromium, [])


def test_pages_turn_by_button_and_by_key(chromium, page):
    opened(chromium, page)
    chromium.click('[aria-label="Next page"]')
    ids(chromium, [10, 11])
    chromium.type("body", "p")
    ids(chromium, list(range(10)))
    chromium.choose("#size", "25")
    ids(chromium, list(range(12)))


def test_link_to_a_query_opens_its_page_and_marks_it(chromium, page):
    opened(chromium, page, "#Q-0011")
    chromium.wait("document.querySelector('.card.here')?.dataset.anchor === 'Q-0011'")
    ids(chromium, [10, 11])
    top = "document.querySelector('.card.here').getBoundingClientRect().top"
    assert 0 <= chromium.run(f"return {top}") < 1000
    chromium.run("location.hash = '#Q-0001'")
    chromium.wait("document.querySelector('.card.here')?.dataset.anchor === 'Q-0001'")
    chromium.type("body", "j")
    chromium.wait("document.querySelector('.card.here')?.dataset.anchor === 'Q-0002'")


@pytest.fixture(scope="module")
def large_page(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("large")
    return write_report(plain_board(3000), root, MANIFEST, at_hand, "all")


def test_large_runs_are_searched_in_few_chunks_at_a_time(chromium, large_page):
    opened(chromium, large_page)
    assert "3,000 queries" in text_of(chromium, "#filters")
    read = [u for u in chromium.requests() if "data-" in u]
    assert len(read) == 1
    chromium.type("#text", "word 2987.")
    ids(chromium, [2987])
    chromium.wait("!document.querySelector('#cards').hasAttribute('aria-busy')")
    assert chromium.run("return document.querySelectorAll('head script').length") == 0
    # The search has read more files than stay in memory: the first is read again.
    chromium.click("#reset")
    ids(chromium, list(range(10)))
    assert sum("data-000" in url for url in chromium.requests()) == 1
    opened(chromium, large_page, "#Q-2999")
    chromium.wait("document.querySelector('.card.here')?.dataset.anchor === 'Q-2999'")
    chromium.run(
        "const page = document.querySelector('[aria-label=\"Page number\"]');"
        "page.value = '2'; page.dispatchEvent(new Event('change'))"
    )
    ids(chromium, list(range(10, 20)))
    assert complaints(chromium) == []


def test_matches_are_shown_while_the_search_goes_on(chromium, large_page):
    opened(chromium, large_page)
    chromium.run(
        "window.shown = []; new MutationObserver(() => shown.push("
        f"[{CARDS}.length, document.querySelector('#cards').hasAttribute('aria-busy')]))"
        ".observe(document.querySelector('#cards'), { childList: true });"
    )
    chromium.type("#text", "q-2999")
    ids(chromium, [2999])
    assert [1, True] in chromium.run("return shown")
    chromium.choose("#order", "worst first")
    ids(chromium, [2999])
    chromium.wait("!document.querySelector('#cards').hasAttribute('aria-busy')")
    assert "1 of 3,000 queries" in text_of(chromium, "#filters")


@pytest.mark.parametrize("id", ["Q-9999", "a=b", "%"])
def test_link_to_an_unknown_id_says_so(chromium, page, id):
    opened(chromium, page, f"#{id}")
    chromium.wait("!document.querySelector('#unknown').hidden")
    said = text_of(chromium, "#unknown")
    assert said == f'This report has no query with the id "{id}".'
    ids(chromium, list(range(10)))
    assert chromium.run("return document.querySelectorAll('.card.here').length") == 0
    chromium.run("location.hash = '#Q-0001'")
    chromium.wait("document.querySelector('.card.here')?.dataset.anchor === 'Q-0001'")
    assert chromium.run("return document.querySelector('#unknown').hidden")
    chromium.run("location.hash = '#Q-0099'")
    chromium.wait("!document.querySelector('#unknown').hidden")
    chromium.choose("#category", PBL)
    ids(chromium, [1, 5, 9])
    assert chromium.run("return document.querySelector('#unknown').hidden")


def test_only_the_chunks_in_view_are_read(chromium, tmp_path):
    page = write_report(mixed_board(100, ["a"]), tmp_path, MANIFEST, at_hand)
    opened(chromium, page, "#page=3")
    ids(chromium, list(range(20, 30)))
    read = [u.rpartition("/")[2] for u in chromium.requests() if "data-" in u]
    assert read == ["data-001.js"]
