"""Commands that read a run with a damaged part: no results are made of what is left."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cli_helpers import invoke as plait
from cli_helpers import manifest
from pairings_helpers import pairing_board, scores_of
from store_helpers import damage

from plait.api import open_run
from plait.benchmarks.results.leaderboard_files import write_leaderboard
from plait.benchmarks.results.pairings.tables import FILES
from plait.cluster import run as run_module
from plait.cluster.store import DamagedPart, StoreError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("worker_threads")]

WRITER = "stages:Paragraphs@text"
JSON = ("leaderboard.json", "differences.json")
NUMBERS = (*JSON, "leaderboard.csv", "failures.csv")
TEXTS = ("leaderboard.md", "leaderboard.tex", "report.html")


def tables(root: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in root.iterdir() if p.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, worker_threads: None) -> Path:
    root = tmp_path_factory.mktemp("broken") / "run"
    words = ["--system", WRITER, "--system", "gt", "--scorer", "stages:Constant"]
    done = plait("run", *words, "--weights", "tiny", "--limit", "6", "--out", str(root))
    assert done.exit_code == 0, done.output
    damage(next(root.glob("stages/Paragraphs*/part-*")), "outcome")
    return root


@pytest.fixture
def unread(run: Path, tmp_path: Path) -> Path:
    """The same without results, as of an earlier version of plait."""
    root = tmp_path / "unread"
    shutil.copytree(run, root, ignore=shutil.ignore_patterns("results"))
    return root


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("report", []),
        ("show", ["QUERY"]),
        ("export", ["--system", WRITER, "--out", "new"]),
        ("diff", ["RUN"]),
        ("leaderboard", ["RUN"]),
    ],
)
def test_results_of_sound_records_stay_when_a_part_is_damaged_later(
    command: str,
    words: list[str],
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = tables(run)
    given = {"RUN": str(run), "QUERY": next(iter(open_run(run).queries))}
    done = plait(command, str(run), *(given.get(w, w) for w in words))
    assert done.exit_code == 0, done.output
    assert {n: tables(run)[n] for n in NUMBERS} == {n: before[n] for n in NUMBERS}


def test_verify_names_a_repair_that_a_shell_reads(run: Path, tmp_path: Path) -> None:
    root = tmp_path / "my $run's [first]"
    shutil.copytree(run, root)
    told = plait("verify", str(root)).output.split("`")[1]
    program, *words = shlex.split(told)
    assert (program, words) == ("plait", ["verify", str(root), "--repair"])
    assert "set aside" in plait(*words).output
    assert "No part is damaged" in plait("verify", str(root)).output


COMPARED = ["--protocol", "creation", "--judge", "openai:none"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("report", []),
        ("export", ["--system", WRITER, "--out", "new"]),
        ("diff", ["RUN"]),
        ("bias", []),
        ("compare", COMPARED),
        ("agreement", ["human.csv"]),
    ],
)
def test_results_are_not_made_of_what_is_left(
    command: str,
    words: list[str],
    unread: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (place := tmp_path / "here").mkdir()
    monkeypatch.chdir(place)
    before = tables(unread)
    with pytest.raises(StoreError, match=r"part-\w+.parquet is damaged"):
        plait(command, str(unread), *(str(unread) if w == "RUN" else w for w in words))
    assert tables(unread) == before
    assert not any(place.iterdir())
    assert not (unread / "results").exists()
    assert DamagedPart.exit_status == StoreError.exit_status == 1


def test_every_table_of_a_damaged_run_is_marked_where_the_user_wants_them(
    unread: Path,
) -> None:
    before = tables(unread)
    assert plait("report", str(unread), "--damaged").exit_code == 0
    written = {name: text.decode() for name, text in tables(unread).items()}
    for name in JSON:
        assert {row["damaged_parts"] for row in json.loads(written[name])} == {1}, name
    lines = list(csv.DictReader(written["leaderboard.csv"].splitlines()))
    assert {line["damaged_parts"] for line in lines} == {"1"}
    lost = csv.DictReader(written["failures.csv"].splitlines())
    assert "damaged_parts" in (lost.fieldnames or ())
    assert {line["damaged_parts"] for line in lost} <= {"1"}
    missing = {line["system"]: line["missing"] for line in lines if not line["group"]}
    assert missing == {WRITER: "6", "gt": "0"}
    for name in TEXTS:
        assert "damaged parts in this run (1)" in written[name], name
        assert b"damaged parts" not in before[name], name


def test_results_without_lost_records_are_made_anew_when_these_are_back(
    unread: Path,
) -> None:
    before, (broken,) = tables(unread), unread.glob("stages/Paragraphs*/part-*")
    lost = broken.read_bytes()
    damage(broken, "outcome")  # Flipped twice, bytes are as they were.
    whole = broken.read_bytes()
    broken.write_bytes(lost)
    assert plait("report", str(unread), "--damaged").exit_code == 0
    assert json.loads(tables(unread)["leaderboard.json"])[0]["damaged_parts"] == 1
    with pytest.raises(StoreError):
        plait("report", str(unread))
    broken.write_bytes(whole)
    assert plait("report", str(unread)).exit_code == 0
    assert {n: tables(unread)[n] for n in NUMBERS} == {n: before[n] for n in NUMBERS}


def test_so_are_pairings(tmp_path: Path) -> None:
    made = pairing_board(scores_of(2, 2, 6))
    for damaged in (0, 3):
        write_leaderboard(replace(made, damaged=damaged), tmp_path)
        for name in FILES:
            assert ("damaged" in (tmp_path / name).read_text()) == bool(damaged), name


def test_a_damaged_picture_is_a_failure_of_the_command_and_the_tables_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "import stages\n\nclass Painter(stages.Painter):\n    kind = 'render'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    root = tmp_path / "run"
    words = ["--system", "stages:Paragraphs+mine:Painter", "--set", "scorers=[]"]
    plait("run", *words, "--weights", "tiny", "--limit", "2", "--out", str(root))
    before = tables(root)
    damage(next(root.glob("stages/Painter*/part-*")), "image.bytes")
    shutil.rmtree(root / "report")  # images that it holds are not read again
    assert plait("report", str(root)).exit_code == 1
    assert tables(root)["leaderboard.json"] == before["leaderboard.json"]
    assert plait("report", str(root), "--damaged").exit_code == 0


def test_a_part_that_was_deleted_is_missed_until_its_records_are_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    words = ["--system", "gt", "--weights", "tiny", "--limit", "6", "--out", str(root)]
    command = ["run", *words, "--scorer", "stages:Constant"]
    assert plait(*command).exit_code == 0
    (part,) = root.glob("stages/Constant*/part-*")
    assert manifest(root)["records"] == {part.parent.name: 6}
    assert plait("verify", str(root)).exit_code == 0
    part.unlink()
    # What was noted stays, where a command ends before its end.
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "evaluations", raising)
        with pytest.raises(StoreError, match="full"):
            plait(*command)
    assert manifest(root)["status"] == "interrupted"
    shutil.rmtree(root / "stages")
    assert plait("verify", str(root)).exit_code == 1
    assert plait(*command).exit_code == 0
    assert plait("verify", str(root)).exit_code == 0
    # Scorers that are named later do not take the place of what was noted of others.
    assert plait("score", str(root), "--scorer", "bleu").exit_code == 0
    assert len(manifest(root)["records"]) == 2


def raising(*_: object, **__: object) -> None:
    raise StoreError("the disk is full")
