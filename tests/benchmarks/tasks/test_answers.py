"""Answers made elsewhere: how their format is told, and how they are compared."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_helpers import invoke, manifest
from mmie_helpers import folder, row
from paths import CHECKOUT
from picture_helpers import flat

from plait.benchmarks.tasks.answers import (
    FORMATS,
    AnswerPlace,
    find_format,
    places_by_name,
    systems_of_answers,
)
from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.generators.base import Failure, Skip
from plait.generators.document import Document, Image, Text
from plait.generators.errors import UsageError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("worker_threads")]
IDS = ("SA-1", "SA-2", "SA-3", "MSR-4")
TINY = ("--weights", "tiny")


def theirs(id, **changes):
    """A row in the layout of MMIE's scorer; the question's image is not there."""
    whole = {
        "id": id,
        "question": [{"text": "q", "image": "images/of-the-data.png"}],
        "answer": [{"text": f"to {id}", "image": "images/a.png"}],
        "model": "m",
        "gt_answer": [{"text": None, "image": None}],
    }
    return {k: v for k, v in (whole | changes).items() if v is not None}


def ueval(id, **changes):
    return {"id": id, "text_answer": f"to {id}", "image_answer": ["a.png"], **changes}


def written(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "a.png").write_bytes(flat())
    file.write_text(rows if isinstance(rows, str) else json.dumps(rows))
    return file


@pytest.fixture
def task(tmp_path, monkeypatch):
    """Four queries in `data`, which is beside the answers in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder(tmp_path / "data", [row(id) for id in IDS])
    return load("data")


RUNS = {}
"""Runs by their rows: each is made once."""


def run_of_gt(root):
    rows = Path("data", "data.json").read_bytes()
    if rows in RUNS:
        return Path(shutil.copytree(RUNS[rows], root))
    words = ["--system", "gt", "--system", "gt:no-images", "--scorer", "bleu", *TINY]
    done = invoke("run", "--data", "data", *words, "--repeats", "2", "--out", str(root))
    assert done.exit_code in (0, 1), done.output
    RUNS[rows] = root.absolute()
    return root


def in_mmie(place):
    return folder(place, [theirs(id) for id in IDS])


def in_lines(place):
    lines = "\n".join(json.dumps(ueval(id)) for id in IDS)
    return written(place.with_suffix(".jsonl"), lines)


def in_ueval(place):
    return written(place.with_suffix(".json"), [ueval(id) for id in IDS])


def in_isg(place):
    parts = [{"type": "text", "content": "t"}, {"type": "image", "content": "a.png"}]
    lines = "\n".join(json.dumps({"id": id, "output": parts}) for id in IDS)
    return written(place.with_suffix(".jsonl"), lines)


def in_opening(place):
    about = {"meta_task_name": "m", "subtask_name": "s"}
    said = [{"input": []}, {"output": [{"text": "t", "image": "a.png"}]}]
    for i, id in enumerate(IDS):
        written(place / f"{id}.json{'l' * (i % 2)}", about | {"conversations": said})
    return place


def in_columns(place):
    lines = "\n".join(json.dumps({"id": id, "text": "t"}) for id in IDS)
    return written(place.with_suffix(".jsonl"), lines)


def several_in_ueval(place):
    for name in "ab":
        written(place / f"{name}.json", [ueval(id) for id in IDS])
    written(place / "notes.json", {"made": "today"})
    return place


FOUND: list[tuple[Callable[[Path], Path], str, dict[str, int], str]] = [
    (in_mmie, "mmie", {"x": 4}, "4 of 4 rows of data.json with id, answer, model"),
    (in_ueval, "ueval", {"x": 4}, "4 of 4 rows of x.json with id, text_answer"),
    (in_lines, "ueval", {"x": 4}, "4 of 4 rows of x.jsonl with id, text_answer"),
    (in_isg, "isg", {"x": 4}, "4 of 4 rows of x.jsonl with id, output"),
    (in_opening, "opening", {"x": 4}, "3 files more with meta_task_name"),
    (in_columns, "rows", {"x": 4}, "by columns of x.jsonl: id, answer from text"),
    (several_in_ueval, "ueval", {"x/a": 4, "x/b": 4}, "not read: notes.json"),
    (
        run_of_gt,
        "run",
        {f"x/{s}{n}": 4 for s in ("gt", "gt:no-images") for n in ("", " (repeat 2)")},
        "manifest.json with plait, config",
    ),
]


