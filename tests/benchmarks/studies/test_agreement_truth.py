"""`plait agreement RUN truth:NAME`: known truth in the place of people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import plait

from benchmarks.studies.agreement import agreement_report
from benchmarks.studies.agreement.ratings import read_scores
from generators.errors import UsageError

SYSTEMS = ("gt", "gt:shuffled-images")
SCORERS = ("truth:match", "truth:answer", "bleu")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("truth") / "run"
    words = [w for s in SYSTEMS for w in ("--system", s)]
    words += [w for s in SCORERS for w in ("--scorer", s)]
    done = plait(
        "run", "--data", "miniature:12", *words, "--weights", "tiny", "--out", str(root)
    )
    assert done.returncode == 0, done.stderr
    return root


def test_truth_is_named_as_what_it_is(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = plait("agreement", str(root), "truth:match", "--out", str(out))
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text())
    assert (content["truth"], content["human_scale"]) == ("truth:match", "0-100")
    assert [judge["judge"] for judge in content["judges"]] == ["bleu", "truth:answer"]
    printed = " ".join(done.stdout.split())
    assert "bleu: agreement with truth:match" in printed
    assert "16 of 16 answers with truth:match, 8 more have none" in printed
    for word in ("people", "human", "annotated"):
        assert word not in printed


def test_the_numbers_are_those_of_the_two_scorers(root: Path) -> None:
    content = agreement_report(root, Path("truth:match"), scorers=["truth:answer"]).content
    (judge,) = content["judges"]
    both = read_scores(root, scale="0-6").values
    errors = [
        abs(float(value) - float(both["truth:answer"][unit]))
        for unit, value in both["truth:match"].items()
    ]
    whole = next(group for group in judge["groups"] if not group["category"])
    assert whole["pairs"] == len(errors) == 16
    assert whole["coefficients"]["mae"]["value"] == pytest.approx(sum(errors) / 16)


@pytest.mark.parametrize(
    ("name", "scorers", "reason"),
    [
        ("truth:image", (), "no scores of 'truth:image'.*--scorer truth:image"),
        ("truth:match", ("truth:match",), "no other scorer"),
        ("truth:match", ("blue",), "unknown scorer 'blue'"),
    ],
)
def test_what_is_not_there_is_named(
    root: Path, name: str, scorers: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        agreement_report(root, Path(name), scorers=scorers)
