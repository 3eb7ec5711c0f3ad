"""The report in real headless Chromium, opened from disk."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from browser_helpers import MISSING, Browser, browser
from report_helpers import (
    HOSTILE,
    MANIFEST,
    answer,
    at_hand,
    board,
    evaluation,
    mixed_board,
    picture,
    plain_board,
    sample,
    system,
)

from benchmarks.results.report import write_report
from generators.base import Failure, Fault, NotApplicable, Result, Skip, Unscored
from generators.document import Document, Score, Text, Turn

pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

CARDS = "[...document.querySelectorAll('.card')].map((c) => c.dataset.anchor)"
RIGHT, LEFT, ESCAPE = "\ue014", "\ue012", "\ue00c"
"""Keys by the names of the WebDriver protocol."""
PBL, MSR = "project-based learning", "multi-step reasoning"


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(autouse=True)
def desktop(chromium):
    chromium.screen(1400, 1000)
    chromium.media("light")


def by_hand():
    """Twelve queries of two systems, each with a reason to be found by a filter."""
    scores = {
        "a": [3, 0, 6, 2, 5, Unscored("unreadable"), Skip("judge is blind"), 1, 4, 4, 4, 4],
        "b": [3, 6, 6, 1, NotApplicable("no"), 2, 2, None, 4, 4, 4, "skip"],
    }
    found = []
    for i in range(12):
        category, field = (
            (PBL, "art") if i % 4 == 1 else ("situational analysis", "literature")
        )
        asked = sample(i, category, field)
        for name, given in scores.items():
            said = answer(f"Answer {i} of {name}", picture(i), "and the end.")
            score = given[i]
            if score is None:
                said, score = Failure("ran out", Fault.OUT_OF_MEMORY), None
            elif score == "skip":
                said, score = Skip("one picture only"), None
            found.append(evaluation(name, asked, score, document=said))
    found = [e for e in found if (e.system, e.sample.id) != ("b", "Q-0010")]
    return board(found, systems=[system("a"), system("b", "tiny")], missing=1)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write_report(by_hand(), tmp_path_factory.mktemp("run"), MANIFEST, at_hand)


def opened(chromium: Browser, page: Path, fragment: str = "") -> Browser:
    chromium.open(page, fragment)
    chromium.wait("!document.querySelector('#cards').hasAttribute('aria-busy')")
    return chromium


def ids(chromium: Browser, expected: list[int]) -> None:
    """Wait until exactly these queries are shown, in this order."""
    names = [f"Q-{i:04d}" for i in expected]
    chromium.wait(f"JSON.stringify({CARDS}) === JSON.stringify({names})")


def complaints(chromium: Browser) -> list[str]:
    return [e["message"] for e in chromium.logs("browser") if e["level"] != "INFO"]


def text_of(chromium: Browser, selector: str) -> str:
    return chromium.run("return document.querySelector(arguments[0]).innerText", selector)


def test_opens_from_disk_without_network_and_without_errors(chromium, page):
    opened(chromium, page)
    ids(chromium, list(range(10)))
    chromium.run("document.querySelector('#cards').scrollIntoView()")
    pictures = "[...document.querySelectorAll('.card:first-child .answer img')]"
    chromium.wait(f"{pictures}.length && {pictures}.every((i) => i.naturalWidth === 64)")
    asked = chromium.requests()
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert any(url.endswith("report/data-000.js") for url in asked)
    assert complaints(chromium) == []


def test_card_shows_question_pictures_in_place_scores_and_reasons(chromium, page):
    opened(chromium, page, "#Q-0007")
    card = "[data-anchor='Q-0007'] "
    chromium.wait(f'document.querySelector("{card}")')
    kinds = "return [...document.querySelectorAll(arguments[0])].map((n) => n.localName)"
    selector = card + ".answer:first-child .content > *"
    assert chromium.run(kinds, selector) == ["p", "figure", "p"]
    assert "What happens in scene 7?" in text_of(chromium, card + ".ask")
    first = text_of(chromium, card + ".answer:nth-child(1)")
    assert re.search(r"judge\s*1\.00", first)
    second = text_of(chromium, card + ".answer:nth-child(2)")
    assert "tiny weights" in second
    assert "failed" in second
    assert "out of memory: ran out" in second
    opened(chromium, page, "#Q-0005")
    chromium.wait("document.querySelector('.card.here')")
    assert "judge: unreadable" in text_of(chromium, ".card.here .answer")


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
    return write_report(
        plain_board(3000), tmp_path_factory.mktemp("large"), MANIFEST, at_hand
    )


def test_large_runs_are_searched_in_few_chunks_at_a_time(chromium, large_page):
    opened(chromium, large_page)
    assert "3,000 queries" in text_of(chromium, "#filters")
    read = [u for u in chromium.requests() if "data-" in u]
    assert len(read) == 1
    chromium.type("#text", "word 2987.")
    ids(chromium, [2987])
    chromium.wait("!document.querySelector('#cards').hasAttribute('aria-busy')")
    assert chromium.run("return store.chunks.size") <= 120
    assert chromium.run("return document.querySelectorAll('head script').length") == 0
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


def test_picture_opens_in_full_size(chromium, page):
    opened(chromium, page, "#Q-0000")
    chromium.wait("document.querySelector('.card.here')")
    chromium.click(".card.here .answer a.picture")
    chromium.wait("document.querySelector('#viewer[open] img').naturalWidth === 64")
    source = chromium.run("return document.querySelector('#viewer img').src")
    assert "/report/images/" in source
    chromium.click("#viewer button")
    chromium.wait("!document.querySelector('#viewer').open")


def several_pictures():
    """Two systems with two pictures and one, and a question with one."""
    said = {"a": [picture(1), picture(2)], "b": [picture(3)]}
    found = [evaluation(n, sample(0), 3, document=answer(*p)) for n, p in said.items()]
    return board(found)


def test_viewer_goes_on_to_the_next_picture_and_sets_them_side_by_side(chromium, tmp_path):
    opened(chromium, write_report(several_pictures(), tmp_path, MANIFEST, at_hand))
    figures = "[...document.querySelectorAll('#stage figure')]"
    captions = f"return {figures}.map((f) => f.querySelector('figcaption').innerText)"
    drawn = f"return {figures}.map((f) => Boolean(f.querySelector('img')))"
    position = "return document.querySelector('#position').value"
    chromium.click(".answer:nth-child(1) a.picture")
    assert chromium.run(captions) == ["Picture by a"]
    assert chromium.run(position) == "3 of 5"
    chromium.click("#later")
    chromium.type("#later", RIGHT)
    assert chromium.run(captions) == ["Picture by b"]
    assert chromium.run(position) == "5 of 5"
    assert chromium.run("return document.querySelector('#later').disabled")
    chromium.type("#earlier", LEFT)
    assert chromium.run(position) == "4 of 5"
    chromium.type("#earlier", "s")
    owners = ["Picture of the ground truth", "Picture by a", "Picture by b"]
    assert chromium.run(captions) == owners
    assert chromium.run(position) == "2 of 2"
    assert chromium.run(drawn) == [False, True, False]
    chromium.click("#earlier")
    assert chromium.run(drawn) == [True, True, True]
    tops = f"return {figures}.map((f) => f.getBoundingClientRect().top)"
    assert len(set(chromium.run(tops))) == 1
    chromium.click("#beside")
    assert chromium.run(position) == "2 of 5"
    assert complaints(chromium) == []
    chromium.screen(390, 844, phone=True)
    chromium.click("#beside")
    box = "document.querySelector('#viewer')"
    assert chromium.run(f"return {box}.scrollWidth <= {box}.clientWidth")
    chromium.type("#beside", ESCAPE)
    chromium.wait(f"!{box}.open")


def test_interval_bars_stand_on_an_axis_and_scores_are_drawn(chromium, page):
    opened(chromium, page)
    ticks = "[...document.querySelectorAll('thead .axis span')]"
    first = "document.querySelector('tbody .whisker')"
    box = "n.getBoundingClientRect()"
    middle = f"((n) => ({box}.left + {box}.right) / 2)"
    values = chromium.run(f"return {ticks}.map((t) => Number(t.innerText))")
    assert 2 <= len(values) <= 8
    assert values == sorted(values)
    # Ticks lie where the bars of their values would.
    places = chromium.run(f"return {ticks}.map({middle})")
    lines = chromium.run(f"return [...{first}.querySelectorAll('s')].map({middle})")
    assert lines == pytest.approx(places, abs=1)
    mean = chromium.run(f"return {middle}({first}.querySelector('b'))")
    value = float(text_of(chromium, "tbody tr .head b"))
    slope = (places[-1] - places[0]) / (values[-1] - values[0])
    assert mean == pytest.approx(places[0] + (value - values[0]) * slope, abs=2)
    assert chromium.run("return document.querySelectorAll('.bars').length") == 4
    chromium.click(".panel table a[href^='#Q-']")
    chromium.wait("document.querySelector('.card.here')?.dataset.anchor === 'Q-0001'")
    chromium.click("a[href='#order=apart&scorer=0']")
    ids(chromium, [1, 3, 0, 2, 8, 9, 4, 5, 6, 7])


def hostile_board():
    found = []
    for i, text in enumerate(HOSTILE):
        turns = (Turn("user", (Text(text),)), Turn("assistant", (Text(text),)))
        about = {"turns": turns, "reference": Document((Text(text),)), "criteria": text}
        asked = replace(sample(i), id=f"{i} {text}", **about)
        judged = Result(
            Score(1.0, {text: [{text: text}], "list": [text]}), notes={text: text}
        )
        said = Result(Document(tuple(Text(t) for t in HOSTILE)), notes={"prompt": text})
        found.append(evaluation(HOSTILE[0], asked, judged, document=said))
        failed = Failure(text, Fault.ERROR, notes={text: None})
        found.append(evaluation(HOSTILE[1], asked, None, document=failed))
    return board(found, selection=HOSTILE[1])


def test_hostile_text_is_shown_and_never_run(chromium, tmp_path):
    page = write_report(hostile_board(), tmp_path, {"status": HOSTILE[1]}, at_hand)
    opened(chromium, page)
    chromium.wait("document.querySelectorAll('.card').length === 10")
    shown = "document.querySelectorAll('.card:first-child .answer:first-child .content p')"
    # As JSON, since the driver's own protocol cannot carry a lone surrogate.
    texts = chromium.run(f"return JSON.stringify([...{shown}].map((p) => p.textContent))")
    assert json.loads(texts) == list(HOSTILE)
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert (
        chromium.run("return document.querySelectorAll('script, img, b script').length")
        == 2
    )
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    assert complaints(chromium) == []
    chromium.screen(390, 844, phone=True)
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    for link in chromium.run(
        "return [...document.querySelectorAll('.card h3 a')].map((a) => a.hash)"
    ):
        chromium.run("location.hash = arguments[0]", link)
    assert complaints(chromium) == []


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


CONTRAST = """
    const canvas = document.createElement("canvas").getContext("2d");
    const rgba = (colour) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = (c) => c.slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
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
      const [a, b] = [light(rgba(style.color)), light(behind(node))].sort((x, y) => y - x);
      worst.push([(a + 0.05) / (b + 0.05), node.localName + "." + node.className]);
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
    ratio, where = chromium.run(CONTRAST)
    assert ratio >= 4.5, where


