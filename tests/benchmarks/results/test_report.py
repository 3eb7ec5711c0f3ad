"""The files of a report: what stands in them, and that nothing can break out of them."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image as Picture
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
    system,
)

from plait.benchmarks.results.figures import ACCENT, INK, draw, name_rows, short
from plait.benchmarks.results.leaderboard_tables import outcomes_table
from plait.benchmarks.results.page_files import PageTooLarge
from plait.benchmarks.results.report import write_page_alone, write_report
from plait.benchmarks.results.report.entries import entries_of, plain
from plait.benchmarks.results.report.page import facts_of, histograms_of, panel_of
from plait.generators.base import Failure, Fault, NotApplicable, Result, Skip, Unscored
from plait.generators.document import Image, Malformed, Score

pytestmark = [pytest.mark.contract, pytest.mark.figures]


def write(made, root: Path, **settings) -> Path:
    return write_report(made, root, MANIFEST, Image.read, **settings)


def script(path: Path):
    """What a data file hands to the page; nothing in it can end the script."""
    text = path.read_text("ascii")
    assert "<" not in text
    name, rows = json.loads(f"[{text[len('plait(') : -3]}]")
    assert name == path.name
    return rows


def data_of(root: Path) -> tuple[dict, list[dict]]:
    """The index and all rows, as the page's script gets them."""
    texts = sorted((root / "report").glob("data-*.js"))
    assert [p.name for p in texts] == [f"data-{i:03d}.js" for i in range(len(texts))]
    return script(root / "report" / "index.js"), [row for p in texts for row in script(p)]


def images_of(root: Path) -> list[list]:
    """Every image of a report by its number: its URL and size, or why there is none."""
    packs = script(root / "report" / "index.js")["packs"]
    return [row for name in packs for row in script(root / "report" / name)]


def pixels(data: bytes | str) -> np.ndarray:
    """What an encoded image, or a data URL, shows."""
    if isinstance(data, str):
        data = base64.b64decode(data.removeprefix("data:image/webp;base64,"))
    with Picture.open(io.BytesIO(data)) as shown:
        return np.asarray(shown.convert("RGB"), dtype=int)


def words_of(page: Path) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.read_text()).split())


def test_index_and_rows_say_what_every_system_answered(tmp_path):
    one, noted = picture(1), {"m": [{"order": "unknown"}]}
    score = Result(Score(4.0, {"why": "good"}))
    made = board(
        [
            evaluation("a", sample(0), score, document=answer("x", one)),
            evaluation("b", sample(0), None, document=Failure("broke", Fault.TIMEOUT)),
            evaluation("c", sample(0), Unscored("unreadable"), document=answer("y")),
            evaluation("d", sample(0), None, document=Skip("no", notes=noted)),
        ],
        systems=[system(n) for n in "abcde"],
    )
    write(made, tmp_path)
    index, (row,) = data_of(tmp_path)
    ((*about, cells),) = index["entries"]
    assert about == ["Q-0000", 0, 0]
    (value,), failed, (unscored,), skipped, missing = (only for (only,) in cells)
    lost = [index["outcomes"][int(i)] for i in (failed, unscored, skipped, missing)]
    assert value == 4.0
    assert lost[:3] == [
        ["failed", None, "timeout: broke"],
        ["unscored", 0, "unreadable"],
        ["skipped", None, "no"],
    ]
    assert lost[3][:2] == ["missing", None]
    assert [s["name"] for s in index["systems"]] == list("abcde")
    scorer = {"name": "judge", "scale": "0-6", "decimals": 2, "lower": False}
    assert index["scorers"] == [scorer]
    answers = [only for (only,) in row["answers"]]
    text, number = answers[0]["segments"]
    url, width, height = images_of(tmp_path)[number]
    assert (text, width, height) == ("x", 64, 64)
    # A small PNG is kept as it is, pixel by pixel.
    assert (pixels(url) == pixels(one.read())).all()
    assert answers[0]["scores"] == [{"parts": {"why": "good"}}]
    assert answers[1] == {"reason": "broke", "fault": "timeout"}
    assert answers[2]["scores"] == [{"reason": "unreadable"}]
    assert answers[3:] == [{"reason": "no", "notes": noted}, None]
    assert row["turns"][0][1][0] == "What happens in scene 0?"
    assert row["truth"][0] == "The truth is told."


