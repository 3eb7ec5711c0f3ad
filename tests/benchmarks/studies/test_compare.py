"""`plait compare`: pairs of a run's documents judged, counted, kept as records."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from api_helpers import fill
from cli_helpers import plait
from comparing_helpers import creation_row, write_tsv
from contents import document
from endpoint_helpers import MODEL, Answer, Server, completion, serving
from pairwise_helpers import sample
from paths import CHECKOUT
from trial import filled
from typer.testing import CliRunner

from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.studies import bias, compare_page
from plait.benchmarks.studies import compare as command
from plait.benchmarks.studies.bias import sections
from plait.benchmarks.studies.compare import (
    CompareOptions,
    compare,
    judgement_of,
    plan_of,
    wording_digest,
)
from plait.cli import app
from plait.cluster.lock import RunInUse, RunLock
from plait.cluster.plan import lookup_in
from plait.cluster.stage_queue import MOST_UNREAD
from plait.generators.base import Fault, Kind, Result, StageSpec
from plait.generators.errors import UsageError, WriteError
from plait.generators.files import write_whole
from plait.generators.keys import derived_seed
from plait.scorers.judging.sources import parse_rubric
from plait.scorers.pairwise import creation, resolve_protocol
from plait.scorers.pairwise.matchup import Matchup, PairComparison

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("worker_threads")]

TERSE, WORDY, MIDDLING = (f"comparing_helpers:{n}" for n in ("Terse", "Wordy", "Middling"))
PUBLISHED = "published:gpt-4o-1120"
JUDGE = f"openai:{MODEL}"
LONGEST = "comparing_helpers:Longest"


def answered(root: Path, rows: list[dict[str, str]], *systems: str) -> Path:
    """A run whose systems have answered."""
    tsv = write_tsv(root.parent / "Creation.tsv", rows)
    fill(root, data=f"creation:{tsv}", systems=systems, scorers=[], weights="tiny")
    return root


def compared(
    root: Path, server: Server | None = None, **about: Any
) -> tuple[int, dict[str, Any], str]:
    """Exit status, the JSON that is written, and what is printed."""
    asked = {"protocol": "creation", "judge": LONGEST} | about
    asked["rubric"] = parse_rubric(asked.get("rubric"))
    if server is not None:
        url = f'models."{JUDGE}".base_url="{server.url}"'
        asked |= {"judge": JUDGE, "settings": (url,)}
    said = io.StringIO()
    status = compare(root, CompareOptions(**asked), PlainConsole(file=said, width=240))
    content = json.loads(page_of(said.getvalue()).with_suffix(".json").read_text())
    return status, content, said.getvalue()


def page_of(said: str) -> Path:
    return Path(said.split("comparison ")[-1].strip())


def overall(content: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    rows = [r for r in content["table"]["rows"] if r["part"] == "overall"]
    return {(r["opponent"], r["system"]): r for r in rows}


def values(row: dict[str, Any]) -> dict[str, float]:
    return {name: estimate["value"] for name, estimate in row["values"].items()}


SAYS = ["", "!first", "!mute", "!silent", "!refuse", ""]
"""What is special about each of the six questions."""
SIX = [
    creation_row(i, question=f"request {i} {said}", criteria="vivid")
    for i, said in enumerate(SAYS)
]
THREE = [creation_row(0), *(creation_row(i, criteria="vivid") for i in (1, 2))]
"""The first with criteria of truth."""


@pytest.fixture(scope="module", params=[(SIX, TERSE, WORDY)])
def made(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Path:
    """A run with two systems."""
    root = tmp_path_factory.mktemp("compared") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root.parent / "cache"))
        return answered(root, *request.param)


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, where nothing has been compared."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.parent / "cache"))
    return Path(shutil.copytree(made, tmp_path / "run"))


def test_pairs_are_judged_once_and_every_reply_is_counted(run: Path) -> None:
    """Six questions: two plain, one positional, one unread, one unanswered, one refused."""
    before = (run / "manifest.json").read_text()
    status, content, said = compared(run)
    assert status == 1  # the judge failed on `!refuse`
    (row,) = overall(content).values()
    # Wordy is over twice as long: +2 in both orders; where position decides, +1 and -1.
    assert row["values"]["reward"]["value"] == pytest.approx((100 + 100 + 0) / 3)
    assert row["values"]["reward"]["n"] == 3
    assert row["values"]["win_rate"]["value"] == pytest.approx(250 / 3)
    wanted = {"questions": 6, "unjudged": 1, "read": 6, "unread": 2, "failed": 2}
    assert wanted.items() <= row["counts"].items()
    # Two could not be read and were asked for once more.
    assert "12 judgements asked in" in said
    assert (run / "manifest.json").read_text() == before

    # Everything without a verdict is counted by its reason, and named.
    pair = f"{WORDY} against {TERSE}"
    found = [(r["outcome"], r["count"]) for r in content["reasons"][pair]]
    assert sorted(found) == [("failed", 1), ("failed", 2), ("unscored", 2)]
    page = page_of(said)
    lines = list(csv.DictReader(page.with_name(f"{page.stem}-failures.csv").open()))
    outcomes = Counter((line["system"], line["outcome"]) for line in lines)
    assert outcomes == {(pair, "failed"): 3, (pair, "unscored"): 2}

    # The judge's refusals are final, so nothing is asked again, nor told otherwise.
    again = compared(run)
    assert "0 judgements asked" in again[2]
    assert again[1]["table"] == content["table"]


def test_a_judge_none_of_whose_first_replies_can_be_read_is_not_asked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = [creation_row(i, criteria="vivid") for i in range(60)]
    root = answered(tmp_path / "run", rows, TERSE, WORDY)
    mute = {"judge": "comparing_helpers:Mute", "weights": "pretrained"}
    status, content, _ = compared(root, **mute)
    assert status == 1
    counts = content["counts"]
    assert counts["unscored"] + counts["failed_scores"] == len(rows)
    parts = root.rglob("stages/Mute-*/part-*.parquet")
    faults = Counter(f for p in parts for f in pq.read_table(p)["fault"].to_pylist())
    assert faults.keys() == {None, Fault.UNREAD.value}
    assert MOST_UNREAD <= faults[None] < 2 * len(rows), "in each order, and once more"


def test_baselines_that_no_run_has_made(run: Path) -> None:
    _, content, _ = compared(run, baseline=PUBLISHED, systems=(WORDY,))
    ((pair, row),) = overall(content).items()
    assert pair == (PUBLISHED, WORDY)
    assert row["values"]["reward"]["value"] == pytest.approx(200 / 3)
    assert content["data"]["published_answers"] == {"gpt-4o-1120": 6}
    status, content, said = compared(run, baseline="gt", systems=(WORDY,))
    assert (status, "0 judgements asked in" in said) == (0, True)
    (why,) = content["reasons"].values()
    assert sum(r["count"] for r in why) == 6


UNDECIDED = [("creation", "reward", 0.0), ("mllm-bench", "tie_rate", 100.0)]
UNDECIDED += [("probench", "preferred", 50.0)]


@pytest.mark.parametrize(("protocol", "value", "wanted"), UNDECIDED)
def test_every_protocol_counts_a_judge_that_likes_the_first_as_undecided(
    run: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, value: str, wanted: float
) -> None:
    if protocol != "creation":
        quick = partial(resolve_protocol, draws=3)
        monkeypatch.setattr(command, "resolve_protocol", quick)
    judge = "comparing_helpers:Firstborn"
    _, content, said = compared(run, protocol=protocol, judge=judge, baseline=TERSE)
    assert "10 judgements asked" in said
    row = overall(content)[TERSE, WORDY]
    assert (row["values"][value]["value"], row["values"][value]["n"]) == (wanted, 5)
    assert row["counts"]["unjudged"] == 1


def test_a_judge_that_draws_is_asked_again_and_its_repeats_measured(run: Path) -> None:
    sections_before = sections(open_results(run)).values()
    assert [len(section.absent) for section in sections_before] == [1] * 5
    compared(run)
    judge = "comparing_helpers:Moody"
    _, content, said = compared(run, judge=judge, judgings=2)
    assert "24 judgements asked" in said
    # Repeats are no more evidence: the table counts the first judging alone.
    assert overall(content)[TERSE, WORDY]["counts"]["read"] == 6
    repeatable = sections(open_results(run))["repeatability"]
    (equal,) = (f for f in repeatable.findings if f.measure == "equal, %")
    parities = [[derived_seed(0, q, j, 0) % 2 for q in "015"] for j in (0, 1)]
    same = [a == b for a, b in zip(*parities, strict=True)]
    assert equal.judge.startswith(judge)
    assert equal.estimate.value == pytest.approx(100 * sum(same) / 3)
    assert (equal.estimate.n, equal.judgements) == (3, 6)
    assert any("Longest" in reason for reason in repeatable.absent)
    with pytest.raises(UsageError, match="temperature"):
        compared(run, judgings=2)


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


def untimed(said: str) -> str:
    return re.sub(r"in \d+ s", "", said)


def files_of(root: Path) -> dict[Path, bytes]:
    """The files below `root`, by their paths from there."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root): path.read_bytes() for path in files}


