"""The page in headless Chromium, opened from disk: one browser, a page for each purpose."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser_helpers import CONTRAST, MISSING, Browser, browser
from pairings_helpers import costs_by_hand
from report_helpers import (
    HOSTILE,
    MANIFEST,
    Judge,
    answer,
    board,
    board_of,
    evaluation,
    mixed_board,
    picture,
    plain_board,
    sample,
    stage,
    system,
)

from plait.benchmarks.results.report import write_page_alone, write_report
from plait.generators.base import Failure, Fault, NotApplicable, Result, Skip, Unscored
from plait.generators.document import Document, Image, Score, Text, Turn

pytestmark = [
    pytest.mark.browser,
    pytest.mark.figures,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]

HERE = "document.querySelector('.card')?.dataset.anchor"
PBL = "project-based learning"
RIGHT, LEFT, ESCAPE = "\ue014", "\ue012", "\ue00c"
"""Keys by the names of the WebDriver protocol."""


@pytest.fixture(scope="module")
def session() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def chromium(session: Browser) -> Iterator[Browser]:
    """The browser on a desktop's screen; no page may have complained."""
    session.screen(1400, 1000)
    session.media("light")
    yield session
    told = [e["message"] for e in session.logs("browser") if e["level"] != "INFO"]
    assert told == []


def opened(chromium: Browser, page: Path, fragment: str = "") -> Browser:
    chromium.open(page, fragment)
    chromium.wait("!document.querySelector('#cards').hasAttribute('aria-busy')")
    return chromium


BOXES = """
    return arguments[0].map((selector) => {
      const box = document.querySelector(selector).getBoundingClientRect();
      return [box.left, box.right, box.bottom, box.top];
    });"""


def unfolded(chromium: Browser) -> None:
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")


def ids(chromium: Browser, expected: list[int], at: int = 0) -> None:
    """Wait until exactly these queries are left, in this order; the `at`-th is shown."""
    names = [f"Q-{i:04d}" for i in expected]
    found = "matches.map((i) => store.index.entries[i][0])"
    chromium.wait(f"JSON.stringify({found}) === JSON.stringify({names})")
    chromium.wait(f"{HERE} == {names[at]!r}" if names else f"{HERE} === undefined")


