"""A run that is shown to be as good as its reference before it answers all queries."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Done, manifest, plait

from plait.benchmarks.runs.config import FidelityConfig, RunConfig, load_config
from plait.generators.errors import UsageError

pytestmark = pytest.mark.contract
PAINTER = "guided:Painter"
SCORER = "guided:Brightness"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [f"picture {i} of a house\n" for i in range(40)]
    (tmp_path / "prompts.txt").write_text("".join(lines))
    return tmp_path


def config(folder: Path, reference: str, margins: str = "") -> Path:
    """A run whose lever is a setting of the model that draws."""
    file = folder / "run.toml"
    file.write_text(
        f"""
data = "prompts:{folder}/prompts.txt"
systems = ["{PAINTER}@t2i"]
scorers = ["{SCORER}"]
weights = "tiny"
out = "{folder}/run"

[models."{PAINTER}"]
guidance = 2.0
steps = 20

[fidelity]
queries = 12
margins = {{ {margins or f'"{SCORER}" = 1.0'} }}
{reference}
"""
    )
    return file


SLOW = f'[fidelity.reference.models."{PAINTER}"]\nguidance = 2.0\nsteps = 50\n'
"""The reference: in another number of steps, which this model does not heed."""
BRIGHT = f'[fidelity.reference.models."{PAINTER}"]\nguidance = 3.0\nsteps = 50\n'


def run(folder: Path, *words: str) -> Done:
    return plait("run", str(folder / "run.toml"), "--executor", "local", *words)


def test_a_run_that_is_as_good_goes_on_from_what_it_has(folder: Path) -> None:
    config(folder, SLOW)
    done = run(folder)
    assert done.returncode == 0, done.stderr
    root = folder / "run"
    result = manifest(root)["fidelity"]
    assert result["passed"] is True
    (row,) = result["margins"]
    assert (row["measure"], row["verdict"], row["estimate"]["n"]) == (SCORER, "shown", 12)
    assert json.loads((root / "fidelity" / "result.json").read_text()) == result
    # Twelve of forty answers and scores are those of the small run.
    assert "; 56 records made" in done.stdout
    small = {path.name.partition("-")[0]: path for path in (root / "fidelity").glob("*-*")}
    assert {*small} == {"reference", "run"}
    assert manifest(small["reference"])["config"]["limit"] == 12
    # Equal images are scored once, and drawn by both.
    reference, fast = small["reference"], small["run"]
    assert parts_of("Brightness", reference) == parts_of("Brightness", fast)
    assert not parts_of("Painter", reference) & parts_of("Painter", fast)
    again = run(folder)
    assert again.returncode == 0, again.stderr
    assert "; 0 records made" in again.stdout
    assert "fidelity:" not in again.stdout
    planned = plait("plan", str(folder / "run.toml"), "--executor", "local")
    assert "; shown" in planned.stdout


def test_a_run_that_is_worse_is_refused_with_the_table(folder: Path) -> None:
    config(folder, BRIGHT)
    done = run(folder)
    assert done.returncode == 1
    assert "worse than the margin" in done.stdout
    assert "was not started" in done.stderr
    root = folder / "run"
    assert not (root / "manifest.json").exists()
    assert json.loads((root / "fidelity" / "result.json").read_text())["passed"] is False
    # What both have answered is not asked again; a wider margin is tested anew.
    small = [*(root / "fidelity").glob("*-*")]
    before = [parts_of("Painter", place) for place in small]
    again = run(folder)
    assert again.returncode == 1
    assert [parts_of("Painter", place) for place in small] == before
    config(folder, BRIGHT, margins=f'"{SCORER}" = "60%"')
    wider = run(folder)
    assert wider.returncode == 0, wider.stderr
    (row,) = manifest(root)["fidelity"]["margins"]
    assert (row["margin"], row["verdict"]) == ("60%", "shown")


def test_a_finished_run_is_a_reference(folder: Path) -> None:
    config(folder, SLOW)
    file = folder / "reference.toml"
    text = (folder / "run.toml").read_text().partition("[fidelity]")[0]
    file.write_text(text.replace("steps = 20", "steps = 50"))
    words = ("--executor", "local", "--limit", "20", "--out", str(folder / "reference"))
    assert plait("run", str(file), *words).returncode == 0
    named = f'queries = 12\nreference = "{folder}/reference"'
    plain = config(folder, "")
    plain.write_text(plain.read_text().replace("queries = 12", named))
    done = run(folder)
    assert done.returncode == 0, done.stderr
    assert manifest(folder / "run")["fidelity"]["passed"] is True
    # One that was asked fewer of the queries is not.
    other = folder / "run.toml"
    other.write_text(other.read_text().replace("queries = 12", "queries = 30"))
    done = run(folder)
    assert done.returncode == 2
    assert "20 of the 30 queries" in done.stderr
    other.write_text(other.read_text().replace(f"{folder}/reference", f"{folder}/nowhere"))
    assert run(folder).returncode == 2


def test_a_reference_that_is_the_run_itself_is_refused(folder: Path) -> None:
    config(folder, f'[fidelity.reference.models."{PAINTER}"]\nguidance = 2.0\nsteps = 20\n')
    done = run(folder)
    assert done.returncode == 2
    assert "no setting of its models differs" in done.stderr


def test_a_lever_that_names_no_result_is_compared_all_the_same(folder: Path) -> None:
    """The batch size is in no key, and yet both answer."""
    lever = "guidance = 2.0\nsteps = 20\nbatch_size = 1\n"
    config(
        folder, f'[fidelity.reference.models."{PAINTER}"]\n{lever}', margins="ssim = 0.9"
    )
    done = run(folder)
    assert done.returncode == 0, done.stderr
    (row,) = manifest(folder / "run")["fidelity"]["margins"]
    assert "the answers to all 12 queries are the same" in row["reason"]
    one, other = (folder / "run" / "fidelity").glob("*-*")
    assert not parts_of("Painter", one) & parts_of("Painter", other)


def parts_of(stage: str, root: Path) -> set[str]:
    """Names of the files with a stage's records, which tell of every time it was called."""
    found = {part.name for part in root.glob(f"stages/*{stage}*/part-*")}
    assert found
    return found


