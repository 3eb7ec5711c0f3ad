"""What a report shows of answers, opened from disk: text, pictures, scores and reasons."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
from report_browser_helpers import (
    BROWSER_MARKS,
    complaints,
    ids,
    opened,
    text_of,
)
from report_helpers import (
    HOSTILE,
    MANIFEST,
    answer,
    at_hand,
    board,
    evaluation,
    picture,
    sample,
)

from benchmarks.results.report import write_report
from generators.base import Failure, Fault, Result
from generators.document import Document, Score, Text, Turn

pytestmark = BROWSER_MARKS


def test_opens_from_disk_without_network_and_without_errors(chromium, page):
    opened(chromium, page)
    ids(chromium, list(range(10)))
    chromium.run("document.querySelector('#cards').scrollIntoView()")
    pictures = "[...document.querySelectorAll('.card:first-child .answer img')]"
    chromium.wait(f"{pictures}.length && {pictures}.every((i) => i.naturalWidth === 64)")
    asked = chromium.requests()
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    # Read once each: the index, the text in view, and its pictures.
    files = sorted(u.rpartition("/")[2][:5] for u in asked if u.endswith(".js"))
    assert files == ["data-", "index", "pictu"]
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


RIGHT, LEFT, ESCAPE = "\ue014", "\ue012", "\ue00c"
"""Keys by the names of the WebDriver protocol."""


def test_a_picture_opens_in_the_viewer(chromium, page):
    opened(chromium, page, "#Q-0000")
    chromium.wait("document.querySelector('.card.here')")
    chromium.click(".card.here .answer .picture")
    chromium.wait("document.querySelector('#viewer[open] img').naturalWidth === 64")
    source = chromium.run("return document.querySelector('#viewer img').src")
    assert source.startswith("data:image/webp;base64,")
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
    chromium.click(".answer:nth-child(1) .picture")
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_drawn_in_the_colours_of_the_page(chromium, page, scheme):
    chromium.media(scheme)
    opened(chromium, page)
    box = "const b = document.querySelector('.figure').getBoundingClientRect();"
    left, right, height = chromium.run(f"{box} return [b.left, b.right, b.height]")
    assert 0 < left < right < 1400
    assert height > 80
    seen = chromium.run(
        "const of = (e, name) => getComputedStyle(e)[name];"
        "const bar = document.querySelector('.figure path[style*=\"fill: var(--accent\"]');"
        "return [of(bar, 'fill'),"
        " of(document.querySelector('.figure text'), 'fill'),"
        " of(document.querySelector('.panel a'), 'color')]"
    )
    assert seen[0] == seen[2] != seen[1]


def test_queries_of_disagreement_lead_to_their_answers(chromium, page):
    opened(chromium, page)
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    chromium.click(".panel table a[href^='#Q-']")
    chromium.wait("document.querySelector('.card.here')?.dataset.anchor === 'Q-0001'")
    chromium.click("a[href='#order=apart&scorer=0']")
    ids(chromium, [1, 3, 0, 2, 8, 9, 4, 5, 6, 7])
    chromium.click(".example header a")
    chromium.wait("document.querySelector('.card.here')?.dataset.anchor === 'Q-0001'")


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
    texts = chromium.run(f"return [...{shown}].map((p) => p.textContent)")
    assert texts == list(HOSTILE)
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert (
        chromium.run("return document.querySelectorAll('script, img, b script').length")
        == 1
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


def test_the_page_opens_wherever_it_is_moved_with_its_folder(chromium, tmp_path):
    write_report(several_pictures(), tmp_path / "run", MANIFEST, at_hand)
    (tmp_path / "run").rename(tmp_path / "it's elsewhere #2")
    opened(chromium, tmp_path / "it's elsewhere #2" / "report.html")
    pictures = "[...document.querySelectorAll('.answer img')]"
    chromium.wait(f"{pictures}.length === 3 && {pictures}.every((i) => i.naturalWidth)")
    assert complaints(chromium) == []


def test_pictures_of_a_page_come_from_many_files(chromium, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.results.report.pictures.PACK", 2)
    monkeypatch.setattr("benchmarks.results.report.page.PACK", 2)
    said = answer(*(picture(k, 8) for k in range(80)))
    made = [evaluation(n, sample(i), 1, document=said) for i in range(3) for n in "ab"]
    opened(chromium, write_report(board(made), tmp_path, MANIFEST, at_hand))
    shown = "return [...document.querySelectorAll(arguments[0])].map((i) => i.src)"
    first, *others = (
        chromium.run(shown, f".card:nth-child({i}) .answer:nth-child({k}) img")
        for i in (1, 2, 3)
        for k in (1, 2)
    )
    assert len(set(first)) == 80
    assert all(other == first for other in others)
    read = [u for u in chromium.requests() if "pictures-" in u]
    assert len(read) == len(set(read)) == 43
    assert complaints(chromium) == []
