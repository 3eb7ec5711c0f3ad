"""People's annotations matched with judges' scores, and the tables of both."""

from __future__ import annotations

import json

import numpy as np
import pytest
from agreement_helpers import plain
from annotations_helpers import FEW, IDS, RATED, SCORED, both, human, rows, write
from report_helpers import Judge, board, evaluation
from report_helpers import sample as query

from benchmarks.studies.agreement import AgreementSettings, tables
from benchmarks.studies.agreement.comparison import compared
from benchmarks.studies.agreement.ratings import of_board
from generators.base import Failure, Fault, NotApplicable, Skip, Unscored
from generators.errors import UsageError


def test_scores_and_people_by_hand(tmp_path):
    content = both(tmp_path, rows(IDS, score=SCORED), rows(IDS, score=RATED))
    (judge,) = content["judges"]
    assert judge["judge"] == "scores"
    assert judge["counts"] == {
        "annotated": 8,
        "matched": 8,
        "no_score": {},
        "unmatched": {},
        "unmatched_examples": [],
        "not_annotated": 0,
    }
    groups = [(g["category"], g["kind"]) for g in judge["groups"]]
    assert groups == [(None, None), ("SA", None)]
    for name, estimate in judge["groups"][0]["coefficients"].items():
        assert estimate["value"] == pytest.approx(plain(name, SCORED, RATED), abs=1e-6)
    assert json.dumps(content, allow_nan=False)


def test_nothing_is_dropped_silently(tmp_path):
    people = [
        *rows(IDS[:6], score=[1, 2, 3, 4, 5, None]),
        *rows(["SA-99", "PBL-1"], score=[1, 2]),
        *rows(IDS[:1], "emu2", score=[3]),
        {"id": IDS[1], "system": "anole", "score": 3, "repeat": 1},
        *rows(IDS[6:], score=[3, 4]),
    ]
    scores = rows([*IDS, "SA-50"], score=[1, 2, None, 4, 5, 6, 0, "", None])
    content = both(tmp_path, scores, people)
    (judge,) = content["judges"]
    assert judge["counts"] == {
        "annotated": 11,
        "matched": 5,
        "no_score": {"left blank": 2},
        "unmatched": {"other repeat or baseline": 1, "unknown id": 2, "unknown system": 1},
        "unmatched_examples": [
            ["PBL-1", "anole", 0, ""],
            ["SA-0", "emu2", 0, ""],
            ["SA-1", "anole", 1, ""],
            ["SA-99", "anole", 0, ""],
        ],
        "not_annotated": 1,
    }
    assert (content["annotated"], content["ratings"], content["blank"]) == (11, 11, 1)


def test_several_annotators_are_averaged_and_compared(tmp_path):
    people = []
    for name, shift in (("ann", 0), ("bo", 1)):
        told = rows(IDS, score=[min(6, v + shift) for v in RATED])
        people += [row | {"annotator": name} for row in told]
    content = both(tmp_path, rows(IDS, score=SCORED), people)
    mean = [(v + min(6, v + 1)) / 2 for v in RATED]
    whole = content["judges"][0]["groups"][0]["coefficients"]
    assert whole["mae"]["value"] == pytest.approx(plain("mae", SCORED, mean), abs=1e-6)
    assert content["annotators"] == ["ann", "bo"]
    assert content["people"]["ann"]["mae"]["value"] == pytest.approx(7 / 8)
    assert content["people"]["bo"] == content["people"]["ann"]
    assert both(tmp_path, rows(IDS, score=SCORED), people[:8])["people"] == {}


def test_scores_are_mapped_onto_the_scale_of_people(tmp_path):
    percent = [v / 6 * 100 for v in SCORED]
    scores = [r | {"scale": "0-100"} for r in rows(IDS, score=percent)]
    people = rows(IDS, score=RATED)
    (judge,) = both(tmp_path, scores, people)["judges"]
    (same,) = both(tmp_path, rows(IDS, score=SCORED), people)["judges"]
    assert (judge["rescaled"], same["rescaled"]) == (True, False)
    assert judge["groups"] == same["groups"]
    shifted = [r | {"scale": "1-5"} for r in rows(IDS, score=[1 + v / 1.5 for v in SCORED])]
    assert both(tmp_path, shifted, people)["judges"][0]["groups"] == same["groups"]
    likert = AgreementSettings(draws=50, human_scale="1-5")
    told = rows(IDS, score=[1 + v / 1.5 for v in RATED])
    mae = both(tmp_path, scores, told, settings=likert)["judges"][0]["groups"][0]
    expected = plain("mae", SCORED, RATED) / 1.5
    assert mae["coefficients"]["mae"]["value"] == pytest.approx(expected, abs=1e-6)
    raw = AgreementSettings(draws=50, rescale=False)
    (judge,) = both(tmp_path, scores, people, settings=raw)["judges"]
    expected = plain("mae", percent, RATED)
    found = judge["groups"][0]["coefficients"]["mae"]["value"]
    assert found == pytest.approx(expected, abs=1e-6)
    whole = both(tmp_path, rows(IDS, score=percent), people, scores_scale="0-100")
    assert whole["judges"][0]["groups"] == same["groups"]