def test_hostile_text_stays_data_and_nothing_is_fetched(tmp_path):
    parts = [{text: [text, float("nan"), None]} for text in HOSTILE]
    found = [
        evaluation(
            HOSTILE[0],
            replace(sample(i), id=text, criteria=text),
            Result(Score(1.0, parts[i])),
            document=answer(*HOSTILE),
        )
        for i, text in enumerate(HOSTILE)
    ]
    html = write(board(found, selection=HOSTILE[1]), tmp_path).read_text()
    assert data_of(tmp_path)[1][0]["answers"][0][0]["segments"] == list(HOSTILE)
    assert html.count("<script") == html.count("</script>") == 1
    assert "<img" not in html
    assert "&lt;script&gt;alert(1)" in html
    page = write(mixed_board(6, ["a", "b"]), tmp_path).read_text()
    for text in (page, *(p.read_text() for p in tmp_path.glob("report/[di]*.js"))):
        assert not re.search(r"(?:https?:)?//[a-z0-9]|@import|fetch\(", text, re.IGNORECASE)


def test_same_input_gives_the_same_bytes_also_over_an_old_report(tmp_path):
    write(plain_board(30, scorers=()), tmp_path / "r")
    for root in (tmp_path / "r", tmp_path / "s" / "r"):
        write(mixed_board(6, ["a", "b+c"]), root)

    def content(root: Path) -> dict[str, bytes]:
        files = (p for p in root.rglob("*") if p.is_file())
        return {str(p.relative_to(root)): p.read_bytes() for p in files}

    assert content(tmp_path / "r") == content(tmp_path / "s" / "r")


def test_a_page_that_stands_alone_holds_what_a_folder_would_and_cannot_be_broken(tmp_path):
    parts = [{text: [text]} for text in HOSTILE]
    found = [
        evaluation("a", sample(i), Result(Score(1.0, own)), document=answer(*HOSTILE))
        for i, own in enumerate(parts)
    ]
    made, page = board(found), tmp_path / "alone.html"
    write(made, tmp_path / "folder")
    size = write_page_alone(made, tmp_path, MANIFEST, Image.read, page, most=10**8)
    assert size == page.stat().st_size
    block = re.compile(r'<script type="application/json" data-file="([^"]+)">([^<]*)</')
    inside = {name: json.loads(text) for name, text in block.findall(page.read_text())}
    beside = {p.name: script(p) for p in (tmp_path / "folder" / "report").iterdir()}
    assert inside == beside
    assert page.read_text().count("<script") == len(beside) + 1
    again = tmp_path / "again.html"
    write_page_alone(made, tmp_path, MANIFEST, Image.read, again, most=size)
    assert again.read_bytes() == page.read_bytes()


@pytest.mark.parametrize("short", [1, 10**9])
def test_a_page_larger_than_it_may_be_is_not_written(tmp_path, short):
    made, page = mixed_board(6, ["a", "b+c"]), tmp_path / "alone.html"
    size = write_page_alone(made, tmp_path, {}, Image.read, page, most=10**8)
    page.unlink()
    with pytest.raises(PageTooLarge, match="MB"):
        write_page_alone(made, tmp_path, {}, Image.read, page, most=max(0, size - short))
    assert not any(tmp_path.iterdir())