def test_theme_can_be_switched(chromium, page):
    opened(chromium, page)
    paper = "return getComputedStyle(document.body).backgroundColor"
    before = chromium.run(paper)
    chromium.click("#theme")
    assert chromium.run(paper) != before


def test_only_the_chunks_in_view_are_read(chromium, tmp_path):
    page = write_report(mixed_board(100, ["a"]), tmp_path, MANIFEST, at_hand)
    opened(chromium, page, "#page=3")
    ids(chromium, list(range(20, 30)))
    read = [u.rpartition("/")[2] for u in chromium.requests() if "data-" in u]
    assert read == ["data-001.js"]


def test_long_answers_are_folded_until_asked_for(chromium, tmp_path):
    long, short = answer("line\n" * 200), answer("short")
    found = [
        evaluation("a", sample(0), 1, document=long),
        evaluation("b", sample(0), 1, document=short),
    ]
    opened(chromium, write_report(board(found), tmp_path, MANIFEST, at_hand))
    boxes = "[...document.querySelectorAll('.answer .content')].map((c) => c.parentNode)"
    heights = f"return {boxes}.map((box) => box.offsetHeight)"
    assert 400 < chromium.run(heights)[0] < 600
    assert chromium.run("return document.querySelectorAll('.unfold').length") == 1
    chromium.click(".unfold")
    assert chromium.run(heights)[0] > 3000


