"""The files of a report: what stands in them, and that nothing can break out of them."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture
from report_helpers import (
    HOSTILE,
    MANIFEST,
    Judge,
    answer,
    at_hand,
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

from benchmarks.results.report import ReportSettings, write_report
from benchmarks.results.report.entries import as_script, entries_of, plain
from benchmarks.results.report.panels import facts_of
from generators.base import Failure, Fault, Result, Skip, Unscored
from generators.document import Document, Image, Malformed, Score, Text


def write(made, root: Path, **settings) -> Path:
    return write_report(made, root, MANIFEST, at_hand, ReportSettings(**settings))


def data_of(root: Path) -> tuple[dict, list[dict]]:
    """The index and all rows, as the page's script gets them."""
    texts = [p.read_text("ascii") for p in sorted((root / "report").glob("*.js"))]
    calls = dict(
        re.fullmatch(r"plait\.(\w+)\((.*)\);\n", t, re.S).groups() for t in texts[-1:]
    )
    rows: list[dict] = []
    for i, text in enumerate(texts[:-1]):
        number, chunk = json.loads(f"[{text[len('plait.chunk(') : -3]}]")
        assert number == i
        rows += chunk
    return json.loads(calls["index"]), rows


def test_index_and_rows_say_what_every_system_answered(tmp_path):
    one = picture(1)
    made = board(
        [
            evaluation(
                "a",
                sample(0),
                Result(Score(4.0, {"why": "good"})),
                document=answer("x", one),
            ),
            evaluation("b", sample(0), None, document=Failure("broke", Fault.TIMEOUT)),
            evaluation("c", sample(0), Unscored("unreadable"), document=answer("y")),
            evaluation("d", sample(0), None, document=Skip("one picture only")),
        ],
        systems=[system(n) for n in "abcde"],
    )
    write(made, tmp_path)
    index, (row,) = data_of(tmp_path)
    assert index["entries"] == [["Q-0000", 0, 0, [[4.0], "f", ["u"], "s", "m"]]]
    assert [s["name"] for s in index["systems"]] == list("abcde")
    assert index["scorers"][0] | {"low": 0.0, "high": 6.0} == index["scorers"][0]
    text, (thumb, width, height, full) = row["answers"][0]["segments"]
    assert (text, width, height) == ("x", 64, 64)
    assert (tmp_path / "report" / "images" / full).read_bytes() == one.read()
    assert (tmp_path / "report" / "thumbs" / thumb).is_file()
    assert row["answers"][0]["scores"] == [{"parts": {"why": "good"}}]
    assert row["answers"][1] == {"reason": "broke", "fault": "timeout"}
    assert row["answers"][2]["scores"] == [{"reason": "unreadable"}]
    assert row["answers"][3:] == [{"reason": "one picture only"}, None]
    assert row["turns"][0][1][0] == "What happens in scene 0?"
    assert row["truth"][0] == "The truth is told."


def test_malformed_rows_and_repeats_have_addresses_of_their_own():
    broken = Malformed(id="Q-0000", row=3, reason="row 3: duplicate id")
    found = [evaluation("a", sample(0), 1, repeat=r) for r in (0, 1)]
    found.append(evaluation("a", broken, None, document=Failure(broken.reason)))
    entries = entries_of(board(found), 10)
    assert [e.anchor for e in entries] == ["Q-0000", "Q-0000~2", "Q-0000 (row 3)"]


def test_hostile_text_stays_data(tmp_path):
    said = answer(*HOSTILE)
    found = [
        evaluation(
            HOSTILE[0],
            replace(sample(i), id=text, criteria=text),
            Result(Score(1.0, {text: [text, float("nan"), None]})),
            document=said,
        )
        for i, text in enumerate(HOSTILE)
    ]
    page = write(board(found, selection=HOSTILE[1]), tmp_path)
    for path in (tmp_path / "report").glob("*.js"):
        text = path.read_text("ascii")
        assert "<" not in text
    _, rows = data_of(tmp_path)
    assert rows[0]["answers"][0]["segments"] == list(HOSTILE)
    html = page.read_text()
    assert html.count("<script") == html.count("</script>") == 2
    assert "<img" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_page_asks_for_nothing_from_the_network(tmp_path):
    page = write(mixed_board(6, ["a", "b"]), tmp_path)
    for text in (page.read_text(), *(p.read_text() for p in tmp_path.glob("report/*.js"))):
        assert not re.search(r"(?:https?:)?//[a-z0-9]", text, re.IGNORECASE)
        assert "@import" not in text
        assert "fetch(" not in text