def text_of(chromium: Browser, selector: str) -> str:
    return chromium.run("return document.querySelector(arguments[0]).innerText", selector)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve queries of two systems, each with a reason to be found by a filter."""
    scores = {
        "a": [3, 0, 6, 2, 5, Unscored("unreadable"), Skip("judge is blind"), 1, 4, 4, 4, 4],
        "b": [3, 6, 6, 1, NotApplicable("no"), 2, 2, None, 4, 4, 4, "skip"],
    }
    found = []
    for i in range(12):
        group = (PBL, "art") if i % 4 == 1 else ("situational analysis", "literature")
        for name, given in scores.items():
            said = answer(f"Answer {i} of {name}", picture(i), "and the end.")
            if (score := given[i]) is None:
                said = Failure("ran out", Fault.OUT_OF_MEMORY)
            elif score == "skip":
                said, score = Skip("one picture only"), None
            else:
                said = replace(said, notes={name: [{"prompt": f"Tell {i} to {name}."}]})
            found.append(evaluation(name, sample(i, *group), score, document=said))
    found = [e for e in found if (e.system, e.query.id) != ("b", "Q-0010")]
    set_ = replace(stage("a"), settings={"temperature": 0.25}, seeded=True)
    systems = [replace(system("a"), draft=set_), system("b", "tiny")]
    made = board(found, systems=systems, missing=1)
    return write_report(made, tmp_path_factory.mktemp("by hand"), MANIFEST, Image.read)


@pytest.fixture(scope="module")
def special(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several images of two systems; a conversation; a long answer; files of two images."""
    turns = [("user", "who?"), ("assistant", "Tom"), ("user", "where?")]
    asked = replace(sample(1), turns=tuple(Turn(r, (Text(t),)) for r, t in turns))
    talked = Result(Document.of([(Text("Tim"), picture(1)), (), (Text("here"),)]))
    found = [
        evaluation("a", sample(0), 3, document=answer(picture(1), picture(2))),
        evaluation("b", sample(0), 3, document=answer(picture(3))),
        evaluation("a", asked, 1, document=talked),
        evaluation("a", sample(2), 1, document=answer("line\n" * 200)),
        evaluation("b", sample(2), 1, document=answer("short")),
        evaluation("a", sample(3), 1, document=answer(*(picture(k, 8) for k in range(80)))),
    ]
    root = tmp_path_factory.mktemp("special") / "it's elsewhere #2"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plait.benchmarks.results.report.images.PACK", 2)
        patch.setattr("plait.benchmarks.results.report.page.PACK", 2)
        write_report(board(found), root.with_name("run"), MANIFEST, Image.read)
    return root.with_name("run").rename(root) / "report.html"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Markup, long words and control characters wherever text comes from outside."""
    found = []
    for i, text in enumerate(HOSTILE):
        turns = (Turn("user", (Text(text),)), Turn("assistant", (Text(text),)))
        about = {"turns": turns, "reference": Document((Text(text),)), "criteria": text}
        asked = replace(sample(i), id=f"{i} {text}", **about)
        parts = {text: [{text: text}], "list": [text]}
        said = Result(Document(tuple(Text(t) for t in HOSTILE)), notes={"prompt": text})
        judged = Result(Score(1.0, parts), notes={text: text})
        found.append(evaluation(HOSTILE[0], asked, judged, document=said))
        failed = Failure(text, Fault.ERROR, notes={text: None})
        found.append(evaluation(HOSTILE[1], asked, None, document=failed))
    made, root = board(found, selection=HOSTILE[1]), tmp_path_factory.mktemp("hostile")
    return write_report(made, root, {"status": HOSTILE[1]}, Image.read)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long names, and a matrix with costs."""
    names = [f"writer-{w}+artist-{a}" for w in range(2) for a in range(3)]
    costs = costs_by_hand(9, 2, 3)
    made = mixed_board(9, [*names, "anole", "W" * 80], costs=costs)
    return write_report(made, tmp_path_factory.mktemp("wide"), MANIFEST, Image.read)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More files of text than the page keeps in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plait.benchmarks.results.report.page.CHUNK", 2)
        root = tmp_path_factory.mktemp("large")
        return write_report(plain_board(300, scorers=()), root, MANIFEST, Image.read, "all")


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three queries that two systems have answered twice; one answer failed."""
    scores = {
        "a": [(1, 3), (6, 6), (4, None)],
        "b": [(6, 0), (0, 2), (5, 5)],
    }
    found = []
    for name, of_queries in scores.items():
        for i, given in enumerate(of_queries):
            for repeat, score in enumerate(given):
                said = answer(f"Answer {i}.{repeat} of {name}", picture(10 * i + repeat))
                if score is None:
                    said = Failure("ran out", Fault.OUT_OF_MEMORY)
                one = evaluation(name, sample(i), score, repeat=repeat, document=said)
                found.append(one)
    root = tmp_path_factory.mktemp("repeated")
    return write_report(board(found, repeats=2), root, MANIFEST, Image.read)


FOUND = [
    ({"#category": PBL, "#order": "task order"}, [1, 5, 9]),
    ({"#outcome": "failed", "#order": "task order"}, [7]),
    ({"#outcome": "not made"}, [10]),
    ({"#outcome": "unscored"}, [5]),
    ({"#outcome": "not applicable"}, [4]),
    ({"#outcome": "judge not applicable: no"}, [4]),
    ({"#outcome": "failed: out of memory: ran out"}, [7]),
    ({"#text": "answer 3 OF b"}, [3]),
    ({"#text": "q-0002"}, [2]),
    ({"#text": "RAN  out", "#within": "in reasons"}, [7]),
    ({"#text": "scene 3?", "#within": "in questions"}, [3]),
    ({"#text": "(end", "#within": "in answers"}, []),
    ({"#order": "worst first", "#system": "b"}, [3, 5, 6, 0, 8, 9, 1, 2, 4, 7, 10, 11]),
    ({"#order": "best first", "#field": "art"}, [9, 1, 5]),
    ({"#order": "biggest disagreement", "#category": PBL}, [1, 9, 5]),
]


APART = [1, 3, 0, 2, 8, 9, 4, 5, 6, 7, 10, 11]
"""All queries, the widest disagreement first."""


def test_filters_and_orders(chromium, page):
    opened(chromium, page)
    ids(chromium, APART)
    chromium.click("#more")
    for choices, expected in FOUND:
        for selector, value in choices.items():
            if selector == "#text":
                chromium.type(selector, value)
            else:
                chromium.choose(selector, value)
        ids(chromium, expected)
        fragment = chromium.run("return location.hash")
        chromium.click("#reset")
        ids(chromium, APART)
        chromium.run("location.hash = arguments[0]", fragment)
        ids(chromium, expected)
        chromium.click("#reset")
        ids(chromium, APART)


def test_where_lower_is_better_the_highest_score_is_the_worst(chromium, tmp_path):
    scorers = (Judge(direction="lower"),)
    made = board_of({"a": [1.0, 3.0, 2.0], "b": [1.0, None, None]}, scorers=scorers)
    page = write_report(made, tmp_path, MANIFEST, Image.read)
    opened(chromium, page, "#order=worst&system=0")
    ids(chromium, [1, 2, 0])
    opened(chromium, page, "#order=best&system=0")
    ids(chromium, [0, 2, 1])
    assert "lower is better" in text_of(chromium, "#section-results thead")


def test_systems_are_hidden_and_queries_turned_by_button_and_by_key(chromium, page):
    opened(chromium, page)
    ids(chromium, APART)
    chromium.click("#next")
    ids(chromium, APART, at=1)
    for key, at in (("j", 2), ("k", 1), (RIGHT, 2), (LEFT, 1)):
        chromium.type("body", key)
        ids(chromium, APART, at)
    chromium.click("#more")
    chromium.click("#columns label:first-child input")
    chromium.wait("document.querySelectorAll('.answer').length === 1")
    chromium.type("body", "f")
    chromium.wait("document.querySelector('.card.full')")
    chromium.type("body", "/")
    assert chromium.run("return document.activeElement.id") == "text"


def test_links_lead_to_queries_and_say_where_there_is_none(chromium, page):
    opened(chromium, page, "#Q-0011")
    ids(chromium, APART, at=11)
    top = "document.querySelector('.card').getBoundingClientRect().top"
    assert 0 <= chromium.run(f"return {top}") < 1000
    chromium.run("location.hash = '#Q-0001'")
    ids(chromium, APART)
    for unknown in ("Q-9999", "a=b", "%"):
        opened(chromium, page, f"#{unknown}")
        chromium.wait("!document.querySelector('#unknown').hidden")
        assert unknown in text_of(chromium, "#unknown")
        ids(chromium, APART)
    chromium.click("#next")
    ids(chromium, APART, at=1)
    assert chromium.run("return document.querySelector('#unknown').hidden")


def test_repeats_of_a_query_stand_side_by_side_and_count_once(chromium, repeated):
    opened(chromium, repeated, "#order=task")
    ids(chromium, [0, 1, 2])
    labels = "return [...document.querySelectorAll('.answer')].map((n) => n.ariaLabel)"
    names = ["a, repeat 1", "a, repeat 2", "b, repeat 1", "b, repeat 2"]
    assert sorted(chromium.run(labels)) == names
    one, two = chromium.run(BOXES, [f"[aria-label='a, repeat {n}']" for n in (1, 2)])
    assert one[1] <= two[0]
    assert one[3] == two[3]
    assert re.search(r"mean of 2\s*2\.00", text_of(chromium, "[aria-label=a]"))
    # Systems differ by their means over repeats: 2 and 3, 6 and 1, 4 and 5.
    opened(chromium, repeated, "#order=apart")
    ids(chromium, [1, 0, 2])
    opened(chromium, repeated, "#order=worst&system=1")
    ids(chromium, [1, 0, 2])
    opened(chromium, repeated, "#order=best&system=0")
    ids(chromium, [1, 2, 0])
    # An outcome is counted by answers, a match by queries.
    opened(chromium, repeated, "#outcome=failed")
    ids(chromium, [2])
    assert text_of(chromium, "#count") == "of 1, from 3; 1 failed"
    assert "ran out" in text_of(chromium, "[aria-label='a, repeat 2']")
    opened(chromium, repeated, "#outcome=done")
    assert text_of(chromium, "#count") == "of 3; 11 done"
    opened(chromium, repeated, "#outcome=done&system=0")
    assert text_of(chromium, "#count") == "of 3; 5 done"
    chromium.type("#text", "answer 1.1 of b")
    ids(chromium, [1])


def test_the_former_address_of_a_repeat_leads_to_its_query(chromium, repeated):
    opened(chromium, repeated, "#Q-0002~2")
    chromium.wait(f"{HERE} === 'Q-0002'")
    assert chromium.run("return document.querySelector('#unknown').hidden")
    opened(chromium, repeated, "#Q-0009~2")
    assert "Q-0009~2" in text_of(chromium, "#unknown")


def test_the_viewer_shows_repeats_as_owners(chromium, repeated):
    opened(chromium, repeated, "#Q-0000")
    chromium.click("[aria-label='b, repeat 2'] .image")
    caption = "document.querySelector('#stage figcaption').innerText"
    chromium.wait(f"{caption} === 'Image by b, repeat 2'")
    chromium.click("#beside")
    assert chromium.run("return document.querySelectorAll('#stage figure').length") == 5


def test_an_interval_is_read_by_pointer_and_keyboard_and_always_on_a_phone(
    chromium, tmp_path
):
    scores = {"a": [3, 4, 5, 3, 4, 5, 4], "b": [1, 2, 3, 2, 1, 2, 3]}
    page = write_report(board_of(scores, categories={}), tmp_path, MANIFEST, Image.read)
    opened(chromium, page)
    shown = "getComputedStyle(document.querySelector('.bars .tip')).visibility"
    assert chromium.run(f"return {shown}") == "hidden"
    chromium.run("document.querySelector('.bars td a').focus()")
    assert chromium.run(f"return {shown}") == "visible"
    assert re.search(r"95% interval \[\d\.\d\d, \d\.\d\d\]", text_of(chromium, ".tip"))
    ((left, right, bottom, top),) = chromium.run(BOXES, [".bars .tip"])
    assert 0 <= left < right <= 1400
    table = chromium.run(BOXES, ["#section-results > .scroll"])[0]
    assert table[3] <= top < bottom <= table[2]
    ends = "return [...document.querySelectorAll('.axis span')].map((n) => n.innerText)"
    low, _, high = chromium.run(ends)
    assert float(low) < float(high)
    chromium.screen(390, 844, phone=True)
    chromium.run("document.activeElement.blur()")
    assert chromium.run(f"return {shown}") == "visible"


def test_what_can_be_clicked_says_so(chromium, page):
    opened(chromium, page)
    chromium.wait("document.querySelector('.answer .image')")
    style = "getComputedStyle(document.querySelector(arguments[0]))"
    links = (".bars thead a", ".bars tbody th a", ".bars td a", ".answer h3 a", ".apart a")
    for selector in links:
        line = chromium.run(f"return {style}.textDecorationLine", selector)
        assert line == "underline", selector
    assert chromium.run(f"return {style}.cursor", ".answer .image") == "zoom-in"
    chromium.run("document.querySelector('#theme').focus()")
    chromium.type("#next", "\ue004")
    chromium.run("document.querySelector('.answer .image').focus({ focusVisible: true })")
    assert chromium.run(f"return {style}.outlineWidth", ".answer .image") == "3px"


def test_questions_are_answered_by_at_most_two_clicks(chromium, page):
    opened(chromium, page)
    # Which system is best in a category?
    chromium.click("#section-results thead a")
    chromium.wait("document.querySelector('#section-scorer-0').open")
    assert PBL in text_of(chromium, "#section-scorer-0")
    # Show the worst answers of b.
    chromium.click("#section-results tbody tr:first-child td a")
    ids(chromium, [3, 5, 6, 0, 8, 9, 1, 2, 4, 7, 10, 11])
    assert "by judge of b" in text_of(chromium, "#chosen")
    assert "b" in text_of(chromium, ".answer:first-child[aria-current] h3")
    # Why did one fail?
    chromium.click(".outcomes a.failed")
    ids(chromium, [7])
    assert "out of memory: ran out" in text_of(chromium, ".card")
    # Which judgements are not applicable, and why?
    chromium.click(".outcomes a.not_applicable + span a")
    ids(chromium, [4])
    assert "judge: no" in text_of(chromium, ".card")
    chromium.click(".outcomes a[href='#section-outcomes']")
    chromium.wait("document.querySelector('#section-outcomes').open")
    chromium.click("#section-outcomes tr:has([data-label=reason]) a")
    chromium.wait("matches.length === 1")
    # How is the second system set, and what was it asked?
    chromium.click(".bars tbody tr:nth-child(2) th a")
    chromium.wait("document.querySelector('#section-system-0').open")
    shown = text_of(chromium, "#section-system-0")
    assert "temperature 0.25" in shown
    chromium.click("#section-answers [aria-label=a] summary")
    assert " to a." in text_of(chromium, "[aria-label=a] details[open]")
    # What did it cost?
    chromium.click(".top nav a[href='#section-cost']")
    chromium.wait("document.querySelector('#section-cost').open")


def test_what_was_searched_for_is_marked_and_unfolded(chromium, page):
    opened(chromium, page, "#text=tell 3 to&order=task")
    marked = "[...CSS.highlights.get('found')].map((r) => r.startContainer.data.slice("
    chromium.wait("CSS.highlights.get('found')?.size === 2")
    hits = chromium.run(f"return {marked}r.startOffset, r.endOffset))")
    assert hits == ["Tell 3 to", "Tell 3 to"]
    assert "Tell 3 to b." in text_of(chromium, "[aria-label=b]")
    chromium.choose("#within", "in questions")
    chromium.wait("matches.length === 0")
    assert chromium.run("return CSS.highlights.get('found').size") == 0


FIRST = [".top nav", ".apart", ".bars tbody tr"]
ANSWERED = [".outcomes", "#next", ".card h2", ".answer h3", ".answer img"]


@pytest.mark.parametrize(
    ("width", "height", "shown"), [(1400, 900, FIRST + ANSWERED), (390, 844, FIRST)]
)
def test_the_first_screen_answers_the_first_questions(chromium, wide, width, height, shown):
    chromium.screen(width, height, phone=width < 400)
    opened(chromium, wide)
    chromium.wait("document.querySelector('.answer img')?.naturalWidth")
    for left, right, bottom, _ in chromium.run(BOXES, shown):
        assert 0 <= left < right <= width
        assert bottom <= height
    beside = chromium.run(BOXES, [f".answer:nth-child({i}) img" for i in (1, 2)])
    assert beside[0][1] < beside[1][0]
    assert beside[0][3] == beside[1][3]
    assert chromium.run("return document.querySelectorAll('details[open]').length") == 0


def test_the_contact_sheet_reads_its_images_when_they_are_seen(chromium, wide):
    chromium.screen(390, 844, phone=True)
    opened(chromium, wide)
    chromium.wait("document.readyState === 'complete'")
    assert not any("/sheet-" in url for url in chromium.requests())
    unfolded(chromium)
    chromium.run("document.querySelector('.sheets').scrollIntoView()")
    chromium.wait("document.querySelector('.sheets img').naturalWidth")
    assert any("/sheet-" in url for url in chromium.requests())
    row = "document.querySelector('.sheets tr:has(img)').querySelectorAll('img')"
    ends = f"return [...{row}].map((i) => i.getBoundingClientRect().right)"
    assert max(chromium.run(ends)) <= 390


def test_a_large_run_is_searched_a_few_files_at_a_time(chromium, large):
    opened(chromium, large)
    assert text_of(chromium, "#count") == "of 300"
    assert sum("data-" in url for url in chromium.requests()) == 1
    chromium.type("#text", "word 287.")
    ids(chromium, [287])
    chromium.wait("!document.querySelector('#cards').hasAttribute('aria-busy')")
    assert text_of(chromium, "#count") == "of 1, from 300"
    # The search has read more files than stay in memory: the first is read again.
    chromium.requests()
    chromium.run("location.hash = '#order=task'")
    ids(chromium, list(range(300)))
    assert sum("data-000" in url for url in chromium.requests()) == 1
    chromium.run(
        "window.shown = []; new MutationObserver(() => shown.push([matches.length, "
        "document.querySelector('#cards').hasAttribute('aria-busy')]))"
        ".observe(document.querySelector('#cards'), { childList: true });"
    )
    chromium.type("#text", "q-0299")
    ids(chromium, [299])
    # Ids are found before any file is searched.
    assert chromium.run("return shown[0]") == [1, True]
    opened(chromium, large, "#order=task&at=21")
    ids(chromium, list(range(300)), at=20)
    read = {u.rpartition("/")[2] for u in chromium.requests() if "data-" in u}
    assert read == {"data-010.js"}


def test_a_page_that_stands_alone_asks_for_nothing_and_shows_texts_and_all_images(
    chromium, tmp_path
):
    made = mixed_board(9, [*(f"w{w}+a{a}" for w in range(2) for a in range(2)), "anole"])
    page = tmp_path / "it's alone #2.html"
    write_page_alone(made, tmp_path, MANIFEST, Image.read, page, most=10**8)
    assert [*tmp_path.iterdir()] == [page]
    opened(chromium, page)
    images = "[...document.querySelectorAll('.card img')]"
    chromium.wait(f"{images}.length && {images}.every((i) => i.naturalWidth)")
    chromium.type("#text", "scene 7?")
    ids(chromium, [7])
    assert "What happens in scene 7?" in text_of(chromium, ".ask")
    unfolded(chromium)
    sheet = "[...document.querySelectorAll('.sheets img')]"
    chromium.run("document.querySelector('.sheets').scrollIntoView()")
    chromium.wait(f"{sheet}.some((i) => i.naturalWidth)")
    links = "[...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))"
    assert all(link.startswith("#") for link in chromium.run(f"return {links}"))
    files = [url for url in chromium.requests() if not url.startswith("data:")]
    assert {url.partition("#")[0] for url in files} == {page.as_uri()}


def test_opens_from_disk_and_shows_texts_images_scores_and_reasons(chromium, page):
    opened(chromium, page)
    images = "[...document.querySelectorAll('.answer img')]"
    chromium.wait(f"{images}.length && {images}.every((i) => i.naturalWidth === 64)")
    asked = chromium.requests()
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    # Read once each: the index, the text in view, and its images.
    files = sorted(u.rpartition("/")[2][:5] for u in asked if u.endswith(".js"))
    assert files == ["data-", "index", "pictu"]
    opened(chromium, page, "#Q-0007")
    kinds = "return [...document.querySelectorAll(arguments[0])].map((n) => n.localName)"
    selector = "[aria-label=a] .content > *"
    assert chromium.run(kinds, selector) == ["p", "figure", "p"]
    assert "What happens in scene 7?" in text_of(chromium, ".ask")
    assert re.search(r"a\s*judge\s*1\.00", text_of(chromium, "[aria-label=a]"))
    second = text_of(chromium, "[aria-label=b]")
    assert all(w in second for w in ("tiny weights", "failed", "out of memory: ran out"))
    opened(chromium, page, "#Q-0005")
    assert "judge: unreadable" in text_of(chromium, "[aria-label=a]")


def test_images_open_in_the_viewer_one_by_one_and_side_by_side(chromium, special):
    opened(chromium, special, "#Q-0000")
    figures = "[...document.querySelectorAll('#stage figure')]"
    captions = f"return {figures}.map((f) => f.querySelector('figcaption').innerText)"
    drawn = f"return {figures}.map((f) => Boolean(f.querySelector('img')))"
    position = "return document.querySelector('#position').value"
    chromium.click("[aria-label=b] .image")
    chromium.wait("document.querySelector('#viewer[open] img').naturalWidth === 64")
    assert chromium.run(captions) == ["Image by b"]
    assert chromium.run(position) == "3 of 5"
    chromium.click("#later")
    chromium.type("#later", RIGHT)
    assert chromium.run(captions) == ["Image by a"]
    assert chromium.run("return document.querySelector('#later').disabled")
    chromium.type("#earlier", LEFT)
    assert chromium.run(position) == "4 of 5"
    chromium.type("#earlier", RIGHT)
    chromium.type("#earlier", "s")
    owners = ["Image of the ground truth", "Image by b", "Image by a"]
    assert chromium.run(captions) == owners
    assert chromium.run(drawn) == [False, False, True]
    chromium.click("#earlier")
    assert chromium.run(drawn) == [True, True, True]
    tops = f"return {figures}.map((f) => f.getBoundingClientRect().top)"
    assert len(set(chromium.run(tops))) == 1
    chromium.click("#beside")
    assert chromium.run(position) == "2 of 5"
    chromium.screen(390, 844, phone=True)
    chromium.click("#beside")
    box = "document.querySelector('#viewer')"
    assert chromium.run(f"return {box}.scrollWidth <= {box}.clientWidth")
    chromium.type("#beside", ESCAPE)
    chromium.wait(f"!{box}.open")


def test_conversations_long_answers_and_many_files_of_images(chromium, special):
    opened(chromium, special, "#Q-0001")
    question = text_of(chromium, ".ask").lower().split("\n")
    told = ["user", "who?", "published answer", "tom", "user", "where?"]
    assert [line for line in question if line][:6] == told
    turns = r"(?s)answer to turn 1\s+Tim.*turn 2\s+.*empty.*turn 3\s+here"
    assert re.search(turns, text_of(chromium, "[aria-label=a]"))
    opened(chromium, special, "#Q-0002")
    height = "return document.querySelector('[aria-label=a] > header + div').offsetHeight"
    assert chromium.run(height) < 300
    chromium.click("#full")
    chromium.wait("document.querySelector('.card.full')")
    assert chromium.run(height) > 3000
    opened(chromium, special, "#Q-0003")
    shown = "return [...document.querySelectorAll('.answer img')]"
    assert len(set(chromium.run(f"{shown}.map((i) => i.src)"))) == 80
    read = [u for u in chromium.requests() if "pictures-" in u]
    assert len(read) == len(set(read)) > 40


def test_hostile_text_is_shown_and_never_run(chromium, hostile):
    opened(chromium, hostile)
    chromium.wait("document.querySelectorAll('.answer').length === 2")
    shown = "document.querySelectorAll('.answer:first-child .content p')"
    assert chromium.run(f"return [...{shown}].map((p) => p.textContent)") == list(HOSTILE)
    unfolded(chromium)
    outside = "return document.querySelectorAll('script, img, b script').length"
    assert chromium.run(outside) == 1
    for width in (1400, 390):
        chromium.screen(width, 844, phone=width < 400)
        assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    for _ in HOSTILE[1:]:
        before = chromium.run(f"return {HERE}")
        chromium.type("body", "j")
        chromium.wait(f"{HERE} !== {json.dumps(before)}")


def test_missing_folder_is_explained(session, page, tmp_path):
    shutil.copy(page, tmp_path / "report.html")
    session.open(tmp_path / "report.html")
    loading = "document.querySelector('#loading').textContent"
    session.wait(f"{loading}.includes('must be next to')")
    assert "Outcomes" in text_of(session, "main")
    session.logs("browser")


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
      if (node.closest(":disabled, option, svg")) continue;
      const style = getComputedStyle(node);
      if (style.opacity !== "1") { worst.push([0, "opacity " + node.className]); continue; }
      const seen = contrast(rgba(style.color), behind(node));
      worst.push([seen, node.localName + "." + node.className]);
    }
    return worst.sort((x, y) => x[0] - y[0])[0];"""
