"""`plait agreement SCORES HUMAN`: a run or a file beside people or known truth."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_helpers import fill
from cli_helpers import plait

from benchmarks.studies.agreement import agreement_report
from benchmarks.studies.agreement.ratings import read_scores
from generators.errors import UsageError

SCORER, UNSCALED = "annotations_helpers:Pictures", "stages:Constant"
"""Both count the pictures of an answer; the second on no scale of numbers."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the ground truth, scored without a model."""
    root = tmp_path_factory.mktemp("agreement") / "run"
    asked = {"data": "sample", "systems": ["gt"], "weights": "tiny", "limit": 9}
    fill(root, **asked, scorers=[SCORER, UNSCALED])
    return root


@pytest.fixture(scope="module")
def rated(root: Path) -> Mapping[str, float]:
    """One more than the scorer's, by sample; for the first, two more."""
    found = read_scores(root, scale="0-6").values[SCORER]
    return {
        unit.id: float(v) + (1 if n else 2) for n, (unit, v) in enumerate(found.items())
    }


def annotated(path: Path, rated: Mapping[str, float]) -> Path:
    rows = [[i, "gt", "ann", value] for i, value in rated.items()]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "system", "annotator", "score"], *rows])
    return path


def agreement(*words: str | Path, out: Path) -> dict[str, Any]:
    done = plait("agreement", *map(str, words), "--out", str(out))
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def whole(content: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Coefficients over all categories, by judge."""
    return {
        judge["judge"]: {n: e["value"] for n, e in group["coefficients"].items()}
        for judge in content["judges"]
        for group in judge["groups"]
        if not group["category"]
    }


def test_a_run_or_a_file_beside_annotations(
    root: Path, rated: Mapping[str, float], tmp_path: Path
) -> None:
    """The mean absolute error by hand, Pearson's r by numpy; every answer accounted for."""
    human = annotated(tmp_path / "human.csv", {**rated, "SA-nowhere": 3})
    content = agreement(root, human, out=tmp_path / "out.json")
    counts = content["judges"][0]["counts"]
    assert (counts["annotated"], counts["matched"]) == (10, 9)
    assert counts["unmatched"] == {"unknown id": 1}
    found = whole(content)
    assert found[SCORER]["mae"] == pytest.approx(10 / 9, abs=1e-6)
    scores = {u.id: v for u, v in read_scores(root, scale="0-6").values[SCORER].items()}
    pair = [list(scores.values()), list(rated.values())]
    assert found[SCORER]["pearson"] == pytest.approx(np.corrcoef(pair)[0, 1], abs=1e-6)
    assert found[UNSCALED] == found[SCORER] | dict.fromkeys(("mae", "mse", "kappa"))
    rows = [{"id": i, "system": "gt", "score": v} for i, v in scores.items()]
    (tmp_path / "scores.json").write_text(json.dumps(rows))
    content = agreement(tmp_path / "scores.json", human, out=tmp_path / "out.json")
    assert whole(content)["scores"] == found[SCORER]


def test_options_reach_the_comparison(tmp_path: Path) -> None:
    """Percent on people's scale of 1 to 5, mapped and as it is; one scorer of two."""
    people = annotated(tmp_path / "h.csv", {"SA-1": 1, "SA-2": 3, "SA-3": 5})
    rows = [
        {"id": f"SA-{i}", "system": "gt", "score": v, "scorer": name, "scale": "0-100"}
        for name, values in {"a": [0, 50, 75], "b": [0, 0, 0]}.items()
        for i, v in enumerate(values, 1)
    ]
    (tmp_path / "s.json").write_text(json.dumps(rows))
    words = [tmp_path / "s.json", people, "--scale", "1-5", "--scorer", "a"]
    for more, wanted in (([], 1 / 3), (["--no-rescale"], (1 + 47 + 70) / 3)):
        found = whole(agreement(*words, *more, out=tmp_path / "o.json"))
        assert found.keys() == {"a"}
        assert found["a"]["mae"] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{run}", "{tmp}/none.csv"], ["none.csv", "No such file"]),
        (["{tmp}", "{tmp}/human.csv"], ["is not a run directory"]),
        (["{run}", "{tmp}/human.csv"], ["1 annotated", "none is among the 9", "SA-404"]),
        (["{run}", "{tmp}/human.csv", "--scorer", "bleu"], ["unknown scorer 'bleu'"]),
        (["{run}", "{tmp}/human.csv", "--scale", "5-1"], ["5-1"]),
        (["{run}", "{tmp}/human.csv", "--scale", "0-1"], ["line 2", "0 to 1"]),
    ],
)
def test_wrong_use_is_explained(
    root: Path, tmp_path: Path, words: Sequence[str], said: Sequence[str]
) -> None:
    annotated(tmp_path / "human.csv", {"SA-404": 5})
    done = plait("agreement", *(word.format(run=root, tmp=tmp_path) for word in words))
    assert done.returncode == 2, done.stdout
    for part in said:
        assert part in done.stderr


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which the truth is known."""
    root = tmp_path_factory.mktemp("truth") / "run"
    systems = ["gt", "gt:shuffled-images"]
    scorers = ["truth:match", "truth:answer", "bleu"]
    asked = {"data": "miniature:12", "weights": "tiny"}
    fill(root, **asked, systems=systems, scorers=scorers)
    return root


def test_known_truth_in_the_place_of_people(truth: Path, tmp_path: Path) -> None:
    content = agreement(truth, "truth:match", out=tmp_path / "out.json")
    assert (content["truth"], content["human_scale"]) == ("truth:match", "0-100")
    assert list(whole(content)) == ["bleu", "truth:answer"]
    assert (content["annotated"], content["blank"]) == (16, 8)
    both = read_scores(truth, scale="0-6").values
    errors = [
        abs(float(value) - float(both["truth:answer"][unit]))
        for unit, value in both["truth:match"].items()
    ]
    assert len(errors) == 16
    assert whole(content)["truth:answer"]["mae"] == pytest.approx(sum(errors) / 16)


@pytest.mark.parametrize(
    ("name", "scorers", "reason"),
    [
        ("truth:image", (), "no scores of 'truth:image'.*--scorer truth:image"),
        ("truth:match", ("truth:match",), "no other scorer"),
        ("truth:match", ("blue",), "unknown scorer 'blue'"),
    ],
)
def test_truth_that_is_not_there_is_refused(
    truth: Path, name: str, scorers: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        agreement_report(truth, Path(name), scorers=scorers)