def test_every_reply_is_a_row_that_names_its_records(run: Path) -> None:
    compared(run)
    table = open_results(run).table("comparisons")
    rows = table.to_pylist()
    replies = Counter((r["outcome"], r["fault"], len(r["jobs"])) for r in rows)
    # What could not be read was asked for twice.
    counts = {("done", "", 1): 6, ("unscored", "", 2): 2, ("failed", "refused", 1): 2}
    assert replies == counts
    assert Counter(row["order"] for row in rows) == {"ab": 5, "ba": 5}
    assert {(r["system_a"], r["system_b"], r["repeat"]) for r in rows} == {
        (TERSE, WORDY, 1)
    }
    parts = (run / "compare" / "creation" / "stages").rglob("part-*.parquet")
    keys = {key for part in parts for key in pq.read_table(part)["key"].to_pylist()}
    assert {job["key"] for row in rows for job in row["jobs"]} == keys
    # They stay when the run is written again.
    answered(run, SIX, TERSE, WORDY, MIDDLING)
    assert open_results(run).table("comparisons").equals(table)


@pytest.fixture
def without_data(made: Path) -> Iterator[None]:
    """The data of the run are gone, and so are the modules of its models."""
    data = made.parent / "Creation.tsv"
    data.rename(made.parent / "elsewhere.tsv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "comparing_helpers", None)
        yield
    (made.parent / "elsewhere.tsv").rename(data)


MOODY = {"judge": "comparing_helpers:Moody", "judgings": 2, "baseline": TERSE}


@pytest.fixture
def judged(run: Path) -> dict[str, Any]:
    """What is written of a comparison of the run by a judge that draws."""
    return compared(run, **MOODY)[1]


def test_what_is_judged_is_read_without_data_and_modules(
    run: Path, judged: dict[str, Any], without_data: None
) -> None:
    moved = Path(shutil.move(run, run.parent / "moved"))
    before = files_of(moved)
    _, content, said = compared(moved, **MOODY)
    assert "0 judgements asked" in said
    assert content == judged
    assert files_of(moved) == before
    # The first judgement by itself is another comparison, of which all is there too.
    once = MOODY | {"judgings": 1}
    assert compared(moved, **once)[1]["table"] == judged["table"]
    assert len({*open_results(moved).table("comparisons")["series"].to_pylist()}) == 2
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"judgings": 3}, "comparing_helpers"),
        ({"judge": LONGEST, "judgings": 1}, "comparing_helpers"),
        ({"settings": ('models."comparing_helpers:Moody".a=1',)}, "comparing_helpers"),
        ({"baseline": PUBLISHED}, r"only in the data: .*Creation\.tsv"),
    ]
    for about, why in wrong:
        with pytest.raises(UsageError, match=why):
            compared(moved, **MOODY | about)


