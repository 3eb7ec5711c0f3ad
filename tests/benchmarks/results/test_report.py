"""The files of a report: what stands in them, and that nothing can break out of them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.results.report.scripts import as_script
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

from benchmarks.results.report import write_report
from benchmarks.results.report.entries import entries_of, plain
from benchmarks.results.report.panels import facts_of
from generators.base import Failure, Fault, Result, Skip, Unscored
from generators.document import Document, Image, Malformed, Score, Text, Turn


def write(made, root: Path, **settings) -> Path:
    return write_report(made, root, MANIFEST, at_hand, **settings)


def data_of(root: Path) -> tuple[dict, list[dict]]:
    """The index and all rows, as the page's script gets them."""
    texts = sorted((root / "report").glob("data-*.js"))
    assert [p.name for p in texts] == [f"data-{i:03d}.js" for i in range(len(texts))]
    index = script(root / "report" / "index.js")
    return index, [row for path in texts for row in script(path)]


def script(path: Path):
    """What a data file hands to the page."""
    name, rows = json.loads(f"[{path.read_text('ascii')[len('plait(') : -3]}]")
    assert name == path.name
    return rows


def pictures_of(root: Path) -> list[list]:
    """Every picture of a report by its number: its URL and size, or why there is none."""
    packs = script(root / "report" / "index.js")["packs"]
    return [row for name in packs for row in script(root / "report" / name)]


def pixels(url: str) -> np.ndarray:
    """What a data URL shows."""
    data = base64.b64decode(url.removeprefix("data:image/webp;base64,"))
    with Picture.open(io.BytesIO(data)) as shown:
        return np.asarray(shown.convert("RGB"), dtype=int)


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
    text, number = row["answers"][0]["segments"]
    url, width, height = pictures_of(tmp_path)[number]
    assert (text, width, height) == ("x", 64, 64)
    # A small PNG is kept as it is, pixel by pixel.
    assert (pixels(url) == np.asarray(Picture.open(io.BytesIO(one.read())))).all()
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
    assert html.count("<script") == html.count("</script>") == 1
    assert set(re.findall(r"<img[^>]*?src=.{11}", html)) <= {'<img src="data:image'}
    assert "&lt;script&gt;alert(1)" in html


def test_page_asks_for_nothing_from_the_network(tmp_path):
    page = write(mixed_board(6, ["a", "b"]), tmp_path)
    texts = [p.read_text() for p in tmp_path.glob("report/[di]*.js")]
    for text in (re.sub('data:[^"]*', "", page.read_text()), *texts):
        assert not re.search(r"(?:https?:)?//[a-z0-9]", text, re.IGNORECASE)
        assert "@import" not in text
        assert "fetch(" not in text


def test_same_input_gives_the_same_bytes_also_over_an_old_report(tmp_path):
    made = mixed_board(30, ["a", "b+c"])
    write(mixed_board(90, ["x", "y"], seed=9), tmp_path / "r")
    # Earlier versions wrote every picture to a file of its own.
    (tmp_path / "r" / "report" / "thumbs").mkdir()
    (tmp_path / "r" / "report" / "thumbs" / "0.webp").touch()
    for root in (tmp_path / "r", tmp_path / "s" / "r"):
        write(made, root)

    def content(root: Path) -> dict[str, bytes]:
        files = (p for p in root.rglob("*") if p.is_file())
        return {str(p.relative_to(root)): p.read_bytes() for p in files}

    assert content(tmp_path / "r") == content(tmp_path / "s" / "r")


def test_a_picture_is_kept_once_and_no_larger_than_it_is_shown(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (600, 800, 3), np.uint8)
    file = io.BytesIO()
    Picture.fromarray(noise).save(file, "PNG")
    large = Image.of(file.getvalue())
    # In the question, in two answers to two queries, and twice in one of them.
    asked = [replace(sample(i), turns=(Turn("user", (large,)),)) for i in range(2)]
    said = answer(large, "again", large)
    made = board([evaluation(n, s, 1, document=said) for s in asked for n in "ab"])
    write(made, tmp_path)
    rows = data_of(tmp_path)[1]
    shown = pictures_of(tmp_path)
    numbers = {n for r in rows for a in r["answers"] for n in a["segments"][::2]}
    assert numbers | {r["turns"][0][1][0] for r in rows} == {0}
    assert [size for _, *size in shown] == [[512, 384], [64, 64], [64, 64]]
    assert len({url for url, *_ in shown}) == 3
    assert sorted(p.name for p in (tmp_path / "report").iterdir()) == sorted(
        ["data-000.js", "index.js", *script(tmp_path / "report/index.js")["packs"]]
    )