FILL = "getComputedStyle(document.querySelector(arguments[0])).fill"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_figures_have_the_colours_of_the_theme(chromium, page, wide, scheme):
    chromium.media(scheme)
    for shown in (page, wide):
        opened(chromium, shown)
        unfolded(chromium)
        ratio, where = chromium.run(CONTRAST + WORST)
        assert ratio >= 4.5, where
    bar = chromium.run(f"return {FILL}", ".figure path[style*='fill: var(--accent']")
    link = "return getComputedStyle(document.querySelector('.bars b')).color"
    assert bar == chromium.run(link) != chromium.run(f"return {FILL}", ".figure text")


def test_nothing_on_a_phone_scrolls_sideways_and_filters_unfold(chromium, wide):
    chromium.screen(320, 844, phone=True)
    opened(chromium, wide)
    unfolded(chromium)
    assert chromium.run("return document.documentElement.scrollWidth") == 320
    beyond = """return [...document.querySelectorAll("main *")]
        .filter((n) => n.checkVisibility())
        .filter((n) => !n.closest("thead, .raw, .figure > *"))
        .filter((n) => n.getBoundingClientRect().right > innerWidth + 1)
        .map((n) => n.localName + "." + n.className)"""
    assert chromium.run(beyond) == []
    boxes = """return [...document.querySelectorAll("main *")]
        .filter((n) => n.checkVisibility() && !n.matches(".raw, .heard, caption, select"))
        .filter((n) => ["auto", "scroll"].includes(getComputedStyle(n).overflowX))
        .filter((n) => n.scrollWidth > n.clientWidth || n.scrollHeight > n.clientHeight)
        .map((n) => n.localName + "." + n.className)"""
    assert chromium.run(boxes) == []
    chromium.run("document.querySelector('#section-run').scrollIntoView()")
    ((left, right, _, top),) = chromium.run(BOXES, [".top nav"])
    assert (left, top, right) == (0, 0, 320)
    label = "document.querySelector('.parts .numbers td'), '::before'"
    assert "fixed weights" in chromium.run(f"return getComputedStyle({label}).content")
    choices = "return getComputedStyle(document.querySelector('#choices')).display"
    assert chromium.run(choices) == "none"
    chromium.run("scrollTo(0, 0)")
    chromium.click("#more")
    chromium.choose("#category", PBL)
    chromium.wait("matches.length === 3")