def test_groups_come_from_columns_ids_and_names(tmp_path):
    people = [
        {"id": "SA-1", "system": "a+b", "score": 1},
        {"id": "PBL-1", "system": "emu2", "score": 2, "category": "Multi-step reasoning"},
        {"id": "x", "system": "gpt_flux", "score": 3, "kind": "integrated"},
        {"id": "y", "system": "gt:no-images", "score": 3},
    ]
    scores = [{**row, "score": 1, "category": ""} for row in people]
    scores[3]["category"] = "Travel"
    scores[2]["kind"], scores[1]["category"] = "interleaved", "SA"  # people's word wins
    (judge,) = both(tmp_path, scores, people)["judges"]
    found = [(g["category"], g["kind"]) for g in judge["groups"] if g["category"]]
    assert [pair for pair in found if pair[1]] == [
        ("MSR", "interleaved"),
        ("SA", "integrated"),
        ("Travel", "ground truth"),
        ("unknown", "integrated"),
    ]


def test_creation_mmbench_preferences(tmp_path):
    scores = rows(IDS, preference=[2, 1, 0, -1, -2, 0, 1, 2])
    people = []
    for name, values in {
        "h1": [2, 2, 2, 0, -2, 0, 0, 2],
        "h2": [1, 2, 1, 0, -2, -1, 0, 0],
    }.items():
        people += [r | {"annotator": name} for r in rows(IDS, preference=values)]
    content = both(tmp_path, scores, people)
    (judge,) = content["judges"]
    # gaps .5 1 1.5 1 0 .5 1 1
    assert judge["agreement"]["mae"]["value"] == pytest.approx(6.5 / 8)
    assert judge["agreement"]["consistency"]["value"] == pytest.approx(100 * 7 / 8)
    assert content["people"]["h1"]["mae"]["value"] == pytest.approx(5 / 8)
    assert content["human_scale"] is None


def test_mllm_bench_votes(tmp_path):
    scores = rows(IDS[:3], vote=["system", "baseline", "anole"])
    people = [
        r | {"annotator": n} for n in "xyz" for r in rows(IDS[:3], vote=["anole"] * 3)
    ]
    content = both(tmp_path, scores, people)
    found = content["judges"][0]["agreement"]["majority"]["decided"]
    assert (found["value"], found["n"]) == (pytest.approx(200 / 3), 3)
    assert content["people"]["x and y"]["all"]["value"] == 100.0


def test_a_judge_without_any_score_is_reported_not_refused(tmp_path):
    scores = rows(IDS, score=[None] * 8)
    (judge,) = both(tmp_path, scores, rows(IDS, score=RATED))["judges"]
    assert judge["counts"]["no_score"] == {"left blank": 8}
    assert judge["groups"] == []


def test_nothing_in_common_and_other_forms_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"1 annotated .* none .*SA-9 of anole / SA-0 of"):
        both(tmp_path, rows(IDS, score=SCORED), rows(["SA-9"], score=[1]))
    with pytest.raises(UsageError, match="people gave each a vote and judges a score"):
        both(tmp_path, rows(IDS, score=SCORED), rows(IDS[:1], vote=["tie"]))


def run_board():
    name = "judge:x"
    found = []
    for i, value in enumerate([0.0, 50.0, 100.0, 25.0, 75.0, 60.0]):
        asked = query(i, "SA" if i % 2 else "PBL", "art")
        found.append(evaluation("w+t", asked, value, scorer=name))
        found.append(evaluation("w+t", asked, value / 2, scorer=name, repeat=1))
    lost = [Unscored("?"), NotApplicable("no"), Failure("broke", Fault.ERROR), Skip("no")]
    for i, outcome in enumerate(lost, 10):
        found.append(evaluation("w+t", query(i, "SA"), outcome, scorer=name))
    found.append(evaluation("w+t", query(20, "SA"), None, document=Skip("one picture")))
    return board(found, scorers=[Judge(name, "0-100")])


def test_a_run_gives_scores_and_why_there_are_none(tmp_path):
    judges = of_board(run_board())
    ids = [*range(6), 10, 11, 12, 13, 20]
    people = human(
        write(
            tmp_path,
            "h.json",
            rows([f"Q-{i:04d}" for i in ids], "w+t", score=[1, 3, 6, 2, 4, 4, *[3] * 5]),
        )
    )
    (judge,) = compared(judges, people, FEW)["judges"]
    assert judge["counts"]["no_score"] == {
        "answer skipped": 1,
        "failed scores": 1,
        "not applicable": 1,
        "skipped scores": 1,
        "unscored": 1,
    }
    assert (judge["counts"]["matched"], judge["counts"]["not_annotated"]) == (6, 6)
    whole = judge["groups"][0]
    scores = np.array([0, 50, 100, 25, 75, 60]) * 0.06
    expected = plain("mae", scores, [1, 3, 6, 2, 4, 4])
    assert whole["coefficients"]["mae"]["value"] == pytest.approx(expected, abs=1e-6)
    assert [g["category"] for g in judge["groups"]] == [None, "PBL", "SA"]
    with pytest.raises(UsageError, match="unknown scorer"):
        of_board(run_board(), ["clipscore"])


def test_tables_show_the_numbers_and_reasons_once(tmp_path):
    people = [r | {"annotator": n} for n in "ab" for r in rows(IDS, score=RATED)]
    for scores, reason in ((SCORED, 0), ([3] * 8, 1)):
        content = both(tmp_path, rows(IDS, score=scores), people)
        judged, among = tables(content)
        assert [row[0].text for row in judged.rows] == ["all categories", "SA"]
        assert [row[0].text for row in among.rows] == ["a", "b"]
        found = content["judges"][0]["groups"][0]["coefficients"].values()
        values = [cell.value for cell in judged.rows[0][1:]]
        assert values == [estimate["value"] for estimate in found]
        assert sum("one score to all" in note for note in judged.notes) == reason
    votes = both(tmp_path, rows(IDS, vote=["system"] * 8), rows(IDS, vote=["anole"] * 8))
    assert [c.heading for c in tables(votes)[0].columns][1:] == ["both decided %", "all %"]