def test_answers_to_the_turns_of_a_conversation_stand_apart(chromium, tmp_path):
    turns = [("user", "who?"), ("assistant", "Tom"), ("user", "where?")]
    asked = replace(sample(0), turns=tuple(Turn(r, (Text(t),)) for r, t in turns))
    answers = [(Text("Tim"), picture(1)), (), (Text("here"),)]
    talked = Result(Document.of(answers))
    made = board([evaluation("a", asked, 1, document=talked)])
    opened(chromium, write_report(made, tmp_path, MANIFEST, at_hand))
    ids(chromium, [0])
    question = [line for line in text_of(chromium, ".ask").split("\n") if line]
    assert (
        "\n".join(question)
        .lower()
        .startswith("question\nuser\nwho?\npublished answer\ntom\nuser\nwhere?")
    )
    parts = (
        "return [...document.querySelectorAll('.answer .content .content, .answer .role')]"
    )
    told = chromium.run(f"{parts}.map((part) => part.innerText || part.innerHTML.length)")
    assert told[:2] == ["answer to turn 1", "Tim"]
    assert told[2:] == ["answer to turn 2", "answer to turn 3", "here"]
    assert "The answer is empty." in text_of(chromium, ".answer")
    assert chromium.run("return document.querySelectorAll('.answer img').length") == 1
    assert complaints(chromium) == []


def test_missing_folder_is_explained(chromium, page, tmp_path):
    shutil.copy(page, tmp_path / "report.html")
    chromium.open(tmp_path / "report.html")
    chromium.wait(
        "document.querySelector('#loading').textContent.includes('must be beside')"
    )
    assert "Outcomes" in text_of(chromium, "main")


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