def test_headings_on_a_phone_are_not_broken_inside_words(chromium, tmp_path):
    scorers = [Judge(f"consistency-dino{i}") for i in range(6)]
    scores = {s.name: Result(Score(3)) for s in scorers}
    found = [replace(evaluation("a" * 30, sample(i), 0), scores=scores) for i in range(9)]
    made = board(found, scorers=scorers)
    chromium.screen(390, 844, phone=True)
    opened(chromium, write_report(made, tmp_path, MANIFEST, Image.read))
    links = "[...document.querySelectorAll('.bars thead a')]"
    lines = "new Set([...link.getClientRects()].map((box) => box.top)).size"
    assert set(chromium.run(f"return {links}.map((link) => {lines})")) <= {1, 2}
    cells = "[...document.querySelectorAll(arguments[0])]"
    ends = f"return {cells}.map((cell) => cell.getBoundingClientRect().right)"
    heads = chromium.run(ends, ".bars thead th:not(:first-child)")
    assert heads == pytest.approx(chromium.run(ends, ".bars tbody td"))


def test_theme_can_be_switched_and_print_leaves_controls_out(chromium, page):
    opened(chromium, page)
    paper = "return getComputedStyle(document.body).backgroundColor"
    before = chromium.run(paper)
    chromium.click("#theme")
    assert chromium.run(paper) != before
    chromium.media("dark", "print")
    display = "return getComputedStyle(document.querySelector(arguments[0])).display"
    assert chromium.run(display, "#filters") == "none"
    assert chromium.run(display, ".card") != "none"
    assert chromium.run(paper) == "rgb(255, 255, 255)"
