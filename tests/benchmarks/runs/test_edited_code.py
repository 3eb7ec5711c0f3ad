"""Records of a user's own class, whose code is edited under the same version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import invoke, manifest

import plait
from plait.cluster import sources
from plait.cluster.lock import RunInUse
from plait.generators.errors import UsageError

pytestmark = pytest.mark.slow

MINE = """
from plait.generators.base import Failure, Fault, Result
from plait.generators.document import Draft, Score, Text

class Wordy:
    kind = "draft"
    def __init__(self, **_): ...
    def __call__(self, requests):
        return [Result(Draft((Text("words"),))) for _ in requests]
"""
SCORES = """
import edited_factor
from plait.generators.base import Failure, Fault, Result
from plait.generators.document import Score

class Times:
    kind, scale, works = "score", "0-1000", True
    def __init__(self, **_): ...
    def __call__(self, candidates):
        if not self.works:
            return [Failure("out of order", Fault.ERROR) for _ in candidates]
        return [Result(Score(edited_factor.FACTOR * 5)) for _ in candidates]
"""
WORDS = ["--system", "edited_mine:Wordy@text", "--scorer", "edited_scores:Times"]
WORDS += ["--weights", "tiny", "--executor", "local", "--limit", "3", "--out", "run"]


@pytest.fixture
def factor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module that the user's scorer imports, beside it in the current folder."""
    (tmp_path / "edited_mine.py").write_text(MINE)
    (tmp_path / "edited_scores.py").write_text(SCORES)
    (tmp_path / "edited_factor.py").write_text("FACTOR = 2\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "edited_factor.py"


def kept(stage: str = "Times") -> dict[str, str]:
    (file,) = Path("run").glob(f"stages/{stage}-*/source.json")
    return json.loads(file.read_text())


SCORE = ["score", "run", "--scorer", "edited_scores:Times", "--executor", "local"]


@pytest.mark.parametrize(
    "words", [["run", *WORDS], ["run", *WORDS, "--shard", "1/1"], SCORE]
)
def test_it_is_refused_until_its_results_are_said_to_be_the_same(
    factor: Path, words: list[str]
) -> None:
    assert invoke("run", *WORDS).exit_code == 0
    before = kept()
    assert set(before) == {"edited_scores", "edited_factor"}
    factor.write_text("# as it was\nFACTOR = 2\n")
    assert invoke(*words).exit_code == 0
    factor.write_text("FACTOR = 3\n")
    with pytest.raises(UsageError, match=r"(?s)edited_factor.*version.*--same-code"):
        invoke(*words)
    planned = invoke("plan", *WORDS)
    assert (planned.exit_code, "edited_factor" in planned.output) == (2, True)
    assert invoke("plan", *WORDS, "--same-code").exit_code == 0
    for reading in (["report", "run"], ["verify", "run"]):
        assert invoke(*reading).exit_code == 0
    assert kept() == before
    assert invoke(*words, "--same-code").exit_code == 0
    assert kept()["edited_factor"] != before["edited_factor"]
    assert invoke(*words).exit_code == 0


def test_the_system_of_a_run_may_be_edited_while_its_answers_are_scored(
    factor: Path,
) -> None:
    assert invoke("run", *WORDS).exit_code == 0
    mine, before = Path("edited_mine.py"), kept("Wordy")
    mine.write_text(MINE.replace("words", "other words"))
    assert invoke(*SCORE).exit_code == 0
    assert kept("Wordy") == before
    with pytest.raises(UsageError, match="edited_mine:Wordy"):
        invoke("run", *WORDS)


def test_a_raised_version_has_records_of_its_own(factor: Path, monkeypatch) -> None:
    assert invoke("run", *WORDS).exit_code == 0
    import edited_scores

    factor.write_text("FACTOR = 3\n")
    monkeypatch.setattr(edited_scores.Times, "version", 2, raising=False)
    assert invoke("run", *WORDS, "--remake").exit_code == 0
    assert len(list(Path("run").glob("stages/Times-*/source.json"))) == 2
    assert invoke("run", *WORDS).exit_code == 0


def test_runs_that_noted_no_source_are_taken_up(factor: Path) -> None:
    assert invoke("run", *WORDS).exit_code == 0
    for file in Path("run").glob("stages/*/source.json"):
        file.unlink()
    factor.write_text("FACTOR = 3\n")
    assert invoke("run", *WORDS).exit_code == 0
    factor.write_text("FACTOR = 4\n")
    with pytest.raises(UsageError, match="edited_factor"):
        invoke("run", *WORDS)


def test_code_that_only_failed_may_be_mended(factor: Path, monkeypatch) -> None:
    import edited_scores

    monkeypatch.setattr(edited_scores.Times, "works", False)
    assert invoke("run", *WORDS).exit_code == 1
    factor.write_text("FACTOR = 3\n")
    monkeypatch.setattr(edited_scores.Times, "works", True)
    # Not while another driver may be making records with the former code.
    with monkeypatch.context() as patch:
        patch.setattr(sources, "drivers_of", lambda root: ["shard 2/2"])
        with pytest.raises(UsageError, match="edited_factor"):
            invoke("run", *WORDS)
    assert invoke("run", *WORDS).exit_code == 0
    assert manifest(Path("run"))["counts"]["scored"] == 3


def test_a_driver_with_other_source_is_refused_at_its_start(
    factor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have begun before either has noted its own."""
    assert invoke("run", *WORDS).exit_code == 0
    theirs, read = {"edited_scores": "theirs"}, sources.sources_of

    def found_then_noted(*args: object) -> list[sources.StageSource]:
        found = read(*args)  # type: ignore[arg-type]
        (file,) = Path("run").glob("stages/Times-*/source.json")
        file.write_text(json.dumps(theirs))
        return found

    monkeypatch.setattr("plait.benchmarks.runs.planning.sources_of", found_then_noted)
    with pytest.raises(RunInUse, match="edited_scores:Times"):
        invoke("run", *WORDS)
    assert kept() == theirs


def test_from_python(factor: Path) -> None:
    options = {"systems": ["edited_mine:Wordy@text"], "scorers": ["edited_scores:Times"]}
    options |= {"weights": "tiny", "executor": "local", "limit": 3, "out": "run"}
    plait.run(**options)
    factor.write_text("FACTOR = 3\n")
    with pytest.raises(UsageError, match="same_code=True"):
        plait.run(**options)
    assert not plait.plan(**options).ready()
    assert plait.run(**options, same_code=True).outcome.failed == 0
    assert plait.plan(**options).ready()
