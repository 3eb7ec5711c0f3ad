"""plait from Python: values, notebooks, and stages in the current process."""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError
from html.parser import HTMLParser
from pathlib import Path

import pytest
from api_helpers import COLOURS, OWN, SCORER, SYSTEM, fill, flat
from paths import CHECKOUT
from PIL import Image as Pillow
from store_helpers import damage

import plait
from benchmarks import api
from benchmarks.results.notebook import NotebookDocument, query_html
from benchmarks.runs.config import RunConfig
from benchmarks.runs.run_data import RunData, TaskQuery
from cluster.store import BlobReader, Store, read_blob
from generators.base import Kind, Result
from generators.document import Document, Image, Malformed, Request, Sample, Text, Turn

OUTCOMES = {"Q-1": "done", "Q-2": "skipped", "Q-3": "failed", "Q-4": "done"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a system that fails and skips, and of the ground truth."""
    folder = tmp_path_factory.mktemp("api") / "run"
    fill(folder, **OWN)
    return folder


@pytest.fixture
def run(root: Path) -> RunData:
    return plait.open_run(root)


class _Parts(HTMLParser):
    """Text and pictures of HTML in order, and every tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        source = dict(attrs).get("src") or ""
        if source:
            assert source.startswith("data:image/webp;base64,")
            data = base64.b64decode(source.partition(",")[2])
            picture = Pillow.open(io.BytesIO(data)).convert("RGB")
            assert max(picture.size) <= 256
            self.parts.append(_colour(picture))

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def _colour(picture: Pillow.Image) -> str:
    pixel = picture.getpixel((5, 5))
    assert isinstance(pixel, tuple)
    near = {
        n: sum(abs(a - b) for a, b in zip(c, pixel, strict=True))
        for n, c in COLOURS.items()
    }
    return min(near, key=lambda name: near[name])


# ----------------------------------------------------------------------- importing


def test_importing_plait_is_light_and_the_api_is_imported_on_use() -> None:
    names = ("ray", "torch", "pandas", "transformers", "diffusers")
    heavy = f"[m for m in {names} if m in sys.modules]"
    lazy = ("benchmarks.api", "pydantic", "pyarrow")
    code = (
        "import sys, plait\n"
        f"print([m for m in {lazy} if m in sys.modules])\n"
        f"print({heavy})\n"
        "print('open_run' in dir(plait), callable(plait.system))\n"
        f"print({heavy})"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]", "True True", "[]"]


def test_plait_exports_the_api_and_nothing_else() -> None:
    for name in api.__all__:
        assert getattr(plait, name) is getattr(api, name)
    with pytest.raises(AttributeError, match="'plait' has no attribute 'open_ruin'"):
        plait.open_ruin  # noqa: B018


def test_run_and_plan_take_every_key_of_a_config() -> None:
    assert set(api.RunOptions.__annotations__) == set(RunConfig.model_fields)


# ------------------------------------------------------------------ a run as values


def test_a_run_gives_its_documents_as_frozen_values(run: RunData) -> None:
    assert (run.systems, run.scorers) == ((SYSTEM, "gt"), (SCORER,))
    answers = run.documents(SYSTEM)
    assert {id: answer.outcome for id, answer in answers.items()} == OUTCOMES
    first = answers["Q-1"]
    assert first.document is not None
    assert first.document.text.startswith("<i>first</i>")
    assert [_colour(p) for p in first.document.pictures] == ["red", "blue"]
    assert first.document.plain == Document(first.document.segments)
    assert first.scores[SCORER].value == 2
    assert first.notes["Illustrator"] == [{"prompt": "Tell <b>all</b> & show & tell"}]
    assert isinstance(first.query.sample, Sample)
    assert first.query.sample.turns[0].content[0] == Text("Tell <b>all</b> & show & tell")
    with pytest.raises(FrozenInstanceError):
        first.outcome = "failed"  # type: ignore[misc]


def test_failures_and_skips_keep_their_place_and_reason(run: RunData) -> None:
    answers = run.documents(SYSTEM)
    assert len(answers) == len(list(answers)) == 4
    assert "2 done, 1 skipped, 1 failed" in repr(answers)
    assert answers["Q-2"].reason == "takes no <such> query"
    assert (answers["Q-3"].reason, answers["Q-3"].fault) == ("the model refused", "refused")
    assert answers["Q-3"].document is None
    assert answers["Q-4"].scores[SCORER].outcome == "failed"
    assert answers["Q-4"].scores[SCORER].reason == "nothing to count"
    lost = [(r["system"], r["query"], r["scorer"], r["outcome"]) for r in run.failures]
    assert lost[:3] == [
        (SYSTEM, "Q-2", "", "skipped"),
        (SYSTEM, "Q-3", "", "failed"),
        (SYSTEM, "Q-4", SCORER, "failed"),
    ]
    assert len(lost) == 3 + 4, "no answer of the ground truth has a picture to count"


def test_scores_are_rows_of_which_none_is_left_out(run: RunData) -> None:
    rows = run.scores
    assert len(rows) == 2 * 4
    by_query = {r["query"]: r for r in rows if r["system"] == SYSTEM}
    assert {q: (r["outcome"], r["value"]) for q, r in by_query.items()} == {
        "Q-1": ("scored", 2.0),
        "Q-2": ("no_document", None),
        "Q-3": ("no_document", None),
        "Q-4": ("failed", None),
    }
    assert by_query["Q-3"]["reason"] == "failed (refused): the model refused"
    assert (by_query["Q-1"]["category"], by_query["Q-1"]["repeat"]) == ("SA", 1)
    frame = rows.to_pandas()
    assert frame.shape == (8, len(rows[0]))
    assert frame["value"].notna().sum() == 1
    assert "8 rows" in rows._repr_html_()


def test_without_pandas_its_absence_is_named(run: RunData, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(plait.UsageError, match="pandas is not installed"):
        run.scores.to_pandas()


def test_what_is_not_made_yet_is_missing_and_says_so(tmp_path: Path) -> None:
    fill(tmp_path, Kind.DRAFT, Kind.RENDER, **OWN)
    run = plait.open_run(tmp_path)
    answer = run.documents(SYSTEM)["Q-1"]
    assert answer.document is not None, "a document is there before it is judged"
    assert answer.scores[SCORER].outcome == "missing"
    assert "run the same command again" in answer.scores[SCORER].reason
    fill(tmp_path / "half", Kind.DRAFT, **OWN)
    half = plait.open_run(tmp_path / "half")
    assert half.documents(SYSTEM)["Q-1"].outcome == "missing"
    assert half.documents(SYSTEM)["Q-1"].document is None
    assert ("Q-1", "missing") in [(r["query"], r["outcome"]) for r in half.failures]


def test_the_leaderboard_is_a_table_with_its_warning(run: RunData) -> None:
    table = run.leaderboard
    assert [row[0].text for row in table.rows] == [SYSTEM, "gt"]
    assert "2 of 4 done, 1 failed, 1 skipped" in table.rows[0][-1].text
    assert "<td" in table._repr_html_()
    assert "| system |" in table._repr_markdown_()
    assert "random weights" in table._repr_html_(), "tiny weights are named"
    assert "the model refused" in run.reasons.markdown
    assert table.html in run._repr_html_()


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda run: run.documents("gtt"), "unknown system 'gtt'; did you mean 'gt'"),
        (lambda run: run.documents("gt", repeat=2), "repeat 2 is not from 1 to 1"),
        (lambda run: run.documents("gt")["Q-9"], "unknown query 'Q-9'"),
    ],
)
def test_wrong_names_are_explained(run: RunData, ask, said: str) -> None:
    with pytest.raises((plait.UsageError, KeyError), match=said):
        ask(run)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(plait.UsageError, match="is not a run directory"):
        plait.open_run(tmp_path)


