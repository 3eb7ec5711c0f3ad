"""A second configuration into one run directory: joined, or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import invoke, manifest
from judging_helpers import STAND_IN, stand_in_digests

from benchmarks.runs.experiment import reopen
from benchmarks.tasks.mmie.reader import SAMPLE
from generators.errors import UsageError
from scorers.judging import released

GIVEN = ["--weights", "tiny", "--seed", "3", "--limit", "9"]
NO_SCORERS = ["--set", "scorers=[]"]
TRUTH = ["--system", "gt", *GIVEN]
PAIR = "qwen2-vl-72b+sd3"


def plait(*words: str) -> str:
    done = invoke(*words)
    assert done.exit_code in (0, 2), done.output
    return done.output.replace("\n", " ")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the ground truth over nine queries; it needs no Ray."""
    monkeypatch.setattr(released, "DIGESTS", stand_in_digests())
    (tmp_path / "prompts.py").write_text(STAND_IN)
    monkeypatch.chdir(tmp_path)
    plait("run", *TRUTH, *NO_SCORERS, "--out", "run")
    return tmp_path / "run"


def state(root: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in root.iterdir() if p.is_file()}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--seed", "4"], "seed is 4, but 3 in the run"),
        (["--weights", "dummy"], "weights is dummy, but tiny in the run"),
        (["--limit", "8"], "of the run's 9 queries are not among the 8 asked for"),
        (["--data", "other"], "but sample in the run"),
        (["--set", "prompts.SA.text=Go on."], "prompts is"),
        (["--set", "composition.max_images=2"], "composition is"),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_what_would_give_the_results_another_meaning_is_refused(
    root: Path, command: str, words: list[str], reason: str
) -> None:
    rows = json.loads((SAMPLE / "data.json").read_text())[:12]
    (root.parent / "other").mkdir()
    (root.parent / "other" / "data.json").write_text(json.dumps(rows))
    (root.parent / "other" / "images").symlink_to(SAMPLE / "images")
    before = state(root)
    with pytest.raises(UsageError, match=reason) as error:
        plait(command, *TRUTH, *NO_SCORERS, "--out", "run", *words)
    assert "another directory with --out, or give the values of that run" in str(
        error.value
    )
    assert state(root) == before


def test_data_that_has_changed_in_its_place_is_refused(root: Path) -> None:
    place = root.parent / "data"
    place.mkdir()
    rows = json.loads((SAMPLE / "data.json").read_text())[:12]
    (place / "data.json").write_text(json.dumps(rows))
    (place / "images").symlink_to(SAMPLE / "images")
    words = [*TRUTH, *NO_SCORERS, "--out", "theirs", "--data"]
    plait("run", *words, "data")
    # The same file is the same data wherever it lies.
    place.rename(root.parent / "moved")
    plait("run", *words, "moved")
    (root.parent / "moved" / "data.json").write_text(json.dumps(rows[:11]))
    with pytest.raises(UsageError, match="has changed since the run was made"):
        plait("run", *words, "moved")


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
    assert "18 documents: 9 queries" in told
    assert "for all of its queries: scorer bleu" in told
    # What a command leaves out stays in the run.
    assert "added" not in plait("run", *TRUTH, "--out", "run")
    assert manifest(root)["systems"] == ["gt", "gt:no-images"]


def test_a_larger_selection_is_added(root: Path) -> None:
    former = reopen(root)
    first = [sample.id for sample in former.samples]
    assert former.recorded_queries == len(first)
    words = ["--system", "gt", *GIVEN[:4], *NO_SCORERS, "--out", "run", "--limit"]
    assert "all of its queries: 3 queries" in plait("run", *words, "12")
    grown = reopen(root)
    assert set(first) < {sample.id for sample in grown.samples}
    assert len(grown.samples) == grown.recorded_queries == 12
    assert json.loads((root / "leaderboard.json").read_text())[0]["n"] == 12


def test_a_list_of_ids_may_grow_and_is_kept_with_the_run(root: Path) -> None:
    ids = [sample.id for sample in reopen(root).samples]
    file = root.parent / "ids.txt"
    words = ["--system", "gt", *GIVEN[:4], *NO_SCORERS, "--ids", str(file), "--out", "some"]
    file.write_text("\n".join(ids[:2]))
    plait("run", *words)
    file.write_text("\n".join(ids[:4]))
    assert "all of its queries: 2 queries" in plait("run", *words)
    file.write_text("\n".join(ids[1:4]))
    with pytest.raises(UsageError, match="1 of the run's 4 queries are not among the 3"):
        plait("run", *words)
    file.unlink()
    assert [s.id for s in reopen(root.parent / "some").samples] == ids[:4]
    assert "report" in plait("report", str(root.parent / "some"))