@pytest.mark.parametrize(("make", "format", "systems", "evidence"), FOUND)
def test_a_format_is_told_by_what_is_there(task, make, format, systems, evidence):
    place = make(Path.cwd() / "x")
    with_told, given = systems_of_answers(task, {"x": str(place)})
    assert {s.name: len(s.answers) for s in given} == systems
    told = with_told.about["answers"]["x"]
    assert told["format"] == format
    assert evidence in told["evidence"]
    for counts in told["systems"].values():
        assert counts["answers"] + counts["failed"] + counts["without"] == len(IDS)
        assert counts["unknown"] == []
    assert systems_of_answers(task, {"x": f"{format}:{place}"})[1] == given


def test_all_formats_are_tested():
    assert {format for _, format, *_ in FOUND} == FORMATS.keys()


def test_a_run_gives_what_it_made_and_why_it_did_not(task):
    folder(Path("data"), [row(id) for id in IDS[:3]] + [row("SA-4", conversations=[])])
    root = run_of_gt(Path.cwd() / "run")
    _, systems = systems_of_answers(load("data"), {"x": str(root)})
    by_name = {system.name: system.answers for system in systems}
    whole, blind = by_name["x/gt"], by_name["x/gt:no-images"]
    assert whole["SA-1"] == Document((Text("Step 2: Go on."),))
    assert isinstance(blind["SA-1"], Skip)
    assert isinstance(whole["SA-4"], Failure)


def test_rows_without_their_query_or_broken_are_counted(task):
    rows = [
        theirs("SA-1"),
        theirs("SA-2", answer=[{"text": None, "image": "images/gone.png"}]),
        theirs("SA-404"),
        theirs(""),
        theirs("SA-1"),
        theirs("SA-3", model=None),
        7,
    ]
    told, (system,) = systems_of_answers(task, {"x": str(folder(Path("x"), rows))})
    outcomes = {id: type(a).__name__ for id, a in system.answers.items() if id in IDS}
    broken = dict.fromkeys(("SA-2", "SA-3", "MSR-4"), "Failure")
    assert outcomes == {"SA-1": "Document"} | broken
    counts = told.about["answers"]["x"]["systems"]["x"]
    assert (counts["answers"], counts["failed"], counts["without"]) == (1, 3, 0)
    assert counts["unknown"] == ["SA-404"]
    starts = [reason.split(":")[0] for reason in counts["broken"]]
    assert starts == ["row 6", "row 3"]
    assert isinstance(system.answers["SA-1"], Document)
    assert isinstance(system.answers["SA-1"].segments[1], Image)


def mmie_answer(id, text):
    return theirs(id, answer=[{"text": text, "image": None}])


def ueval_answer(id, text):
    return {"id": id, "text_answer": text}


def isg_answer(id, text):
    return {"id": id, "output": [{"type": "text", "content": text}]}


OF_FORMAT = [(mmie_answer, "json"), (ueval_answer, "json"), (ueval_answer, "jsonl")]
OF_FORMAT += [(isg_answer, "jsonl"), (mmie_answer, "jsonl")]


@pytest.fixture(params=OF_FORMAT)
def given(request, task):
    """What is told of rows in a format, and the answers: texts, or reasons of failures."""
    make, suffix = request.param

    def read(rows):
        made = [make(*row) if isinstance(row, tuple) else row for row in rows]
        lines = "\n".join(r if isinstance(r, str) else json.dumps(r) for r in made)
        content = lines if suffix == "jsonl" else json.dumps(made)
        place = written(Path(f"x.{suffix}"), content)
        place.write_bytes(place.read_bytes().replace(b"BYTE", b"\xe9"))
        told, (system,) = systems_of_answers(task, {"x": str(place)})
        answers = {id: system.answers.get(id) for id in IDS}
        counts = told.about["answers"]["x"]["systems"]["x"]
        return counts, {
            id: a.text if isinstance(a, Document) else getattr(a, "reason", None)
            for id, a in answers.items()
        }

    return read


def test_the_same_answer_twice_counts_once(given):
    counts, answers = given([("SA-1", "a"), ("SA-2", "b"), ("SA-1", "a")])
    assert answers == {"SA-1": "a", "SA-2": "b", "SA-3": None, "MSR-4": None}
    assert [counts[k] for k in ("answers", "failed", "without")] == [2, 0, 2]
    assert counts["unknown"] == counts["broken"] == []


@pytest.mark.parametrize("texts", [("a", "b"), ("a", "b", "a"), ("a", 5), (5, "a")])
def test_two_answers_to_one_query_are_a_failure(given, texts):
    counts, answers = given([*(("SA-1", text) for text in texts), ("SA-2", "c")])
    assert "duplicate id: an earlier" in answers["SA-1"]
    assert answers["SA-2"] == "c"
    assert [counts[k] for k in ("answers", "failed", "without")] == [1, 1, 2]


