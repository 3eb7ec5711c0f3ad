"""`plait compare`: pairs of a run's documents judged on Ray, counted, kept as records."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from api_helpers import fill
from comparing_helpers import creation_row, write_tsv

from benchmarks.plain_console import PlainConsole
from benchmarks.studies.bias import sections
from benchmarks.studies.bias.observations import Section
from benchmarks.studies.pairwise import CompareOptions, compare
from cluster.lock import RunInUse, RunLock
from cluster.stage_queue import MOST_UNREAD
from generators.base import Fault
from generators.errors import UsageError
from generators.keys import derived_seed
from scorers.judging.sources import parse_rubric

TERSE, WORDY = (f"comparing_helpers:{name}" for name in ("Terse", "Wordy"))
PUBLISHED = "published:gpt-4o-1120"
SAYS = ["", "!first", "!mute", "!silent", "!refuse", ""]
"""What is special about each of the six questions."""
ROWS = [
    creation_row(i, question=f"request {i} {said}", criteria="vivid")
    for i, said in enumerate(SAYS)
]


def answered(root: Path, *systems: str, rows: Sequence[Mapping[str, str]] = ROWS) -> Path:
    """A run whose systems have answered."""
    tsv = write_tsv(root.parent / "Creation.tsv", rows)
    fill(root, data=f"creation:{tsv}", systems=systems, scorers=[], weights="tiny")
    return root


def compared(root: Path, **about: Any) -> tuple[int, dict[str, Any], str]:
    wanted = {"protocol": "creation", "judge": "comparing_helpers:Longest"} | about
    wanted["rubric"] = parse_rubric(wanted.get("rubric"))
    said = io.StringIO()
    status = compare(root, CompareOptions(**wanted), PlainConsole(file=said, width=240))
    content = json.loads(page_of(said.getvalue()).with_suffix(".json").read_text())
    return status, content, said.getvalue()


def page_of(said: str) -> Path:
    return Path(said.split("comparison ")[-1].strip())


def overall(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{r['opponent'][18:]}-{r['system'][18:]}": r
        for r in content["table"]["rows"]
        if r["part"] == "overall"
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two systems."""
    root = tmp_path_factory.mktemp("compared") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root.parent / "cache"))
        return answered(root, TERSE, WORDY)


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, where nothing has been compared."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.parent / "cache"))
    return Path(shutil.copytree(made, tmp_path / "run"))


pytestmark = pytest.mark.usefixtures("worker_threads")


def test_pairs_are_judged_once_and_every_reply_is_counted(run: Path) -> None:
    """Six questions: two plain, one positional, one unread, one unanswered, one refused."""
    before = (run / "manifest.json").read_text()
    status, content, said = compared(run)
    assert status == 1  # the judge failed on `!refuse`
    row = overall(content)["Terse-Wordy"]
    # Wordy is over twice as long: +2 in both orders; where position decides, +1 and -1.
    assert row["values"]["reward"]["value"] == pytest.approx((100 + 100 + 0) / 3)
    assert row["values"]["reward"]["n"] == 3
    assert row["values"]["win_rate"]["value"] == pytest.approx(250 / 3)
    counts = row["counts"]
    wanted = {"questions": 6, "unjudged": 1, "read": 6, "unread": 2, "failed": 2}
    assert wanted.items() <= counts.items()
    # Two could not be read and were asked for once more.
    assert "12 judgements asked in" in said
    assert (run / "manifest.json").read_text() == before

    # The judge's refusals are final, so nothing is asked again, nor told otherwise.
    again = compared(run)
    assert "0 judgements asked" in again[2]
    assert again[1]["table"] == content["table"]


def test_a_judge_none_of_whose_first_replies_can_be_read_is_not_asked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = [creation_row(i, criteria="vivid") for i in range(60)]
    root = answered(tmp_path / "run", TERSE, WORDY, rows=rows)
    status, content, _ = compared(
        root, judge="comparing_helpers:Mute", weights="pretrained"
    )
    assert status == 1
    counts = content["counts"]
    assert counts["unscored"] + counts["failed_scores"] == len(rows)
    parts = root.rglob("stages/Mute-*/part-*.parquet")
    faults = Counter(f for p in parts for f in pq.read_table(p)["fault"].to_pylist())
    assert faults.keys() == {None, Fault.UNREAD.value}
    assert MOST_UNREAD <= faults[None] < 2 * len(rows), "in each order, and once more"


def test_the_published_answers_are_a_baseline_that_no_run_has_made(run: Path) -> None:
    _, content, _ = compared(run, baseline=PUBLISHED, systems=(WORDY,))
    (row,) = overall(content).values()
    assert (row["opponent"], row["system"]) == (PUBLISHED, WORDY)
    assert row["values"]["reward"]["value"] == pytest.approx(200 / 3)
    assert content["data"]["published_answers"] == {"gpt-4o-1120": 6}


@pytest.mark.parametrize(
    ("protocol", "value", "wanted"),
    [
        ("creation", "reward", 0.0),
        ("mllm-bench", "tie_rate", 100.0),
        ("probench", "preferred", 50.0),
    ],
)
def test_every_protocol_counts_a_judge_that_likes_the_first_as_undecided(
    run: Path, protocol: str, value: str, wanted: float
) -> None:
    _, content, said = compared(
        run, protocol=protocol, judge="comparing_helpers:Firstborn", baseline=TERSE
    )
    assert "10 judgements asked" in said
    (row,) = (
        r
        for r in content["table"]["rows"]
        if r["part"] == "overall" and r["system"] == WORDY and value in r["values"]
    )
    assert row["values"][value]["value"] == wanted
    assert row["values"][value]["n"] == 5
    assert row["counts"]["unjudged"] == 1


