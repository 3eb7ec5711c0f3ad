"""Ways with planted differences: every figure is the one that was planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fidelity.command import main, write
from benchmarks.fidelity.config import load_config
from benchmarks.fidelity.measure import NoReference, measured
from benchmarks.fidelity.page import page_of
from benchmarks.fidelity.report import FidelityReport, measures_of
from benchmarks.fidelity.tables import tables_of
from generators.errors import UsageError

WRITER, PAINTER = "fidelity_helpers:Planted", "fidelity_helpers:PlantedPainter"
BOTH = "fidelity_helpers:Illustrated"
REFERENCE: dict[str, Any] = {"name": "reference"}


def report(system: str, *ways: dict[str, Any], **options: Any) -> FidelityReport:
    given = {"system": system, "ways": (REFERENCE, *ways), "weights": "tiny"}
    given |= {"data": "fidelity_helpers:numbers", "clip": "off", **options}
    return measured(load_config(None, given))


def figures(made: FidelityReport, way: int = 1) -> dict[str, float | None]:
    return measures_of(made.ways, made.scores)[made.ways[way].label]


def test_a_planted_difference_of_texts_is_found_where_it_is() -> None:
    made = report(WRITER, {"name": "x", "changed": [1, 5], "at": 4}, {"name": "same"})
    one, same = figures(made), figures(made, 2)
    assert one["text.equal"] == 6 / 8
    assert one["text.first_difference"] == 4
    # `the answer to query N` has 21 characters.
    assert one["text.prefix"] == pytest.approx((6 + 2 * 4 / 21) / 8)
    assert one["repeat.text.equal"] == 1
    assert same["text.equal"] == 1
    assert same["text.first_difference"] is None
    assert one["picture.identical"] is None
    assert not made.failed


def test_planted_pixels_are_counted() -> None:
    made = report(PAINTER, {"name": "spots", "spots": 4, "by": 10})
    one = figures(made)
    assert one["picture.identical"] == 0
    assert one["picture.equal_pixels"] == 252 / 256
    assert one["picture.mean_difference"] == pytest.approx(4 * 10 / (256 * 3))
    assert one["picture.largest_difference"] == 10
    assert 0.5 < (one["picture.ssim"] or 0) < 1
    assert one["repeat.picture.identical"] == 1
    assert one["text.equal"] is None


def test_pictures_of_another_size_have_no_pixels_in_common() -> None:
    made = report(PAINTER, {"name": "larger", "side": 20})
    one = figures(made)
    assert one["picture.same_size"] == 0
    assert one["picture.identical"] == 0
    assert one["picture.equal_pixels"] is None
    assert one["picture.ssim"] is None
    assert "larger: 8 pictures of another size" in tables_of(made)[1].notes


def test_a_way_that_does_not_repeat_itself_is_told_apart() -> None:
    made = report(WRITER, {"name": "shaky", "unsteady": True})
    one = figures(made)
    assert one["repeat.text.equal"] == 0
    assert figures(made, 0)["repeat.text.equal"] == 1
    (remark,) = [r for r in made.remarks if "repeat itself" in r]
    assert remark.startswith("shaky does not repeat itself: 8 of 8 answers differ")
    painted = report(PAINTER, {"name": "shaky", "unsteady": True})
    assert figures(painted)["repeat.picture.identical"] == 0
    assert figures(painted)["repeat.picture.largest_difference"] == 8


def test_a_way_that_dies_in_its_second_run_is_not_called_unsteady() -> None:
    made = report(WRITER, {"name": "dies", "dying": 11})
    assert not any("repeat itself" in remark for remark in made.remarks)
    assert "dies: 5 answers failed, 5 of them: the server is gone" in made.remarks
    assert figures(made)["repeat.text.equal"] == 1
    assert figures(made)["repeat.outcome.equal"] == 3 / 8
    assert [cell.text for cell in tables_of(made)[0].rows[1][4:6]] == ["11", "5"]
    assert made.failed


def test_whole_answers_are_compared_in_both_parts() -> None:
    made = report(BOTH, {"name": "other", "spots": 1, "changed": [0], "alone": [2, 3]})
    one = figures(made)
    assert one["text.equal"] == 7 / 8
    assert one["document.same_shape"] == 6 / 8
    assert one["picture.equal_pixels"] == 255 / 256
    assert made.ways[1].unpaired == 2
    assert "other: 2 pictures in one answer only" in tables_of(made)[2].notes


def test_a_failure_is_counted_and_never_a_figure() -> None:
    made = report(WRITER, {"name": "frail", "failing": [0, 1, 2], "changed": [3]})
    one = figures(made)
    assert one["text.equal"] == 4 / 5
    assert one["outcome.equal"] == 5 / 8
    assert made.ways[1].lost == 3
    assert made.ways[1].pairs[0].lost == "this way failed: refused"
    assert made.failed


def test_a_batch_that_raises_becomes_failures_of_that_batch() -> None:
    made = report(WRITER, {"name": "raises", "raising": [1], "batch_size": 4})
    assert made.ways[1].lost == 4
    assert "RuntimeError: cannot answer 1" in made.ways[1].pairs[0].lost


def test_a_way_that_cannot_be_loaded_is_named_and_the_others_measured() -> None:
    made = report(WRITER, {"name": "gone", "broken": True}, {"name": "same"})
    assert "gone could not be run: FileNotFoundError: no weights" in made.remarks
    assert figures(made, 1).get("text.equal") is None
    assert figures(made, 2)["text.equal"] == 1
    assert made.failed
    with pytest.raises(NoReference, match=r"reference .broken. cannot be run.*no weights"):
        measured(
            load_config(
                None,
                {
                    "system": WRITER,
                    "ways": ({"name": "broken", "broken": True},),
                    "data": "fidelity_helpers:numbers",
                },
            )
        )


def test_scores_are_paired_by_query() -> None:
    made = report(
        WRITER,
        {"name": "x", "changed": [0, 1], "failing": [7]},
        {"name": "gone", "broken": True},
        scorers=("fidelity_helpers:CountX",),
    )
    reference, other, gone = made.scores
    assert reference.difference is None
    assert (reference.mean.value, reference.mean.n) == (0, 8)
    assert other.mean.value == pytest.approx(2 / 7)
    assert other.difference is not None
    assert (other.difference.value, other.difference.n) == (pytest.approx(2 / 7), 7)
    assert other.without == {"refused": 1}
    assert other.repeat is not None
    assert other.repeat.value == 0
    assert gone.mean.value is None
    assert gone.without == {"the way could not be run": 8}


def test_gates_are_met_or_not_and_never_met_without_a_value() -> None:
    gates = (
        "text.equal>=0.75",
        "x: text.equal > 0.75",
        "picture.identical>=0",
        "repeat.text.equal==1",
        "score.fidelity_helpers:CountX.difference<=0.25",
    )
    made = report(
        WRITER,
        {"name": "x", "changed": [0, 1]},
        gates=gates,
        scorers=("fidelity_helpers:CountX",),
    )
    verdicts = [(g.gate.text, g.way, g.met) for g in made.gates]
    assert verdicts == [
        (gates[0], "x", True),
        (gates[1], "x", False),
        (gates[2], "x", False),
        (gates[3], "reference", True),
        (gates[3], "x", True),
        (gates[4], "x", True),
    ]
    assert made.gates[2].reason == "nothing to measure"
    assert made.failed


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("text.equal", r"not of the form \[LABEL: \]MEASURE>=NUMBER"),
        ("text.equal>=all", "not of the form"),
        ("text.eqal>=1", "did you mean 'text.equal'"),
        ("y: text.equal>=1", "unknown way in gate.*Valid: reference, x"),
    ],
)
def test_gates_that_are_not_valid_are_refused(gate: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        report(WRITER, {"name": "x"}, gates=(gate,))


def test_the_ways_get_the_same_prompts_and_seeds() -> None:
    """A painter's grey is the record's seed: other seeds would change every pixel."""
    made = report(PAINTER, {"name": "again", "batch_size": 1}, seed=5)
    assert figures(made)["picture.identical"] == 1
    other = report(PAINTER, {"name": "again"}, seed=6)
    greys = {
        outcome.value.images[0].digest
        for made_once in (made, other)
        for outcome in made_once.ways[0].answers.first
    }
    assert len(greys) > 8


def test_prompts_can_be_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("a cat\n\na dog\n")
    made = report(PAINTER, {"name": "again"}, prompts=file)
    assert [s.id for s in made.samples] == ["line 1", "line 3"]


def test_the_command_writes_all_forms_and_says_so_in_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    words = [
        WRITER,
        *(
            "--weights",
            "tiny",
            "--data",
            "fidelity_helpers:numbers",
            "--out",
            str(tmp_path),
        ),
        *("--way", "plain", "--way", "other: changed=[1,5] at=4", "--repeats", "1"),
    ]
    assert main([*words, "--gate", "text.equal>=0.7"], Console(width=160)) == 0
    made = json.loads((tmp_path / "fidelity.json").read_text())
    assert made["reference"] == "plain"
    assert made["ways"][1]["figures"]["text.equal"]["value"] == 0.75
    assert made["ways"][1]["stages"][0]["settings"] == {"changed": [1, 5], "at": 4}
    assert made["ways"][1]["repeat_figures"] is None
    assert made["about"]["command"][:4] == ["plait", "bench", "fidelity", WRITER]
    assert made["gates"] == [
        {
            "gate": "text.equal>=0.7",
            "way": "other",
            "value": 0.75,
            "met": True,
            "reason": "",
        }
    ]
    assert "| other | 75.0% 6/8 | 4 [4, 4] n=2 |" in (tmp_path / "fidelity.md").read_text()
    assert r"75.0\%" in (tmp_path / "fidelity.tex").read_text()
    assert "75.0% 6/8" in (tmp_path / "fidelity.csv").read_text()
    assert "<mark>" in (tmp_path / "fidelity.html").read_text()
    assert "75.0%" in capsys.readouterr().out
    assert main([*words, "--gate", "text.equal>=0.99"], Console()) == 1
    assert "NOT met" in capsys.readouterr().out


def test_a_config_file_names_ways_and_options_override_it(tmp_path: Path) -> None:
    file = tmp_path / "fidelity.toml"
    file.write_text(
        f'system = "{WRITER}"\ndata = "fidelity_helpers:numbers"\nweights = "tiny"\n'
        'repeats = 3\n[settings]\nat = 2\n[[ways]]\nname = "one"\n'
        '[[ways]]\nname = "two"\nchanged = [0]\n'
    )
    made = measured(load_config(file, {"repeats": 1}))
    assert len(made.ways[0].answers.rounds) == 1
    assert figures(made)["text.first_difference"] == 2
    with pytest.raises(UsageError, match="unknown key 'wayes'; did you mean 'ways'"):
        load_config(None, {"system": "anole", "wayes": 1})


def test_text_on_the_page_is_escaped_and_the_page_loads_nothing(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("<script>alert(1)</script> query 1\n")
    made = report(WRITER, {"name": "<b>x</b>", "changed": [1]}, prompts=file)
    page = page_of(made)
    assert "<script" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "http" not in page.partition("<style>")[0].replace("http-equiv", "")
    assert write(made, page, tmp_path / "out")[-1].name == "fidelity.html"