@pytest.mark.parametrize("broken", ['{"id": "SA-3", ', 7, ("", "a"), ("\u2028", "a")])
def test_a_broken_row_is_a_failure_of_every_query_without_an_answer(given, broken):
    """Of which query it is the answer cannot be told; its place can."""
    rows = [("SA-1", "a"), broken, ("SA-2", "b"), ("MSR-4", "c")]
    counts, answers = given(rows)
    assert (answers["SA-1"], answers["SA-2"]) == ("a", "b")
    assert re.search(r"x\.jsonl?.* (row|answer) 1: ", answers["SA-3"])
    assert [counts[k] for k in ("answers", "failed", "without")] == [3, 1, 0]
    assert len(counts["broken"]) == 1
    counts, answers = given([*rows, ("SA-3", "d")])
    assert [counts[k] for k in ("answers", "failed", "without")] == [4, 0, 0]
    assert len(counts["broken"]) == 1


def test_a_byte_that_is_no_utf8_is_a_failure_of_its_answer(given):
    counts, answers = given([("SA-1", "BYTE"), ("SA-2", "b")])
    assert "0xe9" in answers["SA-1"]
    assert answers["SA-2"] == "b"
    assert [counts[k] for k in ("answers", "failed", "without")] == [1, 1, 2]


def test_of_two_files_for_a_query_of_opening_json_is_the_answer(task):
    place = in_opening(Path("x"))
    said = [{"input": []}, {"output": [{"text": "another"}]}]
    row = {"meta_task_name": "m", "subtask_name": "s", "conversations": said}
    for name in ("SA-1.jsonl", "SA-2.json"):
        written(place / name, row)
    _, (system,) = systems_of_answers(task, {"x": str(place)})
    assert (system.answers["SA-1"].text, system.answers["SA-2"].text) == ("t", "another")


def test_models_in_one_file_are_systems(task):
    rows = [theirs("SA-1"), theirs("SA-1", model="n"), theirs("SA-2", model=None)]
    _, systems = systems_of_answers(task, {"x": str(folder(Path("x"), rows))})
    broken = {"SA-1": "Document", "SA-2": "Failure"}  # of which it is, is not known
    assert {
        s.name: {id: type(a).__name__ for id, a in (s.answers or {}).items()}
        for s in systems
    } == {"x/m": broken, "x/n": broken}


def test_what_is_ambiguous_is_refused_until_it_is_named(task):
    both = [theirs(id, text_answer="t") for id in IDS]
    place = folder(Path.cwd() / "x", both)
    with pytest.raises(UsageError) as refused:
        find_format(AnswerPlace.of("x"))
    assert f"mmie:{place} or ueval:{place}" in str(refused.value)
    assert str(refused.value).count("4 of 4 rows of data.json with id") == 2
    for name in ("mmie", "ueval"):
        assert find_format(AnswerPlace.of(f"{name}:x")).name == name


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": "1", "said": "t"}], "data.json: 1 row, the first has id, said"),
        ([], "data.json: no rows"),
        ("[1, 2]", "the first is 1"),
        ("[", "neither JSON nor lines"),
    ],
)
def test_what_no_format_fits_is_refused(task, rows, said):
    written(Path("x/data.json"), rows)
    for place in ("x", "mmie:x"):
        with pytest.raises(UsageError) as refused:
            find_format(AnswerPlace.of(place))
        assert said in str(refused.value)
    assert "ueval: " not in str(refused.value), "only what was asked for is valid"


def test_a_file_that_cannot_be_read_stops_only_its_own_format(task):
    place = in_mmie(Path("x"))
    written(place / "scores.json", '[{"id": 1')
    assert find_format(AnswerPlace.of("x")).name == "mmie"
    several_in_ueval(Path("y"))
    written(Path("y/c.json"), '[{"id": 1')
    with pytest.raises(TaskError, match=r"c\.json is neither JSON"):
        find_format(AnswerPlace.of("y"))


def test_places_have_names(task):
    for place in ("a/out", "b/out", "gpt-4.1", "x=y"):
        in_mmie(Path(place))
    in_ueval(Path("c/gpt"))
    told = places_by_name(["a/out", "c/gpt.json", "v2=b/out", "m=mmie:b/out", "x=y"])
    assert {
        name: str(place.path.relative_to(Path.cwd())) for name, place in told.items()
    } == {
        "out": "a/out",
        "gpt": "c/gpt.json",
        "v2": "b/out",
        "m": "b/out",
        "x=y": "x=y",
    }
    assert told["m"].format == "mmie"
    assert list(places_by_name(["gpt-4.1"])) == ["gpt-4.1"]
    with pytest.raises(UsageError, match="would both be called 'out'"):
        places_by_name(["a/out", "b/out"])


# ------------------------------------------------------------------------- the command


def board(root):
    rows = json.loads((root / "leaderboard.json").read_text())
    return {row["system"]: row for row in rows}