def test_same_input_gives_the_same_bytes_also_over_an_old_report(tmp_path):
    made = mixed_board(30, ["a", "b+c"])
    write(mixed_board(90, ["x", "y"], seed=9), tmp_path / "r")
    for root in (tmp_path / "r", tmp_path / "s" / "r"):
        write(made, root)

    def content(root: Path) -> dict[str, bytes]:
        files = (p for p in root.rglob("*") if p.is_file())
        return {str(p.relative_to(root)): p.read_bytes() for p in files}

    assert content(tmp_path / "r") == content(tmp_path / "s" / "r")


def test_thumbnails_are_small_and_full_size_stops_at_its_room(tmp_path):
    rng = np.random.default_rng(0)
    noise = []
    for _ in range(5):
        file = io.BytesIO()
        Picture.fromarray(rng.integers(0, 255, (600, 800, 3), np.uint8)).save(file, "PNG")
        noise.append(Image.of(file.getvalue()))
    sizes = [len(i.read()) for i in noise]
    assert sum(sizes[:3]) > 3 << 20 > sum(sizes[:2])
    quiet = replace(sample(0), turns=(), reference=None)
    made = board([evaluation("a", quiet, 1, document=answer(*noise))])
    page = write(made, tmp_path, thumbnail=128, full_size_mib=3)
    _, (row,) = data_of(tmp_path)
    shown = row["answers"][0]["segments"]
    assert [s[1:3] for s in shown] == [[128, 96]] * 5
    assert [s[3] is not None for s in shown] == [True, True, False, False, False]
    assert len(list((tmp_path / "report" / "images").iterdir())) == 2
    assert "2 of 5 pictures are here in full size" in page.read_text()


@pytest.mark.parametrize("form", ["TIFF", "BMP", "JPEG", "WEBP", "GIF"])
def test_any_format_is_shown_in_one_that_browsers_know(tmp_path, form):
    made = board([evaluation("a", sample(0), 1, document=answer(picture(5, form=form)))])
    write(made, tmp_path)
    _, (row,) = data_of(tmp_path)
    full = row["answers"][0]["segments"][0][3]
    with Picture.open(tmp_path / "report" / "images" / full) as copy:
        assert copy.format in ("PNG", "JPEG", "WEBP", "GIF")
        assert full.endswith({"JPEG": "jpg"}.get(copy.format, copy.format.lower()))


def test_pictures_that_cannot_be_read_are_named_and_stop_nothing(tmp_path):
    lost, rotten = Image("0" * 64, place="gone.png"), Image.of(b"no picture at all")

    def read(image: Image) -> bytes:
        if image is lost:
            raise FileNotFoundError("gone.png")
        return image.read()

    made = board([evaluation("a", sample(0), 1, document=answer(lost, rotten, picture(1)))])
    write_report(made, tmp_path, {}, read)
    _, (row,) = data_of(tmp_path)
    gone, unreadable, fine = row["answers"][0]["segments"]
    assert gone == [None, "cannot be read: gone.png"]
    assert unreadable[0] is None
    assert "no known picture format" in unreadable[1]
    assert fine[0]


def test_a_second_report_reads_no_picture_again(tmp_path):
    made, read = mixed_board(12, ["a"]), []

    def counting(image: Image) -> bytes:
        read.append(image.digest)
        return image.read()

    write_report(made, tmp_path, {}, counting)
    assert len(read) == len(set(read)) == len(list((tmp_path / "report/thumbs").iterdir()))
    write_report(made, tmp_path, {}, counting)
    assert len(read) == len(set(read))


def test_large_runs_show_the_same_part_whatever_the_systems(tmp_path):
    page = write(mixed_board(30, ["a"]), tmp_path / "one", queries=10)
    write(mixed_board(30, ["b", "c"], seed=4), tmp_path / "two", queries=10)
    shown = [[e[0] for e in data_of(tmp_path / n)[0]["entries"]] for n in ("one", "two")]
    assert shown[0] == shown[1] == sorted(shown[0])
    assert len(shown[0]) == 10
    assert max(shown[0]) > "Q-0014"
    assert "10 of 30 queries are shown here" in page.read_text()


def test_every_query_of_a_large_run_is_shown(tmp_path):
    page = write(plain_board(1203), tmp_path)
    index, rows = data_of(tmp_path)
    assert [e[0] for e in index["entries"]] == [f"Q-{i:04d}" for i in range(1203)]
    assert rows[1202]["answers"][0]["segments"] == ["Word 1202."]
    assert len(list((tmp_path / "report").glob("data-*.js"))) == 61
    assert "queries are shown here" not in page.read_text()


