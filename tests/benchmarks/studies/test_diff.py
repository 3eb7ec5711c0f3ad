"""`plait diff`: scores, texts and images paired by query, against numbers by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_helpers import fill
from boards import stored_results
from paths import CHECKOUT
from picture_helpers import saved
from PIL import Image as Pillow
from trial import Measuring, sample
from typer.testing import CliRunner

from plait.benchmarks.studies import diff
from plait.benchmarks.studies.diff import (
    MEASURES,
    WORDS,
    FinishedRun,
    answer_differences,
    answer_pair,
    image_difference,
    remarks,
    run_difference,
    splitter_of,
)
from plait.benchmarks.studies.scorer_changes import scorer_changes
from plait.cli import app
from plait.cluster.plan import Evaluation
from plait.cluster.walks import Pending
from plait.generators.base import Failure, Kind, Placement, Result, Skip, StageSpec
from plait.generators.document import Document, Image, Score, Text
from plait.generators.errors import UsageError
from plait.generators.given import GivenAnswers
from plait.generators.images import ImageError, encode
from plait.scorers.statistics.means import mean

MINI = CHECKOUT / "generators" / "mini" / "weights" / "qwen2-vl"


def noise(seed: int, side: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)


def png(pixels: np.ndarray) -> Image:
    return encode(Pillow.fromarray(pixels))


def draft(**about: object) -> StageSpec:
    return StageSpec(name="m", kind=Kind.DRAFT, target="m:M", **about)


@pytest.mark.parametrize(
    ("one", "other", "at"),
    [
        ("", "", None),
        ("a red cat", "a red cat", None),
        ("a red cat", "a red dog", 2),
        ("a red cat", "a red", 2),
        ("a red cat", "a red  cat", 2),
        ("", "a", 0),
        ("a", "a ", 1),
    ],
)
def test_the_first_difference_in_words(one: str, other: str, at: int | None) -> None:
    assert WORDS.first_difference(one, other) == at
    assert WORDS.first_difference(other, one) == at


@pytest.mark.models
def test_positions_are_tokens_where_the_tokenizer_is_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tokenizers import Tokenizer

    there = draft(weights="pretrained", options={"model": str(MINI)})
    # Behind a server, with random weights, not downloaded: the next one is asked.
    without = [
        None,
        draft(options={"model": "gpt-4o"}),
        draft(weights="tiny", options={"model": str(MINI)}),
        draft(weights="pretrained", options={"model": "nobody/nothing"}),
    ]
    splitter = splitter_of([*without, there])
    assert splitter.unit == "tokens"
    one, other = "a red circle left of a square", "a red circle left of a triangle"
    tokenizer = Tokenizer.from_file(str(MINI / "tokenizer.json"))
    ids = [tokenizer.encode(t, add_special_tokens=False).ids for t in (one, other)]
    at = splitter.first_difference(one, other)
    assert at is not None
    assert ids[0][:at] == ids[1][:at]
    assert ids[0][at] != ids[1][at]
    assert splitter_of(without) == WORDS
    monkeypatch.setattr(diff, "is_installed", lambda name: False)
    assert splitter_of([there]) == WORDS


def test_pixels_are_compared_alike_in_both_directions() -> None:
    one = np.zeros((20, 20, 3), np.uint8)
    other = one.copy()
    other[0, 0] = (255, 0, 3)
    error = (255**2 + 3**2) / 1200
    for pair in ((one, other), (other, one)):
        found = image_difference(*map(png, pair)) or {}
        assert found["mean_difference"] == pytest.approx(258 / 1200)
        assert found["largest_difference"] == 255
        assert found["psnr"] == pytest.approx(10 * np.log10(255**2 / error))
    bitmap = Image.of(saved(Pillow.fromarray(other), "BMP"))
    assert image_difference(png(other), bitmap) is None, "the same pixels in another file"
    # What cannot be measured has no number.
    other_size = image_difference(png(noise(1)), png(noise(1, 32)))
    assert other_size == {"same_size": False, **dict.fromkeys(MEASURES)}
    small = image_difference(png(noise(1, 8)), png(noise(2, 8))) or {}
    assert (small["ssim"], small["psnr"] is None) == (None, False)
    with pytest.raises(ImageError):
        image_difference(png(noise(1)), Image.of(b"GIF89a"))


@pytest.mark.models
def test_structure_is_that_of_torchmetrics_and_lpips_needs_weights_and_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch
    from torchmetrics.functional import image as theirs
    from torchmetrics.image import lpip

    class Network:
        """Takes images in [0, 1], as told by `normalize`."""

        def __init__(self, net_type: str, normalize: bool) -> None:
            assert (net_type, normalize) == ("alex", True)

        def __call__(self, *images: torch.Tensor) -> torch.Tensor:
            assert [i.shape for i in images] == [(1, 3, 192, 192)] * 2
            return (images[0] - images[1]).abs().max()

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(lpip, "LearnedPerceptualImagePatchSimilarity", Network)
    place = tmp_path / "hub" / "checkpoints" / "alexnet-owt-7be5be79.pth"
    one = noise(1, 192)
    mixed = (0.7 * one + 0.3 * noise(2, 192)).astype(np.uint8)
    inputs = [torch.tensor(p.transpose(2, 0, 1)[None]) / 255 for p in (one, mixed)]
    found = image_difference(png(one), png(mixed)) or {}
    ssim = theirs.structural_similarity_index_measure(*inputs, data_range=1.0)
    assert found["ssim"] == pytest.approx(float(ssim), abs=5e-3)
    assert found["lpips"] is None
    assert str(place) in diff.lpips()[1]
    place.parent.mkdir(parents=True)
    place.touch()
    found = image_difference(png(one), png(mixed)) or {}
    small = image_difference(png(noise(1, 32)), png(noise(2, 32))) or {}
    assert found["lpips"] == pytest.approx(float((inputs[0] - inputs[1]).abs().max()))
    assert small["lpips"] is None
    monkeypatch.setattr(diff, "is_installed", lambda name: False)
    assert diff.lpips()[0] is None
    assert "torch" in diff.lpips()[1]


@pytest.mark.models
@pytest.mark.parametrize(
    "places",
    [{}, {"XDG_CACHE_HOME": "/a"}, {"TORCH_HOME": "~/b"}, {"TORCH_HOME": "", "HOME": "/c"}],
)
def test_weights_are_looked_for_where_torch_keeps_them(
    monkeypatch: pytest.MonkeyPatch, places: dict[str, str]
) -> None:
    from torch import hub
    from torchvision.models import AlexNet_Weights

    for name in ("TORCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in places.items():
        monkeypatch.setenv(name, value)
    place = Path(hub.get_dir()) / "checkpoints" / AlexNet_Weights.DEFAULT.url.split("/")[-1]
    assert diff.lpips()[1].endswith(f" {place}")


def test_every_pair_is_counted_once() -> None:
    white, grey = (np.full((16, 16, 3), n, np.uint8) for n in (255, 250))
    text, other = Text("a red cat"), Text("a red dog")
    answers = {
        "same": (Document((text, png(white))), Document((text, png(white)))),
        "text": (Document((text,)), Document((other,))),
        "image": (Document((png(white),)), Document((png(grey),))),
        "more": (Document((text, png(white))), Document((text,))),
        "order": (Document((text, png(white))), Document((png(white), text))),
    }
    outcomes = {
        **{name: (Result(a), Result(b)) for name, (a, b) in answers.items()},
        "lost": (Result(answers["text"][0]), Failure("died")),
        "made": (Skip("several images"), Result(answers["text"][0])),
        "neither": (Failure("died"), Failure("died")),
        "waits": (Pending([], []), Failure("died")),
    }
    pairs = [answer_pair(name, 1, both, WORDS) for name, both in outcomes.items()]
    about = json.loads(json.dumps(answer_differences(("a", "b"), "words", pairs)))
    counts = {
        "compared": 5,
        "equal": 1,
        "other_order": 2,
        "only_first": 1,
        "only_second": 1,
    }
    assert counts.items() <= about.items()
    assert {"n": 4, "equal": 3}.items() <= about["texts"].items()
    assert about["texts"]["first_difference"]["median"] == 2
    assert {"n": 3, "identical": 2, "unpaired": 1}.items() <= about["images"].items()
    assert about["images"]["mean_difference"]["mean"] == 5
    differing = [pair["query"] for pair in about["differing"]]
    assert differing == ["text", "image", "more", "order", "lost", "made", "waits"]


Scores = dict[str, dict[int, float | None]]
"""By system and the number of a query."""


def finished(
    root: str, scores: Scores, scorer: str = "measure", **asked: str
) -> FinishedRun:
    numbers = sorted({number for values in scores.values() for number in values})
    samples = {n: sample(n, asked.get(f"q{n}", "")) for n in numbers}
    document = Document((Text("x"),))
    given = {s.id: document for s in samples.values()}
    parts: dict[str, Any] = {
        "systems": tuple(GivenAnswers(name=n, answers=given) for n in scores),
        "scorers": (Measuring(name=scorer),),
    }

    def outcome(value: float | None) -> Any:
        return Failure("died") if value is None else Result(Score(value, {}))

    made = [
        Evaluation(name, samples[n], 0, Result(document), {scorer: outcome(value)})
        for name, values in scores.items()
        for n, value in values.items()
    ]
    results = stored_results(made, categories={}, fields=(), weights="tiny", **parts)
    return FinishedRun(Path(root), results)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, FinishedRun]:
    """Runs by the name of their directory, without any directory."""
    known: dict[str, FinishedRun] = {}
    monkeypatch.setattr(FinishedRun, "at", lambda root: known[root.name])
    return known


def compared(
    runs: dict[str, FinishedRun], first: Scores, second: Scores, *systems: str | None
) -> dict[str, Any]:
    runs.update(a=finished("a", first), b=finished("b", second))
    return run_difference(Path("a"), Path("b"), *systems)[0]


def test_means_and_intervals_are_over_the_pairs_alone(runs: dict[str, FinishedRun]) -> None:
    rng = np.random.default_rng(0)
    base, lift = rng.normal(0.5, 0.1, 60), rng.normal(0.02, 0.03, 60)
    first = {i: float(base[i]) for i in range(50)} | {50: None}
    second = {i: float(base[i] + lift[i]) for i in range(10, 60)}
    (row,) = compared(runs, {"gill": first}, {"gill": second})["differences"]
    gap = lift[10:50]
    assert (row["n"], row["difference"]["n"]) == (40, 40)
    assert row["first"]["mean"] == pytest.approx(base[10:50].mean(), abs=1e-6)
    assert row["second"]["mean"] == pytest.approx((base + lift)[10:50].mean(), abs=1e-6)
    # The spread of the queries themselves cancels: the interval is that of the pairs.
    assert row["difference"]["mean"] == pytest.approx(gap.mean(), abs=1e-6)
    expected = mean(gap, (-1.0, 1.0)).ci95
    assert row["difference"]["ci95"] == pytest.approx(expected, abs=1e-6)
    assert (len(row["only_first"]), len(row["only_second"])) == (10, 10)


def test_systems_are_paired_by_name_or_as_asked(runs: dict[str, FinishedRun]) -> None:
    first: Scores = {"gill": {0: 1.0}, "emu2": {0: 2.0}}
    second: Scores = {"gill": {0: 5.0}, "anole": {0: 9.0}}
    found = compared(runs, first, second)
    assert [row["systems"] for row in found["differences"]] == [["gill", "gill"]]
    assert found["differences"][0]["difference"]["mean"] == 4.0, "the second's less"
    assert found["only_first"]["systems"] == ["emu2"]
    assert found["only_second"]["systems"] == ["anole"]
    (row,) = compared(runs, first, second, "emu2", "anole")["differences"]
    assert (row["systems"], row["difference"]["mean"]) == (["emu2", "anole"], 7.0)
    for systems, said in (
        (("emu3",), "'emu2'"),
        (("emu2",), "system of b 'emu2'"),
        ((None, "anole"), "--system"),
    ):
        with pytest.raises(UsageError, match=said):
            compared(runs, first, second, *systems)
    with pytest.raises(UsageError, match=r"--system A --against B"):
        compared(runs, {"gill": {0: 1.0}}, {"anole": {0: 9.0}})


def test_answers_are_compared_without_a_common_scorer(runs: dict[str, FinishedRun]) -> None:
    runs["a"] = finished("a", {"gill": {0: 1.0}})
    runs["c"] = finished("c", {"gill": {0: 2.0}}, scorer="other")
    content, (texts,) = run_difference(Path("a"), Path("c"))
    assert content["differences"] == []
    assert [row["equal"] for row in content["answers"]] == [1]
    assert texts.title == "Texts"


def test_systems_without_any_score_have_no_row(runs: dict[str, FinishedRun]) -> None:
    scores: Scores = {"gill": {0: 1.0}, "anole": {0: None}}
    runs.update(a=finished("a", scores), b=finished("b", scores))
    content, (table, _) = run_difference(Path("a"), Path("b"))
    assert [row[0].text for row in table.rows] == ["gill"]
    assert len(content["differences"]) == 2
    assert [line for line in remarks(content) if "anole" in line and "measure" in line]


def test_only_queries_that_ask_the_same_are_compared(runs: dict[str, FinishedRun]) -> None:
    scores: Scores = {"gill": {0: 1.0, 1: 2.0, 2: 3.0}}
    runs.update(a=finished("a", scores), b=finished("b", scores, q1="with other words"))
    content, _ = run_difference(Path("a"), Path("b"))
    assert content["differences"][0]["n"] == 2
    assert content["changed_queries"] == [sample(1).id]
    assert content["answers"][0]["compared"] == 2
    content = compared(runs, {"gill": {0: 1.0}}, {"gill": {1: 9.0}})
    assert content["differences"][0]["difference"]["mean"] is None
    assert content["only_first"]["queries"] == [sample(0).id]
    assert content["only_second"]["queries"] == [sample(1).id]
    assert content["answers"] == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"placement": Placement(batch_size=3)}, []),
        (
            {"settings": {"tau": 2}},
            ["measure: tau None in the first run, 2 in the second"],
        ),
        ({"weights": "tiny"}, ["measure: other weights"]),
        ({"version": 9}, ["measure: version 1 in the first run, 9 in the second"]),
    ],
)
def test_scorers_that_judge_differently_are_named(
    changes: dict[str, Any], told: list[str]
) -> None:
    one = Measuring()
    other = Measuring(stage=replace(one.stage, **changes))
    assert scorer_changes(one, other) == told


def test_the_command_shows_a_table_and_writes_json(
    runs: dict[str, FinishedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    runs["a"] = finished("a", {"gill": {n: float(n) for n in range(12)}})
    runs["b"] = finished("b", {"gill": {n: n + 1.5 for n in range(1, 14)}})
    out = tmp_path / "diff.json"
    words = ["diff", "a", "b", "--out", str(out)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for shown in ("+1.50", "1 first, 2 second", "only in the second run"):
        assert shown in done.output
    written = json.loads(out.read_text())
    (row,) = written["differences"]
    assert (row["n"], row["difference"]["mean"]) == (11, 1.5)
    assert row["only_first"] == [sample(0).id]
    assert written["only_second"]["queries"] == [sample(12).id, sample(13).id]


def test_two_runs_that_differ_in_a_setting(tmp_path: Path) -> None:
    """Stored answers, read from their directories: by two models, twice each."""
    square = "comparing_helpers:Square"
    asked = {"data": "sample", "weights": "tiny", "limit": 3, "repeats": 2, "scorers": []}
    asked["systems"] = [f"comparing_helpers:Terse+{square}"]
    for name, shade in (("a", 100), ("b", 101)):
        fill(tmp_path / name, **asked, models={square: {"shade": shade}})
    roots, shown = (tmp_path / "a", tmp_path / "b"), list[tuple[int, int]]()
    content, (texts, images) = run_difference(
        *roots, on_progress=lambda *done: shown.append(done)
    )
    assert shown == [(i, 6) for i in range(1, 7)]
    limited, _ = run_difference(*roots, answers=2)
    (row,), (few,) = content["answers"], limited["answers"]
    assert few["compared"] == 4
    assert row["compared"] == 6
    assert row["texts"]["equal"] == row["texts"]["n"] == 6
    assert row["images"]["n"] > 0
    assert row["images"]["identical"] == 0
    assert row["images"]["largest_difference"]["max"] == 1
    assert {pair["repeat"] for pair in row["differing"]} == {1, 2}
    equal = str(row["equal"])
    assert [cell.text for cell in texts.rows[0]][1:5] == ["6", equal, "6", "6"]
    drawn = f"{row['images']['n']:,}"
    assert [cell.text for cell in images.rows[0]][1:5] == [drawn, "0", "0", "0"]
    with pytest.raises(UsageError, match="run directory"):
        run_difference(tmp_path / "a", tmp_path)