@pytest.mark.parametrize(
    "words",
    [("compare", "--protocol", "creation", "--judge", LONGEST), ("bias",)],
    ids=lambda words: words[0],
)
def test_of_a_run_that_cannot_be_written_tables_are_shown(
    run: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    compared(run)
    asked, out = (words[0], str(run), *words[1:]), run.parent / "out"
    plain = plait(*asked)
    tables = plain.stdout.rpartition(f"{words[0].replace('compare', 'comparison')} /")[0]
    before = files_of(run)

    def refuse(path: Path, content: str) -> None:
        if run in path.parents:
            raise WriteError(errno.EACCES, f"cannot write to {run}")
        write_whole(path, content)

    for module in (compare_page, bias):
        monkeypatch.setattr(module, "write_whole", refuse)
    shown = plait(*asked)
    assert untimed(shown.stdout) == untimed(tables)
    assert (shown.returncode, "--out" in shown.stderr) == (1, True)
    elsewhere = plait(*asked, "--out", str(out))
    assert untimed(elsewhere.stdout) == untimed(plain.stdout.replace(f"{run}/", f"{out}/"))
    assert elsewhere.returncode == plain.returncode
    names = {path for path in before if path.match(f"{words[0]}*")}
    assert {p: data for p, data in files_of(run).items() if p in before} == before
    assert files_of(out) == {path: before[path] for path in names if len(path.parts) == 1}


def test_wrong_use_is_explained(run: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"protocol": "creatoin"}, "'creation'"),
        ({"baseline": "published:gpt-5"}, PUBLISHED),
        ({"systems": (TERSE,)}, "two systems"),
        ({"rubric": "theirs"}, "official:PATH"),
        ({"judge": "gpt-5000x"}, "gpt-5000x"),
        ({"settings": ("seed=3",)}, "models.NAME"),
        ({"settings": (f'models."{TERSE}".length=3',)}, "judge .*Terse"),
    ]
    for about, said in wrong:
        with pytest.raises(UsageError, match=said):
            compared(run, **about)
    # Documents are not judged while their run is under way.
    with RunLock(run), pytest.raises(RunInUse):
        compared(run)


