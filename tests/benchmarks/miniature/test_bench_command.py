"""`plait bench miniature`: its options, its files, and parts that are not there."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from benchmarks.miniature import bench
from benchmarks.miniature.bars import Bar, BenchPart
from benchmarks.miniature.bench import main
from benchmarks.miniature.settings import BenchSettings, Say
from benchmarks.plain_console import PlainConsole
from generators.errors import CheckpointError, UsageError
from scorers.statistics.estimate import Estimate


def run(*words: str) -> tuple[int, str]:
    console = PlainConsole(file=io.StringIO(), width=250)
    status = main(list(words), console)
    return status, console.file.getvalue()  # type: ignore[attr-defined]


def reached(settings: BenchSettings, say: Say) -> list[BenchPart]:
    say(f"measuring {settings.scenes} scenes")
    bar = Bar.at_least("whole scenes", Estimate(0.9, (0.8, 0.95), 40), 0.85)
    return [BenchPart(title="Artists", bars=(bar,))]


def without_weights(settings: BenchSettings, say: Say) -> list[BenchPart]:
    raise CheckpointError("the mini weights of 'anole' are not in weights/anole")


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PARTS", {"artists": reached, "native": without_weights})


def test_every_part_is_printed_and_written(tmp_path: Path) -> None:
    status, text = run("--out", str(tmp_path / "out"), "--scenes", "7")
    assert status == 0
    assert "measuring 7 scenes" in text
    assert "1 reached, 0 not reached, 1 not there" in text
    content = json.loads((tmp_path / "out" / "miniature.json").read_text())
    assert content["weights"] == "mini"
    assert [p["title"] for p in content["parts"]] == ["Artists", "native"]
    (bar,) = content["parts"][0]["bars"]
    assert (bar["value"], bar["ci95"], bar["state"]) == (0.9, [0.8, 0.95], "reached")
    page = (tmp_path / "out" / "miniature.md").read_text()
    assert "[0.800, 0.950]" in page
    assert "the mini weights of 'anole' are not in weights/anole" in page
    assert "say nothing about the published models" in page


def test_only_the_named_part_is_measured(tmp_path: Path) -> None:
    _, text = run("--out", str(tmp_path), "--only", "artists")
    assert "not there" not in text.replace("0 not there", "")


def test_a_part_that_breaks_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(settings: BenchSettings, say: Say) -> list[BenchPart]:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(bench, "PARTS", {"native": broken, "artists": reached})
    _, text = run("--out", str(tmp_path))
    assert "Traceback" in text
    assert "RuntimeError: shapes do not fit" in text
    assert "1 reached, 0 not reached, 1 not there" in text


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


def test_settings_of_models_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[BenchSettings] = []

    def keep(settings: BenchSettings, say: Say) -> list[BenchPart]:
        given.append(settings)
        return []

    monkeypatch.setattr(bench, "PARTS", {"artists": keep})
    run("--out", str(tmp_path), "--set", "models.openjourney.steps=5", "--weights", "tiny")
    assert given[0].models == {"openjourney": {"steps": 5}}
    assert given[0].weights == "tiny"