def test_thousands_of_pictures_are_a_few_files(tmp_path):
    made = board(
        [
            evaluation(
                n, sample(i), 1, document=answer(*(drawn(i, n, k) for k in range(8)))
            )
            for i in range(50)
            for n in "ab"
        ]
    )
    write(made, tmp_path)
    assert len(pictures_of(tmp_path)) == 50 * (2 * 8 + 2)
    # Index, 3 files of text, and 900 pictures by the 256.
    assert len(list((tmp_path / "report").iterdir())) == 1 + 3 + 4


def drawn(*about: object) -> Image:
    """The smallest of pictures, another one for every name."""
    file = io.BytesIO()
    colour = tuple(hashlib.sha256(repr(about).encode()).digest()[:3])
    Picture.new("RGB", (1, 1), colour).save(file, "PPM")
    return Image.of(file.getvalue())


@pytest.mark.parametrize("form", ["TIFF", "BMP", "JPEG", "WEBP", "GIF"])
def test_any_format_is_shown_in_one_that_browsers_know(tmp_path, form):
    one = picture(5, form=form)
    made = board([evaluation("a", sample(0), 1, document=answer(one))])
    write(made, tmp_path)
    url, *size = pictures_of(tmp_path)[data_of(tmp_path)[1][0]["answers"][0]["segments"][0]]
    assert size == [64, 64]
    before = np.asarray(Picture.open(io.BytesIO(one.read())).convert("RGB"), dtype=int)
    assert abs(pixels(url) - before).mean() < 5


def test_pictures_that_cannot_be_read_are_named_and_stop_nothing(tmp_path):
    lost, rotten = Image("0" * 64, place="gone.png"), Image.of(b"no picture at all")

    def read(image: Image) -> bytes:
        if image is lost:
            raise FileNotFoundError("gone.png")
        return image.read()

    made = board([evaluation("a", sample(0), 1, document=answer(lost, rotten, picture(1)))])
    write_report(made, tmp_path, {}, read)
    _, (row,) = data_of(tmp_path)
    shown = pictures_of(tmp_path)
    gone, unreadable, fine = (shown[n] for n in row["answers"][0]["segments"])
    assert gone == [None, "cannot be read: gone.png"]
    assert unreadable[0] is None
    assert "no known picture format" in unreadable[1]
    assert fine[0]
    # What cannot be read now may be read later: the next report tries again.
    lost = picture(2)
    (tmp_path / "again").mkdir()
    tried: list[str] = []
    for _ in range(2):
        write_report(
            made, tmp_path / "again", {}, lambda i: tried.append(i.digest) or read(i)
        )
    assert tried.count("0" * 64) == 4  # each page tries it for the answers and an example


def test_a_second_report_reads_pictures_for_its_examples_alone(tmp_path):
    made, read = mixed_board(12, ["a"]), []

    def counting(image: Image) -> bytes:
        read.append(image.digest)
        return image.read()

    write_report(made, tmp_path, {}, counting)
    first = len(read)
    assert set(read) >= {i.digest for e in entries_of(made) for i in e.pictures()}
    write_report(made, tmp_path, {}, counting)
    assert set(read[first:]) <= set(read[:first])
    assert len(read) - first == first - len(pictures_of(tmp_path)) <= 12


def test_large_runs_show_the_same_part_whatever_the_systems(tmp_path):
    page = write(mixed_board(30, ["a"]), tmp_path / "one", queries=10)
    two = write(mixed_board(30, ["b", "c"], seed=4), tmp_path / "two", queries=10)
    shown = [[e[0] for e in data_of(tmp_path / n)[0]["entries"]] for n in ("one", "two")]
    assert shown[0] == shown[1] == sorted(shown[0])
    assert len(shown[0]) == 10
    assert max(shown[0]) > "Q-0014"
    assert "10 of 30 queries are shown here" in page.read_text()
    assert "among the queries shown" in two.read_text()


def test_every_query_of_a_large_run_is_shown_when_asked(tmp_path):
    page = write(plain_board(1203), tmp_path, queries="all")
    index, rows = data_of(tmp_path)
    assert [e[0] for e in index["entries"]] == [f"Q-{i:04d}" for i in range(1203)]
    assert rows[1202]["answers"][0]["segments"] == ["Word 1202."]
    assert len(list((tmp_path / "report").glob("data-*.js"))) == 61
    page = write(plain_board(1203), tmp_path)
    assert len(data_of(tmp_path)[0]["entries"]) == 200
    assert "200 of 1,203 queries are shown here" in page.read_text()
    page = write(plain_board(200), tmp_path)
    assert len(data_of(tmp_path)[0]["entries"]) == 200
    assert "queries are shown here" not in page.read_text()