FINAL = "Final Verdict is: "
WORDS = {2: TERSE, 8: MIDDLING, 30: WORDY}
"""How often each system says `word`."""


def text_of(body: dict[str, Any]) -> str:
    parts = body["messages"][-1]["content"]
    if isinstance(parts, str):
        return parts
    return "\n".join(part.get("text", "<picture>") for part in parts)


def systems_of(body: dict[str, Any]) -> list[str]:
    """The answers that were shown, in their order."""
    said = re.findall(r"((?:word )+)to request", text_of(body))
    return [WORDS[len(words.split())] for words in said]


def replied(body: dict[str, Any]) -> Answer:
    """A tie, and marks where they are asked for."""
    if "Visual Factuality Score" not in text_of(body):
        return Answer(completion(f"{FINAL}[[A=B]]"))
    marks = [f"Response {x} Visual Factuality Score: {n}/10" for x, n in ("A8", "B6")]
    return Answer(completion("\n".join(marks)))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        server.script = replied
        yield server


three = pytest.mark.parametrize("made", [(THREE, TERSE, WORDY)], indirect=True)


@three
def test_replies_that_cannot_be_read_are_told_apart(run: Path, server: Server) -> None:
    told = {True: f"{FINAL}[[A=B]]", False: "no"}
    server.script = lambda body: Answer(completion(told[systems_of(body)[:1] == [TERSE]]))
    _, content, _ = compared(run, server)
    (row,) = overall(content).values()
    assert row["counts"]["one_order"] == 3
    assert row["values"]["reward"]["reason"] == "no question read in both orders"
    assert row["values"]["visual_factuality"]["reason"] == "no question judged"
    server.script = lambda body: Answer(completion("Both are fine."))
    status, content, _ = compared(run, server, mode="official", systems=(TERSE, WORDY))
    assert status == 1
    assert (content["counts"]["scored"], content["counts"]["unscored"]) == (0, 3)
    assert content["counts"]["failed_scores"] == 0


@three
def test_one_more_system_is_judged_in_its_own_pairs_alone(
    run: Path, server: Server, tmp_path: Path
) -> None:
    _, before, _ = compared(run, server, mode="official")
    assert "0 judgements asked" in compared(run, server, mode="official")[2]
    assert len(server.bodies) == 8, "what has been judged is not asked again"
    answered(run, THREE, TERSE, WORDY, MIDDLING)
    _, content, said = compared(run, server, mode="official")
    assert "16 judgements asked" in said
    new = server.bodies[8:]
    assert len(new) == 16
    assert all(MIDDLING in systems_of(body) for body in new)
    after = overall(content)
    assert list(after) == [(TERSE, WORDY), (TERSE, MIDDLING), (WORDY, MIDDLING)]
    assert after[TERSE, WORDY] == overall(before)[TERSE, WORDY]
    found = values(after[WORDY, MIDDLING])
    assert (found["reward"], found["visual_factuality"]) == (0.0, 7.0)