def score(*words):
    """What `plait score` prints, and its run directory."""
    done = invoke("score", *words, *TINY)
    (line,) = (t for t in done.output.splitlines() if t.startswith("run directory "))
    return done.output, Path(line.removeprefix("run directory "))


def test_places_of_all_formats_stand_side_by_side(task):
    in_mmie(Path("gpt"))
    written(
        Path("emu.json"), [ueval("SA-1"), ueval("SA-404"), ueval("SA-2", text_answer=3)]
    )
    run_of_gt(Path("runs/mine"))
    places = ("gpt", "v2=emu.json", "runs/mine", "--data", "data")
    said, root = score(*places, "--scorer", "stages:Constant")
    assert "1 answer, 1 failed; 2 of the data's 4 queries without one" in said
    assert "1 not to a query of the data: SA-404" in said
    rows = board(root)
    of_run = {name.replace("x/", "mine/") for name in FOUND[-1][2]}
    assert rows.keys() == {"gpt", "v2", *of_run}
    counts = ("n", "done", "failed", "skipped")
    assert [rows["gpt"][name] for name in counts] == [4, 4, 0, 0]
    assert [rows["v2"][name] for name in counts] == [4, 1, 1, 2]
    # Another scorer is added, and nothing of the first is made again.
    before = set(root.glob("stages/*/*.parquet"))
    said, again = score(*places, "--scorer", "bleu")
    assert again == root
    assert "added to the run, for all of its queries: scorer bleu" in said
    assert before <= set(root.glob("stages/*/*.parquet"))
    assert board(root)["gpt"]["scores"].keys() == {"stages:Constant", "bleu"}
    assert "nothing is missing" in score(*places, "--scorer", "stages:Constant")[0]
    # The run directory is one as any other.
    with pytest.raises(UsageError, match="ssim can score none of the 13 answers"):
        invoke("score", str(root), "--scorer", "ssim")
    assert invoke("score", str(root), "--scorer", "chrf").exit_code == 1
    assert len(board(root)["v2"]["scores"]) == 3
    assert invoke("report", str(root)).exit_code == 0
    assert manifest(root)["data"]["answers"]["v2"]["format"] == "ueval"


def test_a_place_is_added_and_none_is_exchanged(task):
    for name in ("one", "two", "other/one"):
        in_mmie(Path(name))
    words = ("--data", "data", "--scorer", "stages:Constant", "--out", "out")
    score("one", *words)
    said, root = score("two", *words)
    assert "added to the run, for all of its queries: system two" in said
    assert board(root).keys() == {"one", "two"}
    with pytest.raises(UsageError, match="answers of one are at"):
        invoke("score", "other/one", *words, *TINY)
    folder(Path("one"), [theirs(id, answer=[{"text": "else"}]) for id in IDS])
    with pytest.raises(UsageError, match=r"the answers of one at .* have changed"):
        invoke("score", "one", *words, *TINY)
    # Results were made of those of then.
    before = board(root)
    assert invoke("report", str(root)).exit_code == 0
    assert board(root) == before
    with pytest.raises(UsageError, match="gt names both a system and given answers"):
        invoke("score", "gt=one", "--data", "data", *TINY, "--set", 'systems=["gt"]')


def test_queries_are_those_of_a_place_that_holds_them(task):
    in_ueval(Path("a"))
    with pytest.raises(UsageError, match="--data ueval:PLACE"):
        invoke("score", "a.json", *TINY)
    rows = [theirs(id, question=[{"text": "q", "image": None}]) for id in IDS[:2]]
    folder(Path("b"), rows)
    run_of_gt(Path("c"))
    for place, queries in {"b": 2, "c": 4}.items():
        said, root = score("a.json", place, "--scorer", "stages:Constant")
        assert board(root)["a"]["done"] == queries, said
    folder(Path("d"), [theirs(id, gt_answer=None) for id in IDS])
    with pytest.raises(UsageError, match="--data ueval:PLACE"):
        invoke("score", "a.json", "d", *TINY)


@pytest.mark.models
def test_the_command_of_the_page(task):
    in_mmie(Path("gpt-4o"))
    in_ueval(Path("answers"))
    run_of_gt(Path("runs/mine"))
    folder(Path("data/MMIE"), [row(id) for id in IDS[:2]])
    page = (CHECKOUT / "docs" / "answers.md").read_text()
    (line,) = re.findall(r"^\$ plait score (.* --data .*)$", page, re.MULTILINE)
    _, root = score(*shlex.split(line, comments=True))
    scored = {name for name, cells in board(root).items() if cells["scores"]["clipscore"]}
    assert {"gpt-4o", "v2", "mine/gt"} <= scored