def test_an_earlier_page_stays_as_it_was_until_all_pictures_are_written(tmp_path):
    def asked(seed: int):
        said = answer(*(drawn(seed, i) for i in range(300)))
        return board([evaluation("a", sample(0), 1, document=said)])

    def content() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    write(asked(1), tmp_path)
    before, reads = content(), []

    def interrupted(image: Image) -> bytes:
        reads.append(image)
        if len(reads) > 290:
            raise KeyboardInterrupt
        return image.read()

    with pytest.raises(KeyboardInterrupt):
        write_report(asked(2), tmp_path, {}, interrupted)
    assert content().items() > before.items()
    # The next command continues behind the file of pictures that was written.
    reads = []
    write_report(asked(2), tmp_path, {}, lambda image: reads.append(image) or image.read())
    assert len({image.digest for image in reads[: 302 - 256]}) == 302 - 256
    assert len(reads) - (302 - 256) <= 12  # for the examples
    write(asked(1), tmp_path)
    again = {k: v for k, v in content().items() if not k.endswith("report.html")}
    assert again.items() <= before.items()


def words_of(page: Path) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.read_text()).split())


def test_the_first_screen_says_what_the_run_is_and_how_it_went(tmp_path):
    made = board_of(
        {"w+s": [1, 2, 3, 4, 5, 6], "v+s": [2, 2, 2, 2, 2, None]},
        categories={},
        missing=3,
        selection="6 of 99 queries",
    )
    words = words_of(write(made, tmp_path))
    first = words[: words.index("Paired differences")]
    assert "2 systems answered 6 of 99 queries of sample; judge scored the answers" in first
    assert "3 answers are missing" in first
    board = first[first.index("Leaderboard") : first.index("Examples")]
    assert re.search(r"w\+s .*3\.50 \[\d\.\d\d, \d\.\d\d\] n=6", board)
    assert "5 of 7 done, 1 failed, 1 not made" in board
    examples = first[first.index("Examples") :]
    assert "where judge sets them furthest apart" in examples
    # The widest disagreement with both answers and their scores.
    assert re.search(r"Q-0004 .*What happens in scene 4\?.* w\+s judge 5\.00", examples)
    assert "LVLM x text-to-image model" in words
    assert "0123456789ab with changes" in words
    assert "1,234 input tokens" in words
    assert "Random weights" not in words


def test_examples_show_their_images_or_why_there_is_none(tmp_path):
    lost = Image("0" * 64, place="gone.png")
    said = {"a": answer("Left.", picture(1)), "b": answer(lost, *(picture(2),) * 4)}
    scores = {"a": 6, "b": 1}
    found = [evaluation(n, sample(0), scores[n], document=d) for n, d in said.items()]

    def read(image: Image) -> bytes:
        if image is lost:
            raise FileNotFoundError("gone.png")
        return image.read()

    html = write_report(board(found), tmp_path, {}, read).read_text()
    (example,) = re.findall(r'<article class="example">(.*?)</article>', html, re.S)
    assert '<a href="#Q-0000">' in example
    asked, best, worst = example.split('<section class="part">')[1:]
    assert [part.count("<img") for part in (asked, best, worst)] == [1, 1, 2]
    url = re.search(r'src="([^"]*)"', best)[1]
    assert (pixels(url) == np.asarray(Picture.open(io.BytesIO(picture(1).read())))).all()
    assert "The image cannot be read: gone.png." in worst
    assert "..." in worst


def test_examples_of_one_system_are_its_first_answers(tmp_path):
    failed = Failure("ran out", Fault.ERROR)
    found = [evaluation("a", sample(0), None, document=failed)]
    found += [evaluation("a", sample(i), 3) for i in (1, 2, 3)]
    html = write(board(found), tmp_path).read_text()
    shown = re.findall(r'<article class="example">.*?href="(.*?)"', html, re.S)
    assert shown == ["#Q-0001", "#Q-0002"]


def test_random_weights_raise_a_banner(tmp_path):
    made = board_of({"a": [1]}, systems=[system("a", "tiny")])
    made = replace(made, scorers=[Judge(stages=(stage("judge", "dummy"),))])
    words = " ".join(re.sub(r"<[^>]*>", "", write(made, tmp_path).read_text()).split())
    assert "Random weights. judge ran on dummy random weights. a ran on tiny" in words


def test_empty_run_has_a_page(tmp_path):
    page = write_report(board([], systems=[system("a")], missing=4), tmp_path, {}, at_hand)
    index, rows = data_of(tmp_path)
    assert (index["entries"], rows) == ([], [])
    assert "4 answers are missing" in page.read_text()


def test_manifest_facts_take_whatever_is_there():
    assert facts_of({}).general == {}
    odd = {"git": None, "packages": 3, "data": "x", "stages": {"s": None}, "usage": []}
    assert facts_of(odd).general == {"data": "x"}
    stages = facts_of(odd).stages
    assert stages is not None
    assert stages.rows[0][0].text == "s"


def test_as_script_escapes_all_that_could_end_a_script():
    text = as_script("f", list(HOSTILE))
    assert text.isascii()
    assert "<" not in text
    assert json.loads(f"[{text[len('plait(') : -3]}]") == ["f", list(HOSTILE)]


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