def test_the_same_part_of_large_runs_is_shown_and_all_when_asked(tmp_path):
    shown = []
    for name in "ab":
        page = write(plain_board(30, name, scorers=()), tmp_path, queries=10).read_text()
        assert "10 of 30 queries are shown here" in page
        shown.append([e[0] for e in data_of(tmp_path)[0]["entries"]])
    assert shown[0] == shown[1] == sorted(shown[0])
    assert len(shown[0]) == 10
    assert max(shown[0]) > "Q-0014"
    made = plain_board(203, scorers=())
    assert "200 of 203 queries are shown here" in write(made, tmp_path).read_text()
    page = write(made, tmp_path, queries="all").read_text()
    index, rows = data_of(tmp_path)
    assert [e[0] for e in index["entries"]] == [f"Q-{i:04d}" for i in range(203)]
    assert rows[202]["answers"][0][0]["segments"] == ["Word 202."]
    assert len(list((tmp_path / "report").glob("data-*.js"))) == 11
    assert "queries are shown" not in page


def test_an_image_is_kept_once_and_no_larger_than_it_is_shown(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (600, 800, 3), np.uint8)
    file = io.BytesIO()
    Picture.fromarray(noise).save(file, "PNG")
    large = Image.of(file.getvalue())
    said = answer(large, "again", large)
    found = [evaluation(n, sample(i), 1, document=said) for i in (0, 1) for n in "ab"]
    write(board(found), tmp_path)
    numbers = [a["segments"][::2] for r in data_of(tmp_path)[1] for (a,) in r["answers"]]
    assert {n for own in numbers for n in own} == {2}
    sizes = [size for _, *size in images_of(tmp_path)]
    assert sizes == [[64, 64], [64, 64], [512, 384], [64, 64], [64, 64]]


def test_any_format_is_shown_in_one_that_browsers_know(tmp_path):
    made = [picture(5, form=form) for form in ("TIFF", "BMP", "JPEG", "WEBP", "GIF")]
    write(board([evaluation("a", sample(9), 1, document=answer(*made))]), tmp_path)
    numbers, shown = (
        data_of(tmp_path)[1][0]["answers"][0][0]["segments"],
        images_of(tmp_path),
    )
    for one, number in zip(made, numbers, strict=True):
        url, *size = shown[number]
        assert size == [64, 64]
        assert abs(pixels(url) - pixels(one.read())).mean() < 5


def test_images_that_cannot_be_read_are_named_and_tried_again(tmp_path):
    lost, rotten = Image("0" * 64, place="gone.png"), Image.of(b"no picture at all")
    tried: list[str] = []

    def read(image: Image) -> bytes:
        tried.append(image.digest)
        if image is lost:
            raise FileNotFoundError("gone.png")
        return image.read()

    said = answer(lost, rotten, picture(1))
    made = board([evaluation("a", sample(0), 1, document=said)])
    for _ in range(2):
        write_report(made, tmp_path, {}, read)
    (row,), shown = data_of(tmp_path)[1], images_of(tmp_path)
    gone, unreadable, fine = (shown[n] for n in row["answers"][0][0]["segments"])
    assert gone == [None, "cannot be read: gone.png"]
    assert unreadable[0] is None
    assert fine[0]
    assert tried.count(lost.digest) == 2


def test_an_earlier_page_stays_until_all_images_are_written_and_none_is_made_twice(
    tmp_path,
):
    reads: list[Image] = []

    def asked(start: int, last: int | None = None) -> None:
        def read(image: Image) -> bytes:
            reads.append(image)
            if len(reads) == last:
                raise KeyboardInterrupt
            return image.read()

        # The smallest of images, another one for every number.
        drawn = (b"P6 1 1 255 " + (start + i).to_bytes(3, "big") for i in range(300))
        said = answer(*map(Image.of, drawn))
        made = board([evaluation("a", sample(0), 1, document=said)], scorers=())
        reads.clear()
        write_report(made, tmp_path, {}, read)

    def content() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    asked(0)
    # The index, a file of text, and 302 images by the 256.
    assert len(list((tmp_path / "report").iterdir())) == 1 + 1 + 2
    before = content()
    with pytest.raises(KeyboardInterrupt):
        asked(1000, last=290)
    assert content().items() > before.items()
    # The next command continues behind the file of images that was written.
    asked(1000)
    assert len(reads) == 302 - 256
    asked(1000)
    assert reads == []
    asked(0)
    assert content() == before