def test_pictures_are_read_and_written_a_chunk_at_a_time(tmp_path):
    found = [
        evaluation("a", sample(i), 1, document=answer(picture(500 + i))) for i in range(45)
    ]
    last = found[44].document.value.images[0]

    def read(image: Image) -> bytes:
        written = len(list((tmp_path / "report").glob("data-*.js")))
        assert written == (2 if image == last else min(written, 2))
        return image.read()

    write_report(board(found), tmp_path, {}, read)
    assert "cannot be read" not in (tmp_path / "report" / "data-002.js").read_text()


def test_summary_stands_in_plain_html(tmp_path):
    made = board_of(
        {"w+s": [1, 2, 3, 4, 5, 6], "v+s": [2, 2, 2, 2, 2, None]}, categories={}
    )
    html = write(
        replace(made, missing=3, selection="6 of 99 queries"), tmp_path
    ).read_text()
    words = " ".join(re.sub(r"<[^>]*>", " ", html).split())
    assert "6 of 99 queries" in words
    assert re.search(r"w\+s .*3\.50 \[\d\.\d\d, \d\.\d\d\] n=6", words)
    assert "LVLM &times; text-to-image model" in words
    assert "3 answers are missing" in words
    assert "0123456789ab with changes" in words
    assert "1,234 input tokens" in words
    assert "Random weights" not in words


def test_random_weights_raise_a_banner(tmp_path):
    made = board_of({"a": [1]}, systems=[system("a", "tiny")])
    made = replace(made, scorers=[Judge(stages=(stage("judge", "dummy"),))])
    words = " ".join(re.sub(r"<[^>]*>", "", write(made, tmp_path).read_text()).split())
    assert "Random weights. judge ran on dummy random weights. a ran on tiny" in words


def interval(cell: str) -> list[float]:
    """The two ends of the interval written in a cell."""
    (found,) = re.findall(r"\[(.*?), (.*?)\]", cell)
    return [float(end) for end in found]


def test_difference_is_shown_from_both_sides(tmp_path):
    made = board_of({"a": [5, 5, 5, 4, 5, 5], "b": [1, 2, 1, 1, 3, 0]})
    html = write(made, tmp_path).read_text()
    apart = re.findall(r'<td class="apart">(.*?)</td>', html, re.S)
    means, ends = zip(
        *[(re.findall(r"<b>(.*?)</b>", c), interval(c)) for c in apart], strict=True
    )
    assert means == (["+3.50"], ["-3.50"])
    assert 2 < ends[0][0] < 3.5 < ends[0][1] < 5
    assert ends[1] == [-ends[0][1], -ends[0][0]]


def test_empty_run_has_a_page(tmp_path):
    page = write_report(board([], systems=[system("a")], missing=4), tmp_path, {}, at_hand)
    index, rows = data_of(tmp_path)
    assert (index["entries"], rows) == ([], [])
    assert "4 answers are missing" in page.read_text()


def test_manifest_facts_take_whatever_is_there():
    assert facts_of({}).general == {}
    odd = {"git": None, "packages": 3, "data": "x", "stages": {"s": None}, "usage": []}
    assert facts_of(odd).general == {"data": "x"}
    assert facts_of(odd).stages[0]["stage"] == "s"


def test_as_script_escapes_all_that_could_end_a_script():
    text = as_script("f", HOSTILE)
    assert text.isascii()
    assert "<" not in text
    assert json.loads(text[2:-3]) == list(HOSTILE)


def test_plain_keeps_json_and_words_the_rest():
    odd = {1: (1.5, None, True), "x": float("inf"), "p": Path("a")}
    assert plain(odd) == {"1": [1.5, None, True], "x": "inf", "p": "a"}


def test_document_of_text_only_needs_no_picture(tmp_path):
    empty = Result(Document((Text(""),)))
    made = board([evaluation("a", replace(sample(0), turns=()), 1, document=empty)])
    write(made, tmp_path)
    assert data_of(tmp_path)[1][0]["answers"][0]["segments"] == [""]


def test_an_unknown_order_of_text_and_pictures_is_said_with_the_answer(tmp_path):
    noted = {"m": [{"finish": "stop"}, {"order": "unknown: apart from the text"}]}
    documents = [Result(Document((Text("a"),)), notes=notes) for notes in (noted, {})]
    made = board(
        [evaluation("s", sample(i), None, document=d) for i, d in enumerate(documents)]
    )
    write(made, tmp_path)
    first, second = (row["answers"][0] for row in data_of(tmp_path)[1])
    assert first["order"] == "unknown: apart from the text"
    assert "order" not in second
