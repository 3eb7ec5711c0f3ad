"""`--mode` and `--rubric`: from the command line to the judge, its records and the run."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import invoke as plait
from cli_helpers import manifest
from judging_helpers import stand_in_digests

from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.experiment import open_experiment
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.reopening import reopen
from plait.benchmarks.runs.resolving import models_of, scorer_of
from plait.generators.base import Result, Unscored
from plait.generators.catalogue import Named, by_name, by_prefix
from plait.generators.errors import UsageError
from plait.scorers import takes
from plait.scorers.judging import aspects, criteria
from plait.scorers.judging.judge import RubricJudge
from plait.scorers.judging.mmie import Corrected, Released
from plait.scorers.judging.rubrics import OWN
from plait.scorers.vqa import is_vqa

pytestmark = [
    pytest.mark.slow,
]

JUDGE = "judge:judging_helpers:Halves"
WORDS = ["--system", "gt", "--scorer", JUDGE, "--weights", "tiny", "--limit", "3"]
AS_RELEASED = ["--mode", "official", "--rubric", "official:prompts.py"]
OWN_TEXTS = {rubric.id: rubric.sha256 for rubric in OWN.values()}


def official_texts() -> dict[str, str]:
    return {f"official:{kind}": digest for kind, digest in stand_in_digests().items()}


def judged(root: Path) -> set[tuple[str, str, int] | str]:
    """(rubric, its digest, raw score) of every score, by the records; `unscored` else."""
    found: set[tuple[str, str, int] | str] = set()
    board = open_results(root).board
    for evaluation in board.reading(board.keys):
        outcome = evaluation.scores[JUDGE]
        if isinstance(outcome, Result):
            parts = outcome.value.parts
            found.add((parts["rubric"], parts["prompt_sha256"], parts["raw"]))
        else:
            assert isinstance(outcome, Unscored)
            found.add("unscored")
    return found


# The judge says 3 under our rubrics and 4.5 under the official ones: corrected mode takes
# no half, official mode rounds it half to even.
CASES = [
    ([], OWN_TEXTS, 3),
    (["--mode", "corrected", "--rubric", "official:prompts.py"], official_texts(), None),
    (AS_RELEASED, official_texts(), 4),
]


def expected(texts: dict[str, str], raw: int | None) -> set[Any]:
    return {"unscored"} if raw is None else {(*text, raw) for text in texts.items()}


@pytest.mark.usefixtures("worker_threads")
@pytest.mark.parametrize(("options", "texts", "raw"), CASES)
def test_a_run_asks_and_reads_as_it_is_told(
    place: Path, options: list[str], texts: dict[str, str], raw: int | None
) -> None:
    root = place / "run"
    done = plait("run", *WORDS, *options, "--out", str(root))
    assert done.exit_code == 0, done.output
    assert judged(root) == expected(texts, raw)
    told = dict(zip(options[::2], options[1::2], strict=True))
    told["--rubric"] = told.get("--rubric", "").replace("prompts", f"{place}/prompts")
    kept = manifest(root)
    assert kept["config"]["mode"] == told.get("--mode")
    assert kept["config"]["rubric"] == (told["--rubric"] or None)
    assert kept["rubrics"] == {JUDGE: texts}


@pytest.mark.usefixtures("worker_threads")
def test_a_run_is_scored_again_as_it_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = place / "run"
    plait("run", *WORDS, "--out", str(root))
    done = plait("score", str(root), *AS_RELEASED)
    assert done.exit_code == 0, done.output
    assert "3 records made" in done.output
    assert judged(root) == expected(official_texts(), 4)
    kept = manifest(root)
    told = {"mode": "official", "rubric": f"official:{place}/prompts.py"}
    assert kept["config"]["models"] == {JUDGE: told}
    assert kept["rubrics"] == {JUDGE: official_texts()}
    # The judge says 4.5, which rounds to 4: the released scorer's own numbers.
    (row,) = json.loads((root / "leaderboard.json").read_text())
    printed = {"n": 3, "average": 4.0, "percent": 66.67, "SA": 4.0, "PBL": 4.0, "MSR": 4.0}
    assert row["scores"][JUDGE]["as_released"] == printed
    page = (root / "leaderboard.md").read_text()
    assert "| gt | 3 | 4.0 | 66.67 | 4.0 | 4.0 | 4.0 |" in page
    said = f"{JUDGE}: released rubrics, official mode."
    assert said in (root / "leaderboard.md").read_text()
    assert said in (root / "report.html").read_text()
    # A run means the same wherever it is looked at, even where the user's copy is gone.
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert judged(root) == expected(official_texts(), 4)
    (place / "prompts.py").rename(elsewhere / "moved.py")
    assert judged(root) == expected(official_texts(), 4)
    # What has been judged by our own rubrics is not asked again.
    done = plait("score", str(root), "--mode", "corrected", "--rubric", "own")
    assert "; 0 records made" in done.output
    assert judged(root) == expected(OWN_TEXTS, 3)
    assert manifest(root)["rubrics"] == {JUDGE: OWN_TEXTS}
    id = open_results(root).board.keys[0]
    assert '"rubric": "own:' in plait("show", str(root), id).output


@pytest.mark.usefixtures("worker_threads")
@pytest.mark.slow
def test_a_new_judge_s_options_leave_other_judges_alone(place: Path) -> None:
    root = place / "run"
    plait("run", *WORDS, "--out", str(root))
    words = ["--scorer", "judge:anole", *AS_RELEASED]
    assert plait("score", str(root), *words).exit_code == 0
    assert judged(root) == expected(OWN_TEXTS, 3)
    kept = manifest(root)
    assert kept["rubrics"] == {JUDGE: OWN_TEXTS, "judge:anole": official_texts()}
    board = (root / "leaderboard.json").read_text()
    manners = {n: s.get("manner") for n, s in json.loads(board)[0]["scores"].items()}
    assert manners == {
        JUDGE: "our rubrics, corrected mode",
        "judge:anole": "released rubrics, official mode",
    }
    # Named again, a judge is asked anew, and it alone.
    assert plait("score", str(root), "--scorer", JUDGE, *AS_RELEASED).exit_code == 0
    assert judged(root) == expected(official_texts(), 4)
    with pytest.raises(UsageError, match="none of the scorers takes --mode"):
        plait("score", str(root), "--scorer", "bleu", "--mode", "corrected")


def judges(**told: Any) -> dict[str, RubricJudge]:
    flags = {"systems": ("gt",), "scorers": (JUDGE, "clipscore"), "weights": "tiny"}
    found = open_experiment(load_config(None, flags | told)).scorers
    return {s.name: s for s in found if isinstance(s, RubricJudge)}


def test_what_is_said_of_one_judge_goes_over_what_is_said_of_all(place: Path) -> None:
    settings = {JUDGE: {"mode": "corrected", "rubric": "own"}}
    told: dict[str, Any] = {"mode": "official", "rubric": "official:prompts.py"}
    (every,) = judges(**told).values()
    (this,) = judges(**told, models=settings).values()
    assert isinstance(every.examiner, Released)
    assert isinstance(this.examiner, Corrected)
    assert this.texts == OWN_TEXTS


@pytest.mark.usefixtures("worker_threads")
def test_judges_of_criteria_hear_them(
    truth: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"text": "T", "image_open": "O", "image_closed": "C", "system": "S"}
    (place / "ueval_eval.py").write_text(
        "".join(f"{k} = '{t}'\n" for k, t in texts.items())
    )
    digests = {k: hashlib.sha256(t.encode()).hexdigest() for k, t in texts.items()}
    monkeypatch.setattr(criteria, "_DIGESTS", digests)
    name, data = "criteria:anole", {"systems": ("gt",), "weights": "tiny"}
    told = {"mode": "official", "rubric": "official:ueval_eval.py"}

    def manner(**flags: Any) -> Any:
        asked = load_config(None, {**data, "scorers": (name,), **flags})
        return open_experiment(asked).scorers[0].manner

    assert manner() == "our wording, corrected mode, each criterion by itself"
    released = "released wording, official mode, each criterion by itself"
    assert manner(**told) == released
    of_its_own = {name: {"rubric": told["rubric"]}}
    assert manner(mode="official", models=of_its_own) == released
    with pytest.raises(UsageError, match=r"released rubrics.*ueval_eval\.py"):
        manner(mode="official")
    # No file holds the texts of both kinds.
    with pytest.raises(UsageError, match="both criteria:anole and judge:"):
        manner(scorers=(name, JUDGE), **told)
    own = {name: {"mode": "corrected", "rubric": "own"}}
    both = {"scorers": (name, JUDGE), "models": own}
    assert "corrected" in manner(mode="official", rubric="official:prompts.py", **both)
    # And in a run that is scored again, of queries that have criteria.
    asked = (criteria.AskedCriterion("text", "Is it good?"),)
    monkeypatch.setattr(criteria, "criteria_of", lambda query: asked)
    name = "criteria:judging_helpers:Halves"
    words = ["--mode", "official", "--rubric", "official:ueval_eval.py"]
    shutil.copytree(truth, place / "run")
    plait("score", "run", "--scorer", name, *words)
    of_run = {s.name: s.manner for s in reopen(place / "run").scorers}
    assert of_run[name] == released


@pytest.mark.usefixtures("worker_threads")
def test_judges_of_aspects_hear_them_and_a_checkout_holds_their_text(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aspects, "_DIGEST", hashlib.sha256(b"Score it.").hexdigest())
    file = place / "OpenING" / aspects.FILE
    file.parent.mkdir(parents=True)
    file.write_text("Score it.")
    name, root = "aspects:judging_helpers:Halves", place / "run"
    words = ["--scorer", name, "--mode", "official", "--rubric", "official:OpenING"]
    plait("run", *WORDS[:2], *WORDS[4:], *words, "--out", str(root))
    of_run = {s.name: s.manner for s in reopen(root).scorers}
    assert of_run[name] == "released wording, official mode, seven aspects"
    assert (root / file.name).read_text() == "Score it."
    # The copy is read where the whole checkout is gone.
    (place / "OpenING").rename(place / "gone")
    assert reopen(root).scorers[-1].manner == of_run[name]


@pytest.mark.parametrize("others", ["aspects:anole", "isg-block:anole", "criteria:anole"])
def test_a_rubric_is_not_meant_for_two_kinds_of_judges(place: Path, others: str) -> None:
    told = {"systems": ("gt",), "scorers": (JUDGE, others), "rubric": "own"}
    with pytest.raises(UsageError, match=f"both {JUDGE} and {others}"):
        load_config(None, told)


@pytest.mark.parametrize("option", [("--mode", "corrected"), ("--rubric", "own")])
def test_options_that_no_judge_hears_are_told(place: Path, option: tuple[str, str]) -> None:
    told = "Warning: mode and rubric have no effect, as no judge is named."
    words = ["--system", "gt", "--weights", "tiny", "--limit", "3", "--out", "none"]
    assert told in plait("plan", *words, "--scorer", "bleu", *option).output
    assert told not in plait("plan", *words, "--scorer", "bleu").output
    assert told not in plait("plan", *words, "--scorer", JUDGE, *option).output


ALL = (
    *by_name(Named.SCORER),
    *(
        f"{prefix}:qwen2-vl-7b"
        for prefix in by_prefix(Named.SCORER)
        if is_vqa(f"{prefix}:x")
    ),
)


@pytest.mark.parametrize("name", ALL)
def test_the_mode_reaches_every_scorer_that_has_one(name: str) -> None:
    flags = {"systems": ("gt",), "scorers": (name,), "weights": "tiny"}
    as_its_own = load_config(None, {**flags, "models": {name: {"mode": "official"}}})
    for_all = load_config(None, {**flags, "mode": "official"})
    try:
        scorer_of(name, as_its_own, models_of(as_its_own))
    except UsageError:
        assert not takes(name, "mode")
        assert (for_all.mode, for_all.models) == ("official", {})
    else:
        assert takes(name, "mode")
        assert (for_all.mode, for_all.models) == (None, as_its_own.models)
