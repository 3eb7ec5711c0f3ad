"""`plait bench miniature`: bars, options, files, and parts that are not there."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from plait.benchmarks.miniature import bench
from plait.benchmarks.miniature.bench import main
from plait.benchmarks.miniature.measures import Bar, BenchPart, BenchSettings, Say
from plait.benchmarks.plain_console import PlainConsole
from plait.generators.errors import CheckpointError, UsageError
from plait.scorers.statistics.estimate import Estimate


def run(*words: str) -> tuple[int, str]:
    said = io.StringIO()
    return main(list(words), PlainConsole(file=said, width=250)), said.getvalue()


def reached(settings: BenchSettings, say: Say) -> list[BenchPart]:
    say(f"{settings.scenes} scenes of {settings.models} ({settings.weights})")
    bar = Bar.at_least("whole scenes", Estimate(0.9, (0.8, 0.95), 40), 0.85)
    return [BenchPart(title="Artists", bars=(bar,))]


def without_weights(settings: BenchSettings, say: Say) -> list[BenchPart]:
    raise CheckpointError("the mini weights of 'anole' are not in weights/anole")


def broken(settings: BenchSettings, say: Say) -> list[BenchPart]:
    raise RuntimeError("shapes do not fit")


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"captions": broken, "artists": reached, "native": without_weights}
    monkeypatch.setattr(bench, "PARTS", made)


@pytest.mark.parametrize(
    ("bar", "state"),
    [
        (Bar.at_least("x", Estimate(0.97), 0.97), "reached"),
        (Bar.at_least("x", Estimate(0.9699), 0.97), "not reached"),
        (Bar.at_least("x", Estimate(None, None, 0, "nothing"), 0.5), "not reached"),
        (Bar(name="x", estimate=Estimate(0.1)), "reported"),
        (Bar.not_there("x", "no weights"), "not there"),
    ],
)
def test_a_bar_is_reached_at_its_aim(bar: Bar, state: str) -> None:
    assert bar.state == state


@pytest.mark.models
def test_every_part_is_printed_and_written_even_where_one_breaks(tmp_path: Path) -> None:
    words = ("--scenes", "7", "--weights", "tiny", "--set", "models.sdxl.steps=5")
    status, text = run("--out", str(tmp_path / "out"), *words)
    assert status == 0
    assert "7 scenes of {'sdxl': {'steps': 5}} (tiny)" in text
    assert "RuntimeError: shapes do not fit" in text
    assert "1 reached, 0 not reached, 2 not there" in text
    content = json.loads((tmp_path / "out" / "miniature.json").read_text())
    assert content["weights"] == "tiny"
    assert [p["title"] for p in content["parts"]] == ["captions", "Artists", "native"]
    (bar,) = content["parts"][1]["bars"]
    assert (bar["value"], bar["ci95"], bar["state"]) == (0.9, [0.8, 0.95], "reached")
    page = (tmp_path / "out" / "miniature.md").read_text()
    assert "[0.800, 0.950]" in page
    assert "the mini weights of 'anole' are not in weights/anole" in page


@pytest.mark.models
def test_only_the_named_part_is_measured(tmp_path: Path) -> None:
    _, text = run("--out", str(tmp_path), "--only", "artists")
    assert "1 reached, 0 not reached, 0 not there" in text


@pytest.mark.models
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "artist"), "artists"),
        (("--set", "weights=tiny"), "models.NAME.key=value"),
    ],
)
def test_wrong_options_are_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(*words)