def test_shards_wait_for_what_one_command_shows(folder: Path) -> None:
    config(folder, SLOW)
    early = run(folder, "--shard", "1/2")
    assert early.returncode == 2
    assert "--limit 12" in early.stderr
    assert run(folder, "--limit", "12").returncode == 0
    for shard in ("1/2", "2/2"):
        done = run(folder, "--shard", shard)
        assert done.returncode == 0, done.stderr
    assert manifest(folder / "run")["fidelity"]["passed"] is True


def test_a_margin_of_what_the_run_does_not_measure_is_refused_first(folder: Path) -> None:
    config(folder, SLOW, margins="clipscore = 0.1")
    done = run(folder)
    assert done.returncode == 2
    assert "unknown measure of a margin 'clipscore'" in done.stderr
    assert not (folder / "run" / "fidelity").exists()


def test_a_plan_tells_what_is_shown_first_and_makes_nothing(folder: Path) -> None:
    config(folder, SLOW)
    done = plait("plan", str(folder / "run.toml"), "--executor", "local")
    assert done.returncode == 0, done.stderr
    assert "answer 12 queries first" in done.stdout
    assert not (folder / "run").exists()


# ------------------------------------------------------------------------------- config

REFERENCE: dict[str, Any] = {"models": {"flux": {"compile": False}}}


def loaded(**fidelity: Any) -> RunConfig:
    flags = {"systems": ("gt",), "data": "sample", "weights": "dummy"}
    return load_config(None, {**flags, "fidelity": fidelity})


def test_the_config_of_a_run_is_stored_and_read_again(tmp_path: Path) -> None:
    made = loaded(reference=REFERENCE, margins={"clipscore": "0.5%", "exact": 0.9})
    plain = json.loads(json.dumps(made.plain_data()))
    assert plain["fidelity"]["reference"] == REFERENCE
    assert RunConfig.model_validate(plain).fidelity == made.fidelity
    place = loaded(reference=str(tmp_path / "x" / ".." / "run"), margins={"ssim": 0.9})
    assert place.plain_data()["fidelity"]["reference"] == str(tmp_path / "run")
    assert isinstance(place.fidelity, FidelityConfig)
    # What is shown first changes no result, and gives the run no other name.
    without = load_config(None, {"systems": ("gt",), "data": "sample", "weights": "dummy"})
    assert place.digest == made.digest == without.digest
    assert "fidelity" not in without.plain_data()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"margins": {}}, "at least one margin"),
        ({"margins": {"ssim": 0}}, "more than 0"),
        ({"margins": {"ssim": "much"}}, "MEASURE=VALUE"),
        ({"queries": 4}, "queries in fidelity"),
        ({"reference": {"model": {}}}, "did you mean 'models'"),
        ({"reference": {"models": {}}}, "models"),
        ({"reference": 3}, "give a folder"),
        ({"refrence": "x"}, "did you mean 'reference'"),
    ],
)
def test_what_cannot_be_shown_is_refused(changes: dict[str, Any], told: str) -> None:
    given = {"reference": REFERENCE, "margins": {"ssim": 0.9}, **changes}
    with pytest.raises(UsageError, match=told):
        loaded(**given)


def test_a_run_that_was_shown_is_read_and_extended_like_any_other(folder: Path) -> None:
    file = config(folder, SLOW)
    assert run(folder, "--limit", "14").returncode == 0
    root = folder / "run"
    shown = manifest(root)["fidelity"]
    for words in (("report",), ("verify",), ("score", "--scorer", "guided:Other")):
        command, *options = words
        done = plait(command, str(root), *options)
        assert done.returncode == 0, done.stderr
        assert manifest(root)["fidelity"] == shown
    done = plait("pack", str(root), str(folder / "run.zip"))
    assert done.returncode == 0, done.stderr
    assert str(folder) not in json.dumps(manifest_of_pack(folder / "run.zip"))
    # A further system is shown too.
    (fast,) = (root / "fidelity").glob("run-*")
    before = parts_of("Painter", fast)
    further = "comparing_helpers:Square"
    text = file.read_text().replace('@t2i"]', f'@t2i", "{further}@t2i"]')
    lever = f'[fidelity.reference.models."{further}"]\nbatch_size = 1\n'
    file.write_text(text + lever)
    done = run(folder, "--limit", "14")
    assert done.returncode == 0, done.stderr
    rows = manifest(root)["fidelity"]["margins"]
    assert [row["systems"][0] for row in rows] == [f"{PAINTER}@t2i", f"{further}@t2i"]
    assert all(row["verdict"] == "shown" for row in rows)
    # What the first has answered is not asked again.
    assert before == parts_of("Painter", fast)
    assert parts_of("Square", fast)


def manifest_of_pack(file: Path) -> dict[str, Any]:
    with zipfile.ZipFile(file) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("manifest.json")]
        content: dict[str, Any] = json.loads(archive.read(name))
    return content
