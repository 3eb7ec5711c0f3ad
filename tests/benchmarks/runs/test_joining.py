"""A second configuration into one run directory: joined, or refused with the reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import invoke, manifest
from mmie_helpers import folder, gpt, human, row

from plait.benchmarks.runs.config import RunConfig, load_config
from plait.benchmarks.runs.joining import join
from plait.benchmarks.runs.reopening import reopen
from plait.benchmarks.tasks.mmie.reader import SAMPLE
from plait.cluster.manifest import write_json
from plait.generators.errors import UsageError

pytestmark = pytest.mark.contract

GIVEN = ["--weights", "tiny", "--seed", "3", "--limit", "9"]
NO_SCORERS = ["--set", "scorers=[]"]
TRUTH = ["--system", "gt", *GIVEN]
PAIR = "qwen2-vl-72b+sd3"


def plait(*words: str) -> str:
    done = invoke(*words)
    assert done.exit_code in (0, 2), done.output
    return done.output.replace("\n", " ")


def state(root: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in root.iterdir() if p.is_file()}


@pytest.fixture
def root(truth: Path, place: Path) -> Path:
    """A run of the ground truth over nine queries, to be added to."""
    return Path(shutil.copytree(truth, place / "run"))


@pytest.mark.parametrize(
    ("command", "words", "reason"),
    [
        ("run", ["--seed", "4"], "seed is 4, but 3 in the run"),
        ("plan", ["--weights", "dummy"], "weights is dummy, but tiny in the run"),
        ("run", ["--limit", "8"], "of the run's 9 queries are not among the 8 asked for"),
        ("plan", ["--data", "other"], "but sample in the run"),
        ("plan", ["--set", "prompts.SA.text=Go on."], "prompts is"),
        ("plan", ["--set", "composition.max_images=2"], "composition is"),
    ],
)
def test_what_would_give_the_results_another_meaning_is_refused(
    truth: Path, place: Path, command: str, words: list[str], reason: str
) -> None:
    folder(place / "other", [row(f"SA-{i}") for i in range(12)])
    before = state(truth)
    with pytest.raises(UsageError, match=reason) as error:
        plait(command, *TRUTH, *NO_SCORERS, "--out", str(truth), *words)
    advice = "another directory with --out, or give the values of that run"
    assert advice in str(error.value)
    assert state(truth) == before


def asking(question: str, reference: str = "So.") -> list[dict[str, Any]]:
    told = [human((question, None)), gpt((reference, None))]
    return [row("SA-1"), row("SA-2", conversations=told)]


def test_data_that_has_changed_since_the_run_was_made_is_refused(place: Path) -> None:
    folder(place / "data", asking("Why?"))
    words = ["--system", "gt", "--weights", "tiny", *NO_SCORERS, "--out", "theirs"]
    plait("run", *words, "--data", "data")
    # The same file is the same data wherever it lies.
    (place / "data").rename(place / "moved")
    plait("run", *words, "--data", "moved")
    folder(place / "moved", asking("How?"))
    with pytest.raises(UsageError, match="has changed since the run was made"):
        plait("run", *words, "--data", "moved")
    scoring = ["score", "theirs", "--scorer", "bleu"]
    two = [*scoring, "again=theirs/manifest.json", "--weights", "tiny", "--out", "both"]
    for command in (scoring, two):
        with pytest.raises(UsageError, match=r"the run in .*theirs .*\(SA-2\)"):
            plait(*command)
    folder(place / "moved", asking("Why?", "Otherwise."))
    with pytest.raises(UsageError, match=r"has changed since the run in .*\(SA-2\)"):
        plait(*two)
    folder(place / "data", asking("Why?", "Otherwise."))
    folder(place / "moved", asking("Why?"))
    told = ["--data", "data", "--executor", "local", "--out", "again"]
    assert "2 scored" in plait(*scoring, *told, "--weights", "tiny")
    folder(place / "data", asking("How?"))
    reason = r"answered other questions .* under 1 of its ids \(SA-2\)"
    with pytest.raises(UsageError, match=reason):
        plait(*scoring, *told[:4], "--out", "other", "--weights", "tiny")


def test_systems_and_scorers_that_are_added_stand_beside_those_there(root: Path) -> None:
    controls = ["--system", "gt:no-images", *GIVEN, "--out", "run"]
    told = plait("run", *controls)
    assert "added to the run, for all of its queries: system gt:no-images" in told
    rows = json.loads((root / "leaderboard.json").read_text())
    done = {row["system"]: row["done"] for row in rows}
    assert done["gt"] == 9
    assert set(done) == {"gt", "gt:no-images"}
    assert manifest(root)["systems"] == ["gt", "gt:no-images"]
    assert manifest(root)["config"]["systems"] == ["gt", "gt:no-images"]
    # Nothing was said of scorers, so none is added.
    assert manifest(root)["scorers"] == []
    told = plait("plan", *TRUTH, "--scorer", "bleu", "--out", "run")
    assert "18 answers: 9 queries" in told
    assert "for all of its queries: scorer bleu" in told
    # What a command leaves out stays in the run.
    assert "added" not in plait("plan", *TRUTH, "--out", "run")


def test_a_larger_selection_is_added(root: Path) -> None:
    former = reopen(root)
    first = [sample.id for sample in former.queries]
    assert former.recorded_queries == len(first)
    words = ["--system", "gt", *GIVEN[:4], *NO_SCORERS, "--out", "run", "--limit"]
    assert "all of its queries: 3 queries" in plait("run", *words, "12")
    grown = reopen(root)
    assert set(first) < {sample.id for sample in grown.queries}
    assert len(grown.queries) == grown.recorded_queries == 12
    assert json.loads((root / "leaderboard.json").read_text())[0]["n"] == 12


def config_of(root: Path, settings: Sequence[str] = (), **flags: Any) -> RunConfig:
    about = {"weights": "tiny", "limit": 9, "out": root, "seed": 3}
    return load_config(None, about | flags, settings)


def planned(root: Path, settings: Sequence[str] = (), **flags: Any) -> None:
    """Write the manifest that `plait run` would begin with."""
    root.mkdir(exist_ok=True)
    about = join(config_of(root, settings, **flags)).experiment.about()
    write_json(root / "manifest.json", about)


def test_a_list_of_ids_may_grow_and_is_kept_with_the_run(place: Path) -> None:
    ids = [row["id"] for row in json.loads((SAMPLE / "data.json").read_text())[:4]]
    file, root = place / "ids.txt", place / "some"
    flags: dict[str, Any] = {"systems": ("gt",), "limit": None, "ids": file}
    file.write_text("\n".join(ids[:2]))
    planned(root, ["scorers=[]"], **flags)
    file.write_text("\n".join(ids))
    assert join(config_of(root, ["scorers=[]"], **flags)).added == ("2 queries",)
    planned(root, ["scorers=[]"], **flags)
    file.write_text("\n".join(ids[1:]))
    with pytest.raises(UsageError, match="1 of the run's 4 queries are not among the 3"):
        join(config_of(root, **flags))
    file.unlink()
    assert [s.id for s in reopen(root).queries] == ids


def test_other_settings_of_a_model_that_is_there_are_refused(place: Path) -> None:
    planned(place / "run", ["scorers=[]", "models.sd3.guidance=2.5"], systems=(PAIR,))
    words = ["plan", *GIVEN, *NO_SCORERS, "--out", "run"]
    with pytest.raises(
        UsageError, match=r"qwen2.*: guidance of sd3 is 4.5, but 2.5 in the run"
    ):
        plait(*words, "--system", PAIR, "--set", "models.sd3.guidance=4.5")
    # A system that is new is asked for as it would be in a run of its own.
    other = ["--system", "qwen2-vl-7b+sd3"]
    with pytest.raises(
        UsageError, match=r"qwen2-vl-7b.*: guidance of sd3 is .*, but 2.5 in"
    ):
        plait(*words, *other)
    told = plait(*words, *other, "--set", "models.sd3.guidance=2.5")
    assert "added to the run, for all of its queries: system qwen2-vl-7b" in told


def test_another_history_of_a_variant_that_is_there_is_refused(place: Path) -> None:
    variant = [f'variants.v.system="{PAIR}"', "scorers=[]"]
    planned(place / "run", variant, systems=("v",))
    words = ["plan", *GIVEN, *NO_SCORERS, "--out", "run", "--system", "v"]
    words += ["--set", variant[0]]
    assert "9 answers" in plait(*words)
    with pytest.raises(UsageError, match="v would answer later turns differently"):
        plait(*words, "--set", 'variants.v.history="given"')


def test_settings_may_be_of_a_system_that_only_the_run_names(place: Path) -> None:
    named = 'models."users_own:Poet".metre'
    planned(place / "run", ["scorers=[]", f"{named}=4"], systems=("users_own:Poet",))
    words = ["plan", *TRUTH, *NO_SCORERS, "--out", "run", "--set"]
    assert "18 answers" in plait(*words, f"{named}=4")
    with pytest.raises(UsageError, match="metre of Poet is 5, but 4 in the run"):
        plait(*words, f"{named}=5")
    with pytest.raises(UsageError, match="unknown name in models 'users_own:Poe'"):
        plait(*words, 'models."users_own:Poe".metre=4')


JUDGE = "judge:qwen2-vl-72b"
AS_RELEASED = ["--mode", "official", "--rubric", "official:prompts.py"]


def test_another_mode_or_rubric_of_a_judge_that_is_there_is_refused(place: Path) -> None:
    root = place / "run"
    planned(root, systems=("gt",), scorers=(JUDGE,))
    words = ["plan", *TRUTH, "--out", "run", "--scorer"]
    refusal = "released rubrics, official mode, but our rubrics, corrected mode in the run"
    with pytest.raises(UsageError, match=refusal):
        plait(*words, JUDGE, *AS_RELEASED)
    with pytest.raises(UsageError, match=f"{JUDGE} would ask or read replies differently"):
        plait(*words, JUDGE, "--set", f'models."{JUDGE}".retries=3')
    with pytest.raises(UsageError, match=refusal):
        plait(*words[:-1], *NO_SCORERS, *AS_RELEASED)
    # They are for the judges of this command alone.
    released = dict(zip(("mode", "rubric"), AS_RELEASED[1::2], strict=True))
    planned(root, systems=("gt",), scorers=("judge:anole",), **released)
    judges = {s.name: s.manner for s in reopen(root).scorers}
    assert judges == {
        JUDGE: "our rubrics, corrected mode",
        "judge:anole": "released rubrics, official mode",
    }


def test_weights_that_have_changed_in_their_place_are_refused(place: Path) -> None:
    file = place / "checkpoint" / "config.json"
    file.parent.mkdir()
    file.write_text('{"model_type": "qwen2_vl"}')
    names = ("qwen2-vl-7b", "sd3")
    settings = ["scorers=[]", *(f"models.{name}.model={file.parent}" for name in names)]
    flags: dict[str, Any] = {"systems": ("qwen2-vl-7b+sd3",), "weights": None}
    config = config_of(place / "weighed", settings, **flags)
    planned(place / "weighed", settings, **flags)
    made = manifest(place / "weighed")
    assert join(config).experiment.about() == made
    file.write_text('{"model_type": "other"}')
    with pytest.raises(UsageError, match=r"weights of .*checkpoint@main are folder:.* but"):
        join(config)
    again = join(config, remake=True).experiment.identities
    assert all(identity != again[name] for name, identity in made["identities"].items())
    # Weights that are gone are named, and the run keeps those that it was made with.
    shutil.rmtree(file.parent)
    gone = join(config).experiment
    assert "no such file or folder" in gone.missing_weights[0]
    assert gone.identities == made["identities"]
    assert gone.about()["stages"] == made["stages"]
