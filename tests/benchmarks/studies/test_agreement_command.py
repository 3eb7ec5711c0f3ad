"""`plait agreement SCORES HUMAN` as a user meets it: on a run, on files, on mistakes."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import plait

from benchmarks.studies.agreement.ratings import read_scores

SCORER, UNSCALED = "annotations_helpers:Pictures", "stages:Constant"
"""Both count the pictures of an answer; the second on no scale of numbers."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the ground truth, scored without a model."""
    root = tmp_path_factory.mktemp("agreement") / "run"
    words = ["--system", "gt", "--scorer", SCORER, "--scorer", UNSCALED]
    done = plait("run", *words, "--weights", "tiny", "--limit", "9", "--out", str(root))
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="module")
def counted(root: Path) -> Mapping[str, float]:
    """The scores of the run, by sample."""
    found = read_scores(root, scale="0-6").values[SCORER]
    return {unit.id: float(value) for unit, value in found.items()}


def annotated(path: Path, rated: Mapping[str, float], system: str = "gt") -> Path:
    rows = [[i, system, "ann", value] for i, value in rated.items()]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "system", "annotator", "score"], *rows])
    return path


def ratings(counted: Mapping[str, float]) -> dict[str, float]:
    """One more than the scorer says, but for the first, on which people differ by two."""
    return {i: value + (1 if n else 2) for n, (i, value) in enumerate(counted.items())}


def whole(path: Path) -> dict[str, Mapping[str, Any]]:
    """Over all categories, by judge."""
    judges = json.loads(path.read_text())["judges"]
    found = {j["judge"]: [g for g in j["groups"] if not g["category"]] for j in judges}
    return {judge: groups[0] for judge, groups in found.items()}


def values(group: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: e["value"] for name, e in group["coefficients"].items()}


def test_a_run_is_set_beside_annotations(
    root: Path, counted: Mapping[str, float], tmp_path: Path
) -> None:
    """The mean absolute error by hand, Pearson's r by numpy; every answer accounted for."""
    rated = ratings(counted)
    out = tmp_path / "agreement.json"
    human = annotated(tmp_path / "human.csv", rated | {"SA-nowhere": 3})
    done = plait("agreement", str(root), str(human), "--out", str(out))
    assert done.returncode == 0, done.stderr
    groups = whole(out)
    assert [(g["pairs"], g["queries"]) for g in groups.values()] == [(9, 9)] * 2
    found = values(groups[SCORER])
    assert found["mae"] == pytest.approx(10 / 9, abs=1e-6)
    pair = np.array([list(counted.values()), list(rated.values())])
    pearson = np.corrcoef(pair)[0, 1]
    assert found["pearson"] == pytest.approx(pearson, abs=1e-6)
    assert values(groups[UNSCALED]) == found | dict.fromkeys(("mae", "mse", "kappa"))
    said = " ".join(done.stdout.split())
    for part in (
        f"{SCORER}: agreement with people",
        "9 answers to 9 queries",
        "9 of 10 annotated answers, 1 unknown id, 0 more not annotated",
        "unmatched: SA-nowhere of gt",
        "1.111",
        f"{pearson:.3f}",
        "judge and people use different scales",
        f"written to {out}",
    ):
        assert part in said


def test_a_file_of_scores_serves_as_well(
    root: Path, counted: Mapping[str, float], tmp_path: Path
) -> None:
    human = annotated(tmp_path / "human.csv", ratings(counted))
    rows = [{"id": i, "system": "gt", "score": v} for i, v in counted.items()]
    (tmp_path / "scores.json").write_text(json.dumps(rows))
    out, found = tmp_path / "out.json", []
    for scores, name in ((root, SCORER), (tmp_path / "scores.json", "scores")):
        done = plait("agreement", str(scores), str(human), "--out", str(out))
        assert done.returncode == 0, done.stderr
        found.append(whole(out)[name])
    assert found[0] == found[1]


def test_the_authors_tool_s_keys_are_told_apart_by_the_scores(tmp_path: Path) -> None:
    """`a_1_m` is answer `a_1` of `m`, where the scores know of it, and not `a` of `1_m`."""
    scores = [{"id": f"a_{i}", "system": "m", "score": i} for i in range(3)]
    people = {f"a_{i}_m": {"criteria": [], "score": i + 1} for i in range(3)}
    (tmp_path / "s.json").write_text(json.dumps(scores))
    (tmp_path / "h.json").write_text(json.dumps(people))
    done = plait("agreement", str(tmp_path / "s.json"), str(tmp_path / "h.json"))
    assert done.returncode == 0, done.stderr
    assert "3 of 3 annotated answers" in done.stdout


def test_options_reach_the_comparison(tmp_path: Path) -> None:
    """Percent on people's scale of 1 to 5, mapped and as it is; one scorer of two."""
    people = annotated(tmp_path / "h.csv", {"SA-1": 1, "SA-2": 3, "SA-3": 5})
    rows = [
        {"id": f"SA-{i}", "system": "gt", "score": v, "scorer": name, "scale": "0-100"}
        for name, values in {"a": [0, 50, 75], "b": [0, 0, 0]}.items()
        for i, v in enumerate(values, 1)
    ]
    (tmp_path / "s.json").write_text(json.dumps(rows))
    words = ["agreement", str(tmp_path / "s.json"), str(people), "--scale", "1-5"]
    words += ["--scorer", "a", "--out", str(tmp_path / "o.json")]

    def mae(*more: str) -> float:
        done = plait(*words, *more)
        assert done.returncode == 0, done.stderr
        ((judge, group),) = whole(tmp_path / "o.json").items()
        assert judge == "a"
        return float(values(group)["mae"] or 0)

    assert mae() == pytest.approx(1 / 3, abs=1e-6)
    assert mae("--no-rescale") == pytest.approx((1 + 47 + 70) / 3, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{run}", "{tmp}/none.csv"], ["none.csv", "No such file"]),
        (["{tmp}/none.csv", "{tmp}/human.csv"], ["none.csv", "No such file"]),
        (["{tmp}", "{tmp}/human.csv"], ["is not a run directory"]),
        (["{run}", "{tmp}/other.csv"], ["1 annotated", "none is among the 9", "SA-404"]),
        (["{run}", "{tmp}/human.csv", "--scorer", "bleu"], ["unknown scorer 'bleu'"]),
        (["{run}", "{tmp}/human.csv", "--scale", "5-1"], ["5-1"]),
        (["{run}", "{tmp}/human.csv", "--scale", "0-1"], ["line 2", "0 to 1"]),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    root: Path, tmp_path: Path, words: Sequence[str], said: Sequence[str]
) -> None:
    annotated(tmp_path / "human.csv", {"SA-404": 5})
    annotated(tmp_path / "other.csv", {"SA-404": 5})
    told = [word.format(run=root, tmp=tmp_path) for word in words]
    done = plait("agreement", *told)
    assert done.returncode == 2, done.stdout
    for part in said:
        assert part in done.stderr
    assert "Traceback" not in done.stderr