# ------------------------------------------------------------------------ notebooks


def test_an_answer_shows_text_escaped_and_pictures_in_order(run: RunData) -> None:
    shown = _Parts(run.documents(SYSTEM)["Q-1"]._repr_html_())
    assert set(shown.tags) == {"div", "b", "img"}
    assert shown.parts == [
        "Q-1",
        "user",
        "Tell <b>all</b> & show & tell",
        "blue",
        " ",
        SYSTEM,
        "<i>first</i>\nthen",
        "red",
        " ",
        "Tell <b>all</b> & show & tell; last, 1",
        "blue",
        " ",
        f"{SCORER}: 2",
    ]


def test_an_answer_that_is_not_there_shows_why(run: RunData) -> None:
    shown = run.documents(SYSTEM)["Q-2"]._repr_html_()
    assert "skipped: takes no &lt;such&gt; query" in shown
    judged = run.documents(SYSTEM)["Q-4"]._repr_html_()
    assert "failed (error): nothing to count" in judged


def test_a_damaged_picture_is_named_in_its_place(tmp_path: Path) -> None:
    experiment = fill(tmp_path, **OWN)
    run = plait.open_run(tmp_path)
    before = _Parts(run.documents(SYSTEM)["Q-1"]._repr_html_()).parts
    (render,) = (s for s in experiment.plan.stages if s.kind is Kind.RENDER)
    answer = run.documents(SYSTEM)["Q-1"]
    assert answer.document is not None
    part = Path(str(answer.document.images[0].place).partition("#")[0])
    assert part in Store(tmp_path).parts(render)
    damage(part, "image.bytes")
    again = plait.open_run(tmp_path)
    shown = _Parts(again.documents(SYSTEM)["Q-1"]._repr_html_()).parts
    (named,) = set(shown) - set(before)
    assert re.match(r"\[picture 1 cannot be read: .*damaged", named)
    assert shown.index(named) == before.index("red")
    assert shown[-4:] == before[-4:], "what follows it is shown"
    assert any(part.name in text for text in again.damage)
    with pytest.raises(Exception, match="damaged"):
        again.documents(SYSTEM)["Q-1"].document.pictures  # type: ignore[union-attr]  # noqa: B018