def planned(root: Path, *words: str) -> None:
    """Write the manifest that `plait run` would begin with."""
    from benchmarks.runs.config import load_config
    from benchmarks.runs.joining import joined
    from cluster.manifest import write_json

    flags: dict[str, Any] = {"weights": "tiny", "limit": 9, "out": root, "seed": 3}
    pairs = list(zip(words[::2], words[1::2], strict=True))
    for name in ("system", "scorer"):
        flags[f"{name}s"] = tuple(v for k, v in pairs if k == f"--{name}")
    flags |= {k[2:]: v for k, v in pairs if k in ("--mode", "--rubric")}
    config = load_config(None, flags, [v for k, v in pairs if k == "--set"])
    root.mkdir(exist_ok=True)
    write_json(root / "manifest.json", joined(config)[0].about())


def test_other_settings_of_a_model_that_is_there_are_refused(root: Path) -> None:
    planned(root, "--system", PAIR, "--set", "models.sd3.guidance=2.5")
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


def test_settings_may_be_of_a_system_that_only_the_run_names(root: Path) -> None:
    named = 'models."users_own:Poet".metre'
    planned(root, "--system", "users_own:Poet", "--set", f"{named}=4")
    words = ["plan", *TRUTH, *NO_SCORERS, "--out", "run", "--set"]
    assert "18 documents" in plait(*words, f"{named}=4")
    with pytest.raises(UsageError, match="metre of Poet is 5, but 4 in the run"):
        plait(*words, f"{named}=5")
    with pytest.raises(UsageError, match="unknown name in models 'users_own:Poe'"):
        plait(*words, 'models."users_own:Poe".metre=4')


JUDGE = "judge:qwen2-vl-72b"
AS_RELEASED = ["--mode", "official", "--rubric", "official:prompts.py"]


def test_another_mode_or_rubric_of_a_judge_that_is_there_is_refused(root: Path) -> None:
    planned(root, "--system", "gt", "--scorer", JUDGE)
    words = ["plan", *TRUTH, "--out", "run", "--scorer"]
    refusal = "released rubrics, official mode, but our rubrics, corrected mode in the run"
    with pytest.raises(UsageError, match=refusal):
        plait(*words, JUDGE, *AS_RELEASED)
    with pytest.raises(UsageError, match=f"{JUDGE} would ask or read replies differently"):
        plait(*words, JUDGE, "--set", f'models."{JUDGE}".retries=3')
    with pytest.raises(UsageError, match=refusal):
        plait(*words[:-1], "--set", "scorers=[]", *AS_RELEASED)
    # They are for the judges of this command alone.
    planned(root, "--system", "gt", "--scorer", "judge:anole", *AS_RELEASED)
    judges = {s.name: s.manner for s in reopen(root).scorers}
    assert judges == {
        JUDGE: "our rubrics, corrected mode",
        "judge:anole": "released rubrics, official mode",
    }


def test_weights_that_have_changed_in_their_place_are_refused(root: Path) -> None:
    folder = root.parent / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen2_vl"}')
    from benchmarks.runs.config import load_config
    from benchmarks.runs.joining import joined
    from cluster.manifest import write_json

    flags: dict[str, Any] = {"limit": 9, "out": root.parent / "weighed"}
    flags["systems"] = ("qwen2-vl-7b+sd3",)
    settings = [f"models.{name}.model={folder}" for name in ("qwen2-vl-7b", "sd3")]

    def about() -> dict[str, Any]:
        return joined(load_config(None, flags, ["scorers=[]", *settings]))[0].about()

    (root.parent / "weighed").mkdir()
    made = about()
    write_json(root.parent / "weighed" / "manifest.json", made)
    assert about() == made
    (folder / "config.json").write_text('{"model_type": "other"}')
    with pytest.raises(UsageError, match=r"weights of .*checkpoint@main are folder:.* but"):
        about()
    config = load_config(None, flags, ["scorers=[]", *settings])
    again = joined(config, remake=True)[0].identities
    assert all(identity != again[name] for name, identity in made["identities"].items())
    # Weights that are gone are named, and the run keeps those that it was made with.
    (folder / "config.json").unlink()
    folder.rmdir()
    gone = joined(load_config(None, flags, ["scorers=[]", *settings]))[0]
    assert "no such file or folder" in gone.missing_weights[0]
    assert gone.identities == made["identities"]