def test_a_judge_that_draws_is_asked_again_and_its_repeats_measured(run: Path) -> None:
    compared(run)
    judge = "comparing_helpers:Moody"
    _, content, said = compared(run, judge=judge, judgings=2)
    assert "24 judgements asked" in said
    # Repeats are no more evidence: the table counts the first judging alone.
    assert overall(content)["Terse-Wordy"]["counts"]["read"] == 6
    found = {s.name: s for s in sections(run)}
    repeatable = found["repeatability"]
    by = {(f.judge.split(" ")[0], f.measure): f for f in repeatable.findings}
    equal = by[judge, "equal, %"]
    parities = [[derived_seed(0, q, j, 0) % 2 for q in "015"] for j in (0, 1)]
    same = [a == b for a, b in zip(*parities, strict=True)]
    assert equal.estimate.value == pytest.approx(100 * sum(same) / 3)
    assert equal.estimate.n == 3
    assert equal.judgements == 6
    assert any("Longest" in reason for reason in repeatable.absent)
    with pytest.raises(UsageError, match="draws nothing at random"):
        compared(run, judgings=2)


def test_bias_is_told_from_the_comparisons(run: Path) -> None:
    compared(run)
    found = {s.name: s for s in sections(run)}
    longest = _of(found["position"], "comparing_helpers:Longest")
    assert longest["same verdict either way, %"] == pytest.approx(200 / 3)
    assert longest["goes to the first shown, %"] == pytest.approx(100 / 3)
    assert longest["preference for the first shown, levels"] == pytest.approx(1 / 3)
    sizes = _of(found["length"], "comparing_helpers:Longest")
    assert sizes["longer answer preferred, %"] == pytest.approx(250 / 3)
    assert sizes["preference for the longer, over twice"] == pytest.approx(4 / 3)
    assert any("own family (longest)" in r for r in found["self_preference"].absent)
    assert any("one wording" in reason for reason in found["rewording"].absent)


def _of(section: Section, judge: str) -> dict[str, float | None]:
    told = [f for f in section.findings if f.judge.startswith(f"{judge} ")]
    return {f.measure: f.estimate.value for f in told}


def test_it_is_told_why_there_is_no_verdict(run: Path) -> None:
    _, content, said = compared(run)
    pair = f"{WORDY} against {TERSE}"
    found = {(r["outcome"], r["count"], r["reason"]) for r in content["reasons"][pair]}
    assert found == {
        ("failed", 1, f"{TERSE}: said nothing"),
        ("failed", 2, "will not judge"),
        ("unscored", 2, "no verdict; wanted [[A>>B]] to [[B>>A]]"),
    }
    failures = page_of(said).with_name(f"{page_of(said).stem}-failures.csv")
    lines = list(csv.DictReader(failures.open()))
    assert {line["system"] for line in lines} == {pair}
    assert Counter(line["reason"] for line in lines)["will not judge"] == 2
    assert len(lines) == 5


def test_a_baseline_without_answers_is_told(run: Path) -> None:
    status, content, said = compared(run, baseline="gt", systems=(WORDY,))
    assert status == 0
    (why,) = content["reasons"].values()
    assert sum(r["count"] for r in why) == 6
    assert "0 judgements asked in" in said


def test_different_comparisons_stand_side_by_side(run: Path) -> None:
    official = {"mode": "official"}
    first = [{}, {"baseline": TERSE}, {"judge": "comparing_helpers:Firstborn"}, official]
    pages = [page_of(compared(run, **about)[2]) for about in first]
    assert len(set(pages)) == 4
    texts = [page.read_text() for page in pages]
    assert page_of(compared(run)[2]) == pages[0]
    assert [page.read_text() for page in pages] == texts
    assert {page.parent for page in pages} == {run}


def test_a_judge_that_cannot_be_loaded_has_not_been_asked(run: Path) -> None:
    status, _, said = compared(run, judge="comparing_helpers:Unloadable")
    assert status == 1
    assert "0 judgements asked, 10 could not be asked in" in said


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"protocol": "creatoin"}, "did you mean 'creation'"),
        ({"baseline": "nobody"}, "unknown system 'nobody'"),
        ({"baseline": "published:gpt-5"}, "published:gpt-4o-1120"),
        ({"systems": (TERSE,)}, "needs two systems"),
        ({"rubric": "theirs"}, "official:PATH"),
        ({"judge": "gpt-5000x"}, "gpt-5000x"),
        ({"settings": ("seed=3",)}, "models.NAME"),
        ({"settings": ('models."comparing_helpers:Longest"=3',)}, "no key of"),
        ({"settings": (f'models."{TERSE}".length=3',)}, "unknown judge .*Terse"),
        ({"judgings": 0}, "at least once"),
    ],
)
def test_wrong_use_is_explained(run: Path, about: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        compared(run, **about)


def test_documents_are_not_judged_while_their_run_is_under_way(run: Path) -> None:
    with RunLock(run), pytest.raises(RunInUse):
        compared(run)
