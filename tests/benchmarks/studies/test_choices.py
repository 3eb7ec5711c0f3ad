"""`plait agreement RUN`: how often judges choose the answer of two that people chose."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from api_helpers import fill
from cli_helpers import plait
from comparing_helpers import mmrb2_pair, write_mmrb2
from pairwise_helpers import upstream

from plait import commands
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.results.leaderboard import leaderboard
from plait.benchmarks.results.people import agreement_of, read_measured
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.reopening import reopen
from plait.benchmarks.studies import choices
from plait.benchmarks.studies.bias import SAME, TO_FIRST, TO_LAST
from plait.benchmarks.studies.choices import Judged, Pair, Said, choices_report
from plait.benchmarks.studies.compare import CompareOptions, compare
from plait.generators.errors import UsageError
from plait.scorers.pairwise import resolve_protocol
from plait.scorers.pairwise.games import Verdict

pytestmark = pytest.mark.contract

MMRB2 = upstream("mmrb2")
UNREAD, FAILED = Said("unscored"), Said("failed")


def pair(id: str, chosen: str = "A", prompt: str = "", *generators: str) -> Pair:
    """A pair whose prompt is its own unless another is named."""
    return Pair(id, prompt or id, chosen, "t2i", "wise", frozenset(generators))


def judge(said: Mapping[str, Sequence[Said | float]], orders: int = 2) -> Judged:
    """A judge by what it said; a number is a preference for A."""
    read = {
        id: [s if isinstance(s, Said) else Said("done", s) for s in own]
        for id, own in said.items()
    }
    return Judged(name="x", stage="s", manner="", orders=orders, said=read)


def test_every_verdict_is_counted_once() -> None:
    """Right both ways, right once, a tie, unread once, failed, never asked."""
    said = judge(
        {"ok": [2, 1], "first": [1, -1], "tie": [0, -1], "half": [1, UNREAD],
         "none": [FAILED, UNREAD]}
    )  # fmt: skip
    chosen = {"ok": "A", "first": "A", "tie": "B", "half": "B", "none": "A", "never": "A"}
    pairs = [pair(id, which) for id, which in chosen.items()]
    accuracy = said.accuracy(pairs)
    assert accuracy.value == pytest.approx((100 + 50 + 75) / 3)
    assert (accuracy.n, accuracy.ci95) == (3, None)
    found = said.official(pairs)
    assert found == {
        "evaluated": 5, "correct": 4, "judged": 7, "accuracy": pytest.approx(400 / 7)
    }  # fmt: skip
    assert said.counts(pairs) == {
        "pairs": 6, "counted": 3, "one_order": 1, "ties": 1, "unscored": 2, "failed": 1,
        "skipped": 0, "missing": 1,
    }  # fmt: skip
    shares = {name: e.value for name, e in said.positions(pairs).items()}
    assert shares == pytest.approx({SAME: 100 / 3, TO_FIRST: 200 / 3, TO_LAST: 0})


def test_official_accuracy_equals_the_released_program() -> None:
    official = resolve_protocol("mmrb2", "official", loads=json.loads)

    def said(value: Any, sign: int) -> list[Said]:
        verdict = official.read(json.dumps({"better_response": value}))
        read = isinstance(verdict, Verdict)
        return [Said("done", sign * verdict.preference) if read else UNREAD]

    made = judge(
        {
            id: [s for v in replies["forward"] for s in said(v, 1)]
            + [s for v in replies["reverse"] for s in said(v, -1)]
            for id, replies in MMRB2["predictions"].items()
        }
    )
    pairs = [pair(id, chosen) for id, chosen in MMRB2["chosen"].items()]
    released = dict(MMRB2["accuracy"])
    total, missing = released.pop("pairs"), released.pop("missing")
    found = made.official(pairs)
    assert found == released | {"accuracy": 100 * released["accuracy"]}
    assert (len(pairs), len(pairs) - found["evaluated"]) == (total, missing)


def test_pairs_of_one_prompt_are_no_further_evidence() -> None:
    """Forty prompts asked once, or with three pairs that are judged alike."""
    once = [pair(f"{i}", "A" if i % 3 else "B") for i in range(40)]
    thrice = [p._replace(id=f"{p.id}-{k}") for p in once for k in range(3)]
    said = judge({p.id: [1, 1] for p in (*once, *thrice)})
    one, three = said.accuracy(once), said.accuracy(thrice)
    assert (one.value, one.ci95) == (three.value, pytest.approx(three.ci95))
    assert (one.n, three.n) == (40, 120)
    apart = said.accuracy([p._replace(prompt=p.id) for p in thrice]).ci95
    assert apart[1] - apart[0] < 0.7 * (one.ci95[1] - one.ci95[0])


BRIEF = "comparing_helpers:Brief"
IDS = [f"p{i}" for i in range(26)]
SPECIAL = ("!first", "!mute", "!refuse")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over 29 pairs, of which people chose A, the shorter answer, in 17."""
    folder = tmp_path_factory.mktemp("choices")
    pairs = [mmrb2_pair(id, chosen="B" if i < 10 else "A") for i, id in enumerate(IDS)]
    pairs += [mmrb2_pair(f"p {said}") for said in SPECIAL]
    pairs[-1] |= {"chosen": "B", "prompt_source": "chameleon"}
    pairs[0]["response_a"]["model_name"] = pairs[1]["response_b"]["model_name"] = "flux"
    pairs[1]["prompt_content"] = pairs[0]["prompt_content"]
    data = write_mmrb2(folder / "data", {"interleaved": pairs[:-2], "edit": pairs[-2:]})
    systems = ["published:A", "published:B"]
    root = folder / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("PLAIT_EXECUTOR", "local")
        fill(root, data=f"mmrb2:{data}", systems=systems, scorers=[BRIEF], weights="tiny")
        asked = {"creation": "Longest", "mmrb2": "Firstborn"}
        for protocol, name in asked.items():
            options = CompareOptions(protocol=protocol, judge=f"comparing_helpers:{name}")
            compare(root, options, PlainConsole(file=io.StringIO()))
    return root