def test_the_page_says_what_the_run_is_and_how_it_went(tmp_path):
    scores = {"w+s": [1, 2, 3, 4, 5, 6], "v+s": [2, 2, 2, 2, 2, None]}
    about = {"missing": 3, "selection": "6 of 99 queries"}
    page = write(board_of(scores, categories={}, **about), tmp_path)
    words = words_of(page)
    assert "2 systems, 6 of 99 queries of sample" in words
    # The mean leads to the system's worst answers; no column is of weights nobody has.
    assert re.search(
        r'<b><a href="#order=worst&amp;scorer=0&amp;system=0">3.50<', page.read_text()
    )
    assert "fixed weights" not in words
    assert "11 of 14 answers done" in words
    assert re.search(r'href="#outcome=failed"[^>]*>1 failed<', page.read_text())
    assert "0123456789ab with changes" in words
    assert "random weights" not in words


def test_what_has_no_value_is_counted_by_scorer_reason_and_system():
    scores = {"a": [1, NotApplicable("no image 1"), NotApplicable("no image 2")]}
    table = outcomes_table(board_of(scores | {"b": [None, 2, NotApplicable("no image 1")]}))
    heads = [column.heading for column in table.columns]
    assert heads == ["of", "outcome", "reason", "all", "a", "b"]
    silent, failed = ([cell.text for cell in row] for row in table.rows)
    assert silent == ["judge", "not applicable", "no image 1", "3", "2", "1"]
    assert failed == ["answers", "failed", "error: cannot", "1", "", "1"]
    assert table.rows[0][4].link.endswith("&system=0")


def test_a_run_without_answers_or_facts_has_a_page(tmp_path):
    made = board([], systems=[system("a", "tiny")], missing=4)
    words = words_of(write_report(made, tmp_path, {}, Image.read))
    index, rows = data_of(tmp_path)
    assert (index["entries"], rows) == ([], [])
    assert "4 not made" in words
    assert "random weights (tiny: a)" in words
    assert facts_of({"git": None, "data": "x"}) == {"data": "x"}


def test_malformed_rows_have_addresses_and_odd_values_a_text():
    broken = Malformed(id="Q-0000", row=3, reason="row 3: duplicate id")
    found = [evaluation("a", sample(0), 1)]
    found.append(evaluation("a", broken, None, document=Failure(broken.reason)))
    entries = entries_of(made := board(found), made.keys)
    assert [e.anchor for e in entries] == ["Q-0000", "Q-0000 (row 3)"]
    odd = {1: (1.5, None, True), "x": float("inf"), "p": Path("a")}
    assert plain(odd) == {"1": [1.5, None, True], "x": "inf", "p": "a"}
    # JavaScript would show 2809229582395504000.
    seeds = {"seed": 2809229582395504207, "other": 2**53 - 1}
    assert plain(seeds) == {"seed": "2809229582395504207", "other": 2**53 - 1}


def test_a_query_is_one_entry_with_all_repeats_of_each_system(tmp_path):
    found = [
        evaluation("a", sample(0), 1, repeat=0, document=answer("first", picture(7))),
        evaluation("a", sample(0), 3, repeat=1, document=answer("second", picture(8))),
        evaluation("b", sample(0), Unscored("unread"), repeat=0),
        evaluation("b", sample(0), None, repeat=1, document=Failure("no", Fault.ERROR)),
        # A query with one repeat of one system, which is not made yet of the other.
        evaluation("a", sample(1), 5, repeat=0),
    ]
    made = board(found, repeats=2)
    one, other = entries_of(made, made.keys)
    assert [e.repeat for own in one.answers for e in own if e] == [0, 1, 0, 1]
    assert [[e is not None for e in own] for own in other.answers] == [[True], [False]]
    drawn = [image.digest for image in one.images()]
    assert {picture(7).digest, picture(8).digest} <= set(drawn)
    write(made, tmp_path)
    index, rows = data_of(tmp_path)
    assert [entry[0] for entry in index["entries"]] == ["Q-0000", "Q-0001"]
    of_a, ((unread,), failed) = index["entries"][0][3]
    assert of_a == [[1.0], [3.0]]
    assert index["outcomes"][int(unread)] == ["unscored", 0, "unread"]
    assert index["outcomes"][int(failed)] == ["failed", None, "error: no"]
    texts = [own["segments"][0] for own in rows[0]["answers"][0]]
    assert texts == ["first", "second"]


