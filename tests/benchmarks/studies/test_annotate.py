"""`plait annotate`: raters in a real browser, from disk and served, and what they said."""

from __future__ import annotations

import csv
import hashlib
import http.client
import json
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from api_helpers import OWN as SMALL
from api_helpers import SYSTEM, TEXTS, fill
from browser_helpers import MISSING, Browser, browser
from cli_helpers import plait

from plait.benchmarks.studies.annotation_server import server_of
from plait.scorers.judging.rubrics import OWN
from plait.scorers.statistics.alpha import krippendorff

pytestmark = pytest.mark.contract

SCORER = "comparing_helpers:Pictures"
ENTER, BACKSPACE = "\ue007", "\ue003"
PENALTY = "penalty"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two systems that only differ in the order of images."""
    root = tmp_path_factory.mktemp("annotate") / "run"
    asked = {"data": "miniature:12", "systems": ["gt", "gt:shuffled-images"]}
    fill(root, **asked, weights="tiny", scorers=["truth:match", SCORER])
    return root


@pytest.fixture(scope="module")
def session() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def chromium(session: Browser) -> Iterator[Browser]:
    yield session
    told = [e["message"] for e in session.logs("browser") if e["level"] != "INFO"]
    assert told == []


def in_browser(test: Any) -> Any:
    return pytest.mark.browser(pytest.mark.skipif(bool(MISSING), reason=MISSING)(test))


def run(*words: str | Path) -> str:
    done = plait(*map(str, words))
    assert done.returncode == 0, done.stderr
    return done.stdout


def made(root: Path, folder: Path, *words: str | Path) -> dict[str, Any]:
    """The key of a new page in `folder`."""
    run("annotate", root, "--out", folder, *words)
    key: dict[str, Any] = json.loads((folder / "key.json").read_text())
    return key


@contextmanager
def served(folder: Path) -> Iterator[int]:
    with server_of(folder, 0) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "annotations.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_nothing_on_the_page_names_a_system_or_an_item(root: Path, tmp_path: Path) -> None:
    key = made(root, tmp_path, "--items", "18", "--repeated", "2")
    handed = "".join(p.read_text() for p in sorted((tmp_path / "page").iterdir()))
    for item in key["items"].values():
        assert f'"{item["system"]}"' not in handed
        assert item["id"] not in handed
    assert "shuffled-images" not in handed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["key.json", "page"]
    # Twice the same items: in another block, by a token that says nothing.
    twice = {t: i["again"] for t, i in key["items"].items() if i["again"]}
    assert (len(key["items"]), len(twice)) == (20, 2)
    for token, former in twice.items():
        one, other = (
            {n: v for n, v in key["items"][t].items() if n != "again"}
            for t in (token, former)
        )
        assert one == other
    script = (tmp_path / "page" / "items.js").read_text()
    data = json.loads(script.removeprefix('plait("items.js",').removesuffix(");\n"))
    blocks = [set(block) for block in data["blocks"]]
    assert twice.keys() <= blocks[2]
    assert {*twice.values()} <= blocks[0]
    assert [len(block) for block in blocks] == [6, 6, 8]


def test_a_page_that_raters_may_have_begun_is_kept(root: Path, tmp_path: Path) -> None:
    words = ("--items", "9", "--repeated", "1", "--seed", "3")
    first = made(root, tmp_path / "a", *words)
    assert made(root, tmp_path / "a", *words) == first
    other = made(root, tmp_path / "b", *words)
    assert other["study"] != first["study"]
    assert other["items"].keys().isdisjoint(first["items"])

    def units(key: Mapping[str, Any]) -> set[tuple[str, str]]:
        return {(item["id"], item["system"]) for item in key["items"].values()}

    assert units(other) == units(first)
    done = plait("annotate", str(root), "--out", str(tmp_path / "a"))
    assert (done.returncode, "--out" in done.stderr) == (2, True)


def said_of(item: Mapping[str, Any], rater: str) -> list[str]:
    """The keys by which a rater answers an item; the same for both times it is shown.

    The second rater differs on the last criterion alone.
    """
    text = f"{item['id']} {item['system']} {item['baseline']}"
    bits = hashlib.sha256(text.encode()).digest()
    if item["form"] == "pair":
        # Verdicts are on systems, so keys depend on sides.
        return [("system", "baseline", "undecided")[bits[0] % 3]]
    count = len(OWN[item["form"]].criteria) + bool(OWN[item["form"]].penalty)
    keys = [str(bits[i] % 2) for i in range(count)]
    if rater == "bo":
        keys[5] = str(1 - int(keys[5]) if bits[9] % 4 == 0 else int(keys[5]))
    return keys


class Rater:
    """Somebody at a keyboard."""

    def __init__(self, chromium: Browser, page: Path | str, name: str, key: Any) -> None:
        self.chromium, self.page, self.name, self.key = chromium, page, name, key

    def come(self) -> None:
        self.chromium.open(self.page)
        self.chromium.wait("typeof data === 'object' && data !== null")
        self.chromium.type("#rater", f"{self.name}{ENTER}")
        self.chromium.wait("!document.querySelector('#bar').hidden && !saving && !unsaved")

    def press(self, keys: str) -> None:
        self.chromium.type("body", keys)

    def shown(self) -> tuple[int, dict[str, Any], bool]:
        """Position, item and whether its sides are swapped, once it is drawn."""
        self.chromium.wait("Number(document.querySelector('#item').dataset.shown) === at")
        at, (token, swapped) = self.chromium.run("return [at, state.order[at]]")
        return at, self.key["items"][token], bool(swapped)

    def answer(self) -> None:
        at, item, swapped = self.shown()
        keys = said_of(item, self.name)
        if item["form"] == "pair":
            system_left = item["flipped"] == swapped
            sides = {"system": "1" if system_left else "3", "undecided": "2"}
            keys = [sides.get(keys[0], "3" if system_left else "1")]
        self.press("".join(keys) + ENTER)
        self.chromium.wait(f"at === {at + 1}")

    def saved(self) -> None:
        self.chromium.wait("!saving && !unsaved")


@in_browser
def test_two_raters_one_of_whom_closes_the_window(
    root: Path, tmp_path: Path, chromium: Browser
) -> None:
    """From disk with a break, and served; the CSV and alpha are what both have said."""
    gold = tmp_path / "gold.csv"
    gold.write_text(
        "id,system,criteria,penalty\nSA-0001,gt,1;1;1;1;1;1,0\nMSR-0003,gt,0;0;0;0;0;0,\n"
    )
    folder = tmp_path / "annotate"
    key = made(root, folder, "--items", "16", "--repeated", "2", "--gold", gold)
    assert len(key["items"]) == 20
    page = folder / "page" / "index.html"
    ann = Rater(chromium, page, "ann", key)
    ann.come()
    order = chromium.run("return state.order")
    assert sorted(token for token, _ in order) == sorted(key["items"])
    for _ in range(8):
        ann.answer()
    # The ninth: a slip that is undone, an unfinished item that Enter does not leave.
    ann.shown()
    ann.press(f"10{BACKSPACE}u{ENTER}")
    assert chromium.run("return [at, now, state.log.filter(([i]) => i === at).length]") == [
        8, 0, 0,
    ]  # fmt: skip
    ann.press("1")
    ann.saved()
    chromium.close_window()
    ann.come()
    assert chromium.run("return [at, now, state.order]") == [8, 1, order]
    assert chromium.run("return document.querySelector('#count').value").startswith(
        "8 of 20"
    )
    ann.press("u")
    for _ in range(12):
        ann.answer()
    chromium.wait("!document.querySelector('#end').hidden")
    chromium.devtools(
        "Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path)
    )
    ann.press("d")
    sent = tmp_path / f"answers-ann-{key['study']}.json"
    # The browser writes a download under another name, then renames it.
    for _ in range(1000):
        if not sent.exists():
            chromium.run("return new Promise((done) => setTimeout(done, 20))")

    with served(folder) as port:
        bo = Rater(chromium, f"http://127.0.0.1:{port}/", "bo", key)
        bo.come()
        assert chromium.run("return state.order") != order
        for _ in range(20):
            bo.answer()
        bo.saved()
    (kept,) = (folder / "answers").iterdir()

    said = run("annotate", root, "--out", folder, "--collect", sent, kept)
    rows = rows_of(folder)
    assert {row["annotator"] for row in rows} == {"ann", "bo"}
    assert len(rows) == 2 * 16
    items = {(item["id"], item["system"]): item for item in key["items"].values()}
    for row in rows:
        item = items[row["id"], row["system"]]
        expected = said_of(item, row["annotator"])
        rubric = OWN[item["form"]]
        assert row["criteria"] == ";".join(expected[: len(rubric.criteria)])
        assert row[PENALTY] == (expected[-1] if rubric.penalty else "")
    assert said.count("20 of 20") == 2
    assert "100" in said

    out = tmp_path / "out.json"
    run("agreement", root, folder / "annotations.csv", "--scorer", SCORER, "--out", out)
    content = json.loads(out.read_text())
    assert content["judges"][0]["counts"]["matched"] == 16
    alpha = content["alpha"]
    assert alpha["Text Quality"]["value"] == 1.0
    for name in ("Excellency", "Stylistic Consistency and Correspondence"):
        disputed: dict[tuple[str, str], dict[str, float]] = {}
        for row in (r for r in rows if OWN[r["category"]].criteria[5] == name):
            last = float(row["criteria"].split(";")[5])
            disputed.setdefault((row["id"], row["system"]), {})[row["annotator"]] = last
        found = krippendorff([(u[0], by) for u, by in disputed.items()], "nominal")
        assert alpha[name]["value"] == pytest.approx(found.value, abs=1e-6)
    assert alpha["score"]["value"] < 1


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_command_that_is_shown_collects_answers(
    root: Path, tmp_path: Path, elsewhere: bool
) -> None:
    """Given as it is printed, also where a path holds a space."""
    copy = shutil.copytree(root, tmp_path / "my run")
    out = tmp_path / "for raters" if elsewhere else copy / "annotate"
    more = ["--out", str(out)] if elsewhere else []
    said = run("annotate", copy, "--items", "3", "--repeated", "0", *more)
    study = json.loads((out / "key.json").read_text())["study"]
    (out / "answers").mkdir()
    state = {"study": study, "rater": "ann", "order": [], "log": []}
    (out / "answers" / "answers-ann.json").write_text(json.dumps(state))
    assert str(out / "answers") in said
    name, *words = shlex.split(said.splitlines()[-1])
    assert name == "plait"
    run(*words)
    assert (out / "annotations.csv").exists()


@in_browser
def test_pairs_in_random_sides(root: Path, tmp_path: Path, chromium: Browser) -> None:
    """Votes are on systems, wherever these were shown; blank where a rater cannot say."""
    folder = tmp_path / "annotate"
    key = made(root, folder, "--pairs", "--items", "9", "--repeated", "2")
    ann = Rater(chromium, folder / "page" / "index.html", "ann", key)
    ann.come()
    ann.shown()
    for width, names in ((1400, ["Left", "Right"]), (390, ["Above", "Below"])):
        chromium.screen(width, 844, phone=width < 400)
        heads = "return [...document.querySelectorAll('.shown h3')].map((n) => n.innerText)"
        assert chromium.run(heads) == names
    words = chromium.run("return document.querySelector('.choices').innerText")
    assert ("upper" in words, "left" in words) == (True, False)
    tops = "[...document.querySelectorAll('.shown')].map((n) => n.getBoundingClientRect())"
    assert chromium.run(f"const [a, b] = {tops}; return a.bottom <= b.top")
    chromium.screen(1400, 1000)
    for _ in range(9):
        ann.answer()
    ann.shown()
    ann.press("x")
    chromium.wait("!document.querySelector('#end').hidden")
    state = chromium.run("return state")
    sent = tmp_path / "ann.json"
    sent.write_text(json.dumps(state))
    said = run("annotate", root, "--out", folder, "--collect", sent)
    assert "9 of 10" in said
    rows = rows_of(folder)
    assert len(rows) == 8
    for row in rows:
        item = next(i for i in key["items"].values() if i["id"] == row["id"])
        assert (row["system"], row["baseline"]) == ("gt", "gt:shuffled-images")
        assert row["vote"] in ("", *said_of(item, "ann"))
        token, swapped = state["order"][int(row["position"]) - 1]
        left = "system" if key["items"][token]["flipped"] == bool(swapped) else "baseline"
        assert row["shown_left"] == row[left]
    out = tmp_path / "out.json"
    words = ("agreement", root, folder / "annotations.csv", "--scorer", "truth:match")
    run(*words, "--out", out)
    assert json.loads(out.read_text())["form"] == "vote"


@in_browser
def test_markup_in_queries_and_answers_is_text(tmp_path: Path, chromium: Browser) -> None:
    fill(tmp_path / "run", **SMALL)
    words = ("--system", SYSTEM, "--items", "9", "--repeated", "0")
    key = made(tmp_path / "run", tmp_path / "annotate", *words)
    assert {item["id"] for item in key["items"].values()} == {"Q-1", "Q-4"}
    ann = Rater(chromium, tmp_path / "annotate" / "page" / "index.html", "<b>ann", key)
    ann.come()
    shown = {}
    for _ in range(2):
        at, item, _ = ann.shown()
        chromium.wait(
            "[...document.querySelectorAll('#item img')].every((i) => i.naturalWidth)"
        )
        text = "return document.querySelector(arguments[0]).innerText"
        shown[item["id"]] = chromium.run(text, "#query"), chromium.run(text, "#answers")
        ann.press("x")
        chromium.wait(f"at === {at + 1}")
    assert TEXTS["Q-1"] in shown["Q-1"][0]
    assert "<i>first</i>" in shown["Q-1"][1]


def asked(port: int, method: str, path: str, body: Any = None, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    sent = None if body is None else json.dumps(body)
    connection.request(method, path, sent, headers)
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply.status


def test_the_server_keeps_one_window_and_strangers_out(root: Path, tmp_path: Path) -> None:
    study = made(root, tmp_path, "--items", "3", "--repeated", "0")["study"]
    state = {"study": study, "rater": "b/o", "revision": 1, "order": [], "log": []}
    later = state | {"revision": 2}
    with served(tmp_path) as port:
        at = "/answers/b%2Fo"
        assert asked(port, "PUT", at, later) == 409
        assert asked(port, "PUT", at, state) == 204
        assert asked(port, "PUT", at, state) == 204  # its reply was lost
        assert asked(port, "PUT", at, state | {"log": [[0, 0, "1", 1]]}) == 409
        assert asked(port, "PUT", at, later) == 204
        assert asked(port, "PUT", "/answers/ann", later) == 400
        assert asked(port, "PUT", at, state | {"study": "another"}) == 400
        assert asked(port, "PUT", at, later, Host="example.org") == 403
        assert asked(port, "GET", at, Host="example.org") == 403
        assert asked(port, "GET", "/key.json") == 404
        assert asked(port, "GET", "/../key.json") == 404
        assert asked(port, "GET", "/items.js") == 200
    (kept,) = (tmp_path / "answers").iterdir()
    assert json.loads(kept.read_text()) == later


@pytest.fixture(scope="module")
def answered(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page in `page`, beside files that are not its raters'."""
    place = tmp_path_factory.mktemp("answered")
    study = made(root, place / "page", "--items", "3", "--repeated", "0")["study"]
    state = {"study": study, "rater": "ann", "order": [], "log": []}
    files = {"a": state, "b": state, "other": state | {"study": "x"}, "damaged": [1]}
    files["unknown"] = state | {"order": [["nowhere", 0]], "log": [[0, 0, "1", 5]]}
    for name, content in files.items():
        (place / f"{name}.json").write_text(json.dumps(content))
    (place / "gold.csv").write_text("id,system,criteria\nSA-404,gt,1;1;1;1;1;1\n")
    (place / "whole.csv").write_text("id,system,score\nSA-0001,gt,5\n")
    return place


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--collect"], "no rater's file"),
        (["--collect", "{tmp}/other.json"], "another page"),
        (["--collect", "{tmp}/damaged.json"], "damaged.json"),
        (["--collect", "{tmp}/unknown.json"], "'nowhere'"),
        (["--collect", "{tmp}/a.json", "{tmp}/b.json"], "both hold answers of 'ann'"),
        (["--out", "{tmp}/new", "--system", "nobody"], "'nobody'"),
        (["--out", "{tmp}/new", "--items", "3", "--repeated", "2"], "three times"),
        (["--out", "{tmp}/new", "--gold", "{tmp}/gold.csv"], "SA-404 of gt"),
        (["--out", "{tmp}/new", "--gold", "{tmp}/gold.csv", "--pairs"], "vote"),
        (["--out", "{tmp}/new", "--gold", "{tmp}/whole.csv"], "answers score"),
    ],
)
def test_wrong_use_is_explained(
    root: Path, answered: Path, words: list[str], said: str
) -> None:
    words = ["--out", "{tmp}/page", *words] if "--out" not in words else words
    done = plait("annotate", str(root), *(w.format(tmp=answered) for w in words))
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