@pytest.fixture
def content(root: Path, tmp_path: Path) -> dict[str, Any]:
    done = plait("agreement", str(root), "--all", "--out", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("Longest", "Firstborn", BRIEF, "chameleon"))
    found: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    return found


def test_judges_stand_side_by_side(content: dict[str, Any]) -> None:
    judges = {j["judge"].partition(":")[2]: j for j in content["judges"]}
    assert list(judges) == ["Brief", "Firstborn", "Longest"]
    assert (content["pairs"], content["prompts"]) == (29, 28)
    values = {name: j["accuracy"]["value"] for name, j in judges.items()}
    # Of lower values the better: A wherever it can be read. Longest finds B, but by place
    # in one pair.
    assert values == pytest.approx(
        {"Brief": 100 * 17 / 28, "Firstborn": 50, "Longest": (10 * 100 + 50) / 27}, abs=1e-5
    )
    assert all(len(judges[name]["accuracy"]["ci95"]) == 2 for name in ("Brief", "Longest"))
    assert judges["Firstborn"]["position"][TO_FIRST]["value"] == 100
    assert judges["Firstborn"]["official"]["all"]["accuracy"] == 50
    assert judges["Longest"]["position"][SAME]["value"] == pytest.approx(100 * 26 / 27)
    assert judges["Brief"]["position"] == {}
    of_longest, of_brief = (judges[n]["counts"] for n in ("Longest", "Brief"))
    wanted = {"counted": 27, "unscored": 2, "failed": 2, "missing": 0}
    assert wanted.items() <= of_longest.items()
    assert {"counted": 28, "unscored": 1, "failed": 0}.items() <= of_brief.items()
    groups = judges["Longest"]["groups"]
    assert {kind: {g: e["n"] for g, e in own.items()} for kind, own in groups.items()} == {
        "split": {"edit": 0, "interleaved": 27},
        "source": {"isgbench": 27, "chameleon": 0},
        "generator": {"model-a": 26, "model-b": 26, "flux": 2},
    }
    published = {(f["name"], f["split"]): f["value"] for f in content["published"]}
    assert published["GPT-5", "interleaved"] == 74.4
    assert {split for _, split in published} == {"edit", "interleaved"}


def test_in_brief_groups_without_an_interval_are_counted(content: dict[str, Any]) -> None:
    overall, *groups = choices.brief_tables(content)
    shown = {table.title: [row[0].text for row in table.rows] for table in groups}
    assert shown == {
        "Accuracy by split": ["interleaved"],
        "Accuracy by source": ["isgbench"],
        "Accuracy by generator": ["model-a", "model-b"],
    }
    assert any("3 groups too small" in note for note in overall.notes)


def test_what_was_measured_stands_on_leaderboards(
    root: Path, content: dict[str, Any], tmp_path: Path
) -> None:
    """Of the very stage; a file of anything else is refused.

    Once it is read, the tables need the file no more.
    """
    out = tmp_path / "out.json"
    asked = {"data": "miniature:4", "systems": ["gt"], "report": {"agreement": [str(out)]}}
    fill(tmp_path / "run", **asked, scorers=[BRIEF], weights="tiny")
    (scorer,) = reopen(root).scorers
    sound = out.read_text()
    changed = sound.replace(scorer.stage.digest[:12], "0" * 12)
    out.write_text(changed)
    assert list(agreement_of(scorer, read_measured([out]))) == []
    for wrong in ("{", "[]", '{"judges": [{}]}', '{"data": {}, "judges": []}'):
        out.write_text(wrong)
        with pytest.raises(UsageError, match=r"out\.json"):
            read_measured([out])
    out.unlink()
    with pytest.raises(UsageError, match=r"report\.agreement: .*out\.json"):
        commands.report(tmp_path / "run", PlainConsole(file=io.StringIO()))
    out.write_text(sound)
    open_results(tmp_path / "run")
    out.unlink()
    made = open_results(tmp_path / "run").board
    (judged,) = leaderboard(made)
    figures = judged["scores"][BRIEF]["agreement"]
    figure = next(f for f in figures if f["split"] == "interleaved")
    brief = content["judges"][0]["groups"]["split"]["interleaved"]
    assert (figure["value"], figure["n"]) == (brief["value"], brief["n"])
    assert tuple(figure["ci95"]) == tuple(brief["ci95"])
    low, high = (f"{end:.1f}" for end in brief["ci95"])
    said = " ".join(made.about_scorers)
    assert f"agrees with people in {brief['value']:.1f}% of pairs [{low}, {high}]" in said


def test_wrong_use_is_explained(root: Path, tmp_path: Path) -> None:
    names = [judge["judge"] for judge in choices_report(root, [BRIEF])["judges"]]
    assert names == [BRIEF]
    with pytest.raises(UsageError, match="Brieff"):
        choices_report(root, [f"{BRIEF}f"])
    fill(tmp_path / "other", data="miniature:2", systems=["gt"], scorers=[], weights="tiny")
    with pytest.raises(UsageError, match="mmrb2:PLACE"):
        choices_report(tmp_path / "other")
    data = reopen(root).config.data
    fill(tmp_path / "one", data=data, systems=["published:A"], scorers=[], weights="tiny")
    with pytest.raises(UsageError, match="plait compare"):
        choices_report(tmp_path / "one")