@pytest.mark.parametrize(
    ("scores", "scale", "bins", "ends"),
    [
        ({"a": [0, 6, 6, 3], "b": [1, None, Unscored("no"), 1]}, "0-6", 7, (-0.5, 6.5)),
        ({"a": [20.5, 25.25, 31.0], "b": [22.0, 22.1, 29.0]}, "0-100", 12, (20.5, 31)),
        ({"a": [0.5, 0.5]}, "0-6", 12, (0, 6)),
        ({"a": [1e78, -1e78]}, "0-6", 12, (-1e78, 1e78)),
        ({"a": [1e-90, 2e-90]}, "0-6", 12, (1e-90, 2e-90)),
        ({"a": [7, 9, -1]}, "0-6", 11, (-1.5, 9.5)),
        ({"a": [None]}, "0-6", -1, ()),
    ],
)
def test_histograms_hold_every_score_in_common_bins(scores, scale, bins, ends):
    edges, counts = histograms_of(board_of(scores), Judge("judge", scale))
    assert len(edges) == bins + 1
    if len(edges):
        assert (edges[0], edges[-1]) == pytest.approx(ends)
        (row,) = counts.values()
        for name, own in scores.items():
            assert row[name].sum() == sum(isinstance(s, int | float) for s in own)


def test_a_histogram_is_drawn_for_every_system_with_scores():
    made = board_of({"a": [1, 2, 3, 2, 1, 3], "b": [5, 5, 4, 5, 4, None], "c": [None] * 6})
    panel = panel_of(made, Judge())
    root = ElementTree.fromstring(panel["plot"].replace("xlink:href", "href"))
    assert {"a", "b", "c"} <= {e.text for e in root.iter("text")}
    filled = [e for e in root.iter("path") if "fill: var(--accent)" in e.get("style", "")]
    assert len(filled) == 2
    # One reason is shared by two means; the numbers of values stand in the cells.
    few = board_of({"a": [1, 2], "b": [3]}, categories={})
    (note,) = panel_of(few, Judge())["main"].notes
    assert note == ("No interval for per query: too few values (fewer than 5).")


def bars(figure) -> None:
    axes = figure.subplots()
    axes.stairs([1, 3, 2], [0, 0.123456, 2, 3], fill=True, color=ACCENT)
    axes.plot([0, 3], [0, 2], "o", color=INK)
    name_rows(axes, ["<script>alert(1)</script>", "$x$ & 漢字", "W" * 80])


def test_a_figure_is_valid_coloured_by_the_page_and_the_same_every_time() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    svg = draw(400, 200, 'three "bars"', bars)
    assert svg == draw(400, 200, 'three "bars"', bars)
    assert dict(matplotlib.rcParams) == before
    root = ElementTree.fromstring(svg.replace("xlink:href", "href"))
    assert root.attrib["aria-label"] == root.findtext("title") == 'three "bars"'
    texts = [e.text for e in root.iter("text")]
    assert {"<script>alert(1)</script>", "$x$ & 漢字", short("W" * 80)} <= set(texts)
    ids = re.findall(r' id="([^"]*)"', svg)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#(\w+)', svg)) == set(ids)
    assert {"var(--accent)", "var(--ink)"} <= set(re.findall(r"var\(--\w+\)", svg))
    assert not re.search(r"#[0-9a-f]{6}\b", svg)


def test_a_page_of_the_folder_one_is_in_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = write(board_of({"a": [1, 2]}), Path()).read_text()
    assert f"<title>{tmp_path.name}" in page