@three
def test_the_released_wording_reaches_the_judge(
    run: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a stand-in for the user's copy of creation.py."""
    names = ("subjective", "objective_without_gt", "objective_with_gt")
    fields = "{instructions} / {reference_answer_by_gpt4o} / {prediction}"
    texts = {n: f"AS RELEASED {n}: {fields}" for n in names}
    digests = {n: hashlib.sha256(t.encode()).hexdigest() for n, t in texts.items()}
    monkeypatch.setattr(creation, "_DIGESTS", digests)
    file = run.parent / "creation.py"
    file.write_text(f"prompt_dict = {{}}\nprompt_dict['Creation_MMBench'] = {texts!r}\n")
    url = f'models."{JUDGE}".base_url="{server.url}"'
    told = f"official:{os.path.relpath(file)}"
    words = ["compare", str(run), "--protocol", "creation", "--judge", JUDGE, "--set", url]
    done = CliRunner().invoke(app, [*words, "--mode", "official", "--rubric", told])
    assert done.exit_code == 0, done.output
    said, page = done.output, page_of(done.output)
    content = json.loads(page.with_suffix(".json").read_text())
    assert content["rubric"] == f"official:{file}"
    asked = [re.search(r"AS RELEASED (\w+): request", text_of(b)) for b in server.bodies]
    assert Counter(m[1] for m in asked if m) == {"subjective": 6, "objective_without_gt": 2}
    assert "not comparable" not in said + page.read_text()
    _, own, said = compared(run, server, mode="official")
    assert "not comparable" in said
    assert own["wording"] != content["wording"]
    assert len(server.bodies) == 16, "another wording is another question"


@three
def test_only_what_ran_on_random_weights_is_warned_of(run: Path, server: Server) -> None:
    """The run's own systems did, but they do not play here, and the judge is a server."""
    _, content, said = compared(run, server, baseline=PUBLISHED, systems=("gt",))
    assert content["weights"] == "tiny"
    assert "random weights" not in said + page_of(said).read_text()
    _, _, said = compared(run, server, baseline=PUBLISHED, systems=(TERSE,))
    assert f"random weights (tiny: {TERSE})" in said


def test_the_protocol_in_the_readme_judges_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (CHECKOUT / "benchmarks" / "studies" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "plain_words.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    protocol = resolve_protocol("plain_words:PlainWords")
    monkeypatch.delitem(sys.modules, "plain_words")
    chat = StageSpec(name="judge", kind=Kind.DRAFT, target="comparing_helpers:Firstborn")
    answers = Result(document("one")), Result(document("two"))
    about = {"query": sample("See"), "repeat": 0, "first": "base", "second": "mine"}
    matchup = Matchup(**about, answers=answers)
    item = PairComparison(matchup=matchup, protocol=protocol, chat=chat)
    store = filled(plan_of([item]), tmp_path / "run")
    outcome = judgement_of(item, lookup_in(store))
    (row,) = protocol.aggregate([matchup.game(outcome, protocol)], "base").rows
    # The judge prefers what it is shown first, so the system wins in one order of two.
    assert (row.system, row.opponent) == ("mine", "base")
    assert row.values["win_rate"].value == 50
    assert row.counts["both_orders"] == 1


def test_a_wording_keeps_its_name_wherever_its_class_is() -> None:
    """Judgements that were written down are found by it."""
    known = {"creation": "37bb2832c5cf", "mllm-bench": "0760ae7b4766"}
    known["probench"] = "9f0ac2205147"
    assert {name: wording_digest(resolve_protocol(name)) for name in known} == known


def test_what_official_mode_needs_is_named(run: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "json_repair", None)
    with pytest.raises(UsageError, match="pip install 'json-repair'"):
        compared(run, protocol="mmrb2", mode="official")