def test_a_picture_file_that_is_gone_or_changed_is_named(tmp_path: Path) -> None:
    gone = Image("0" * 64, place=str(tmp_path / "gone.png"))
    (tmp_path / "other.png").write_bytes(b"other")
    changed = Image("1" * 64, place=str(tmp_path / "other.png"))
    broken = Image.of(b"no <picture>")
    document = NotebookDocument((Text("a"), gone, changed, broken, Text("b")))
    shown = document._repr_html_()
    assert "[picture 1 cannot be read: " in shown
    assert "gone.png" in shown
    assert "[picture 2 cannot be read: " in shown
    assert "has changed since" in shown
    assert "[picture 3: the bytes are in no known picture format" in shown
    assert shown.index(">a<") < shown.index("picture 1") < shown.index(">b<")


def test_a_malformed_query_shows_its_reason() -> None:
    row = Malformed(id="x", row=3, reason="row 3: <image> is missing")
    assert "malformed: row 3: &lt;image&gt;" in query_html(row, read_blob)


# ------------------------------------------------------------------ run and plan


def test_run_and_plan_return_values_and_print_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    about = {**OWN, "systems": ["gt"], "scorers": [], "out": tmp_path / "run"}
    planned = plait.plan(**about)
    assert (planned.extent, planned.ready()) == (
        "4 documents: 4 queries, 1 systems, 1 repeats",
        True,
    )
    assert not (tmp_path / "run").exists()
    summary = plait.run(**about)
    assert (summary.counts["done"], summary.failed, summary.made) == (4, 0, 0)
    assert summary.results.documents("gt")["Q-1"].document is not None
    assert "leaderboard" in summary.log
    assert (tmp_path / "run" / "report.html").exists()
    assert capfd.readouterr().out == ""
    plait.run(**about, quiet=False)
    assert "4 done" in capfd.readouterr().out


def test_run_takes_a_config_file_too(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'data = "api_helpers:queries"\nsystems = ["gt"]\nscorers = []\nlimit = 4\n'
    )
    planned = plait.plan(tmp_path / "run.toml", limit=2, weights="tiny")
    assert planned.extent.startswith("2 documents")
    assert planned.table.rows == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"systems": ["anloe"]}, "did you mean 'anole'"),
        ({"systems": "anole"}, r'give a list of names, such as \["anole"\]'),
        ({"sed": 1}, "did you mean 'seed'"),
        ({"limit": 0}, "limit"),
    ],
)
@pytest.mark.parametrize("call", ["run", "plan"])
def test_wrong_use_raises_what_the_command_prints(
    tmp_path: Path, call: str, options: dict, said: str
) -> None:
    with pytest.raises(plait.UsageError, match=said):
        getattr(plait, call)(out=tmp_path / "run", weights="tiny", **options)


def test_a_key_that_is_missing_is_named_by_plan_and_by_system(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    planned = plait.plan(systems=["gpt-4o+sdxl-turbo"], weights="tiny", out=tmp_path / "r")
    assert not planned.ready()
    assert "OPENAI_API_KEY" in planned.missing[0]
    assert "missing: gpt-4o needs OPENAI_API_KEY" in planned._repr_html_()
    with pytest.raises(plait.UsageError, match="OPENAI_API_KEY"):
        plait.system("gpt-4o+sdxl-turbo", weights="tiny")


# ------------------------------------------------------- without Ray, in this process


def test_a_users_system_answers_text_and_pictures() -> None:
    illustrate = plait.system(SYSTEM, weights="tiny")
    document = illustrate("Look:", flat("red"), "and at", flat("blue"))
    assert document.text.splitlines()[-1] == "Look: and at; last, 2"
    assert [_colour(p) for p in document.pictures] == ["red", "blue"]
    assert "<img" in document._repr_html_()
    assert isinstance(document, Document)


def test_a_query_of_a_run_is_answered_as_in_the_run(run: RunData) -> None:
    illustrate = plait.system(SYSTEM, weights="tiny")
    there = run.documents(SYSTEM)
    for id, made in zip(there, illustrate.answers([*run.queries.values()]), strict=True):
        assert (made.outcome, made.reason) == (there[id].outcome, there[id].reason)
        if made.document is not None:
            assert made.document.plain == there[id].document.plain  # type: ignore[union-attr]


def test_a_system_without_a_document_raises_with_the_reason() -> None:
    illustrate = plait.system(SYSTEM, weights="tiny")
    with pytest.raises(plait.NoDocument, match="failed: the model refused"):
        illustrate("please !refuse")
    with pytest.raises(plait.NoDocument, match="skipped: takes no"):
        illustrate(plait.query("please !skip"))


def test_a_scorer_gives_a_score_or_the_reason(run: RunData) -> None:
    count = plait.scorer(SCORER, weights="tiny")
    answers = run.documents(SYSTEM)
    verdict = count(answers["Q-1"].query, answers["Q-1"])
    assert (verdict.outcome, verdict.value, str(verdict)) == ("scored", 2.0, "2")
    lost = count("A question", Document((Text("x"),)))
    assert (lost.value, lost.reason) == (None, "nothing to count")
    with pytest.raises(plait.UsageError, match="Q-3 has no document: the model refused"):
        count(answers["Q-3"].query, answers["Q-3"])


def test_a_stage_is_the_plain_class() -> None:
    write = plait.stage(SYSTEM, weights="tiny")
    (outcome,) = write([Request((Turn("user", (Text("Say !plain words"),)),))])
    assert outcome == Result(outcome.value)
    assert outcome.value.text == "no picture"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: plait.system("anloe"), "did you mean 'anole'"),
        (lambda: plait.stage("anole", weights="tiny"), "name one: draft, render"),
        (lambda: plait.stage("anole", "condition", weights="tiny"), "Valid: draft, render"),
        (lambda: plait.scorer("clipscor"), "did you mean 'clipscore'"),
        (lambda: plait.query(), "needs text or a picture"),
        (lambda: plait.query(3), "not of int"),
        (lambda: plait.system("gt")("a", plait.query("b")), "one sample alone"),
    ],
)
def test_wrong_names_and_values_are_explained(call, said: str) -> None:
    with pytest.raises(plait.UsageError, match=said):
        call()


def test_a_malformed_query_cannot_be_asked() -> None:
    row = Malformed(id="x", row=3, reason="row 3: no text")
    query = TaskQuery(id="x", sample=row, prompt=lambda s, v: s.turns, read=BlobReader())
    with pytest.raises(plait.UsageError, match="x is malformed: row 3: no text"):
        plait.system("gt")(query)
    with pytest.raises(plait.UsageError, match="x is malformed: row 3: no text"):
        plait.scorer(SCORER, weights="tiny")(query, Document())


@pytest.mark.models
def test_the_example_of_the_module_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    about = {"systems": ["anole"], "scorers": ["clipscore"], "weights": "tiny"}
    fill(tmp_path / "runs" / "x", **about, limit=3)
    (example,) = re.findall(
        r"^Example:\n(.*)\Z", api.__doc__ or "", re.DOTALL | re.MULTILINE
    )
    names: dict[str, object] = {}
    exec(re.sub(r"^    ", "", example, flags=re.MULTILINE), names)
    out = capsys.readouterr().out
    assert out.startswith("('anole',) ('clipscore',)\n")
    summary = names["summary"]
    assert isinstance(summary, api.RunSummary)
    assert summary.counts["done"] == 3
    verdict = names["verdict"]
    assert getattr(verdict, "outcome") == "scored"  # noqa: B009
    assert names["picture"].mode == "RGB"  # type: ignore[attr-defined]


@pytest.mark.models
def test_a_native_stage_and_system_answer_on_tiny_weights() -> None:
    document = plait.system("anole", weights="tiny", seed=1)(plait.query("Draw", id="a"))
    assert document.segments
    paint = plait.stage("sdxl-turbo", weights="tiny", steps=1)
    from generators.document import ImageRequest

    (outcome,) = paint([ImageRequest(prompt="a cat", seed=1)])
    assert isinstance(outcome, Result)
