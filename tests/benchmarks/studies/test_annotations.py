"""Reading people's annotations: what is understood, and what is refused."""

from __future__ import annotations

import json

import pytest
from annotations_helpers import human, write

from benchmarks.studies.agreement.ratings import Unit
from benchmarks.studies.agreement.rows import read_rows
from generators.errors import UsageError

ROWS = [
    {"id": "SA-1", "system": "anole", "annotator": "ann", "score": 4},
    {"id": "SA-1", "system": "anole", "annotator": "bo", "score": 5.5},
    {"id": "PBL-2", "system": "a+b", "annotator": "ann", "score": 0},
]


@pytest.mark.parametrize("name", ["human.csv", "human.json", "human.jsonl", "human.tsv"])
def test_one_content_in_every_kind_of_file(tmp_path, name):
    lines = "\n".join(json.dumps(row) for row in ROWS) + "\n\n"
    tabs = "\n".join("\t".join(map(str, r)) for r in [ROWS[0], *(r.values() for r in ROWS)])
    content = {"human.jsonl": lines, "human.tsv": tabs}.get(name, ROWS)
    found = human(write(tmp_path, name, content))
    assert found.form == "score"
    assert found.values == {
        "ann": {Unit("SA-1", "anole"): 4.0, Unit("PBL-2", "a+b"): 0.0},
        "bo": {Unit("SA-1", "anole"): 5.5},
    }


def test_spreadsheets_csv(tmp_path):
    """A byte order mark, semicolons, blank lines, blanks around names, quoted breaks."""
    text = '\ufeffid; system ;score;comment\nSA-1;anole; 3 ;"so\nso"\n\n;;;\n'
    found = human(write(tmp_path, "human.csv", text))
    assert found.values == {"people": {Unit("SA-1", "anole"): 3.0}}


def test_criteria_are_summed_less_the_penalty(tmp_path):
    met = {"id": "SA-1", "system": "x"}
    rows = [
        met | {"annotator": "list", "criteria": [1, True, False]},
        met | {"annotator": "names", "criteria": {"Text": 1, "Image": 0, "Style": 0}},
        met | {"annotator": "penalty", "criteria": [1, 1, 0], "penalty": 1},
        met | {"annotator": "minus", "criteria": [0, 0, 0], "penalty": -1},
        met | {"annotator": "both", "criteria": [0, 0, 0, 0], "score": 3},
    ]
    found = human(write(tmp_path, "human.json", rows)).values
    assert {name: rated[Unit("SA-1", "x")] for name, rated in found.items()} == {
        "list": 2.0,
        "names": 1.0,
        "penalty": 1.0,
        "minus": 0.0,
        "both": 3.0,
    }
    text = "id,system,criteria,penalty\nSA-1,x,1;0;1;1;0;1,\nSA-2,x,1 1 1 1 1 1,1\n"
    (rated,) = human(write(tmp_path, "human.csv", text)).values.values()
    assert list(rated.values()) == [4.0, 5.0]


@pytest.mark.parametrize("blank", [[], {}, "", " ; ", None])
def test_no_criteria_are_a_blank_and_no_score_of_0(tmp_path, blank):
    rows = [
        {"id": "SA-1", "system": "x", "criteria": blank},
        {"id": "SA-2", "system": "x", "criteria": blank, "score": None},
        {"id": "SA-3", "system": "x", "criteria": blank, "penalty": 1},
        {"id": "SA-4", "system": "x", "criteria": [0, 0]},
        {"id": "SA-5", "system": "x", "criteria": blank, "score": 2},
    ]
    found = human(write(tmp_path, "human.json", rows))
    assert found.values == {"people": {Unit("SA-4", "x"): 0.0, Unit("SA-5", "x"): 2.0}}
    lacking = {Unit(f"SA-{i}", "x"): "left blank" for i in (1, 2, 3)}
    assert found.missing == {"people": lacking}


def test_the_authors_annotation_tool(tmp_path):
    """Its keys are `<id>_<model>`, where models have underlines too."""
    content = {
        "PBL-1_gpt_4o": {"criteria": [True] * 4 + [False] * 2, "score": 4},
        "PBL-2_gpt_4o": {"criteria": [True] * 6, "score": 5},
        "SA-9_my_model": {"criteria": [False] * 6, "score": 1},
    }
    known = {Unit("PBL-1", "gpt_4o"), Unit("PBL-2", "gpt_4o")}
    found = human(write(tmp_path, "vist.json", content), scale="1-5", known=known)
    (rated,) = found.values.values()
    assert rated == {
        Unit("PBL-1", "gpt_4o"): 4.0,
        Unit("PBL-2", "gpt_4o"): 5.0,
        Unit("SA-9", "my_model"): 1.0,
    }


def test_votes_and_preferences(tmp_path):
    head = "id,system,baseline,annotator,vote\n"
    votes = "1,a,b,h1,A\n1,a,b,h2,b\n2,a,b,h1,baseline\n2,a,b,h2,unable to decide: one\n"
    more = "3,a,b,h1,Tie\n3,a,b,h2,system\n"
    found = human(write(tmp_path, "votes.csv", head + votes + more))
    assert found.form == "vote"
    first, second = found.values["h1"], found.values["h2"]
    assert list(first.values()) == ["system", "baseline", "undecided"]
    assert list(second.values()) == ["baseline", "undecided", "system"]
    assert set(first) == {Unit(i, "a", 0, "b") for i in "123"}
    text = "id,system,baseline,vote\n1,GPT-4o,Anole,gpt-4O\n2,GPT-4o,Anole,ANOLE\n"
    found = human(write(tmp_path, "votes.csv", text))
    assert list(found.values["people"].values()) == ["system", "baseline"]
    text = "id,system,preference\n1,a,-2\n2,a,1.5\n"
    found = human(write(tmp_path, "preferences.csv", text))
    assert (found.form, list(found.values["people"].values())) == (
        "preference",
        [-2.0, 1.5],
    )


RATED = "id,system,annotator,score\n"
SCALED = "id,system,score,scale\n"
CRITERIA = "id,system,criteria\n"
GROUPED = "id,system,annotator,score,category\n"
ENTRY = '[{"id": "1", "system": "a", %s}]'


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("h.csv", RATED + "1,a,x,4\n1,b,x,7\n", "h.csv line 3: score is '7'.* 0 to 6"),
        ("h.csv", RATED + "1,a,x,four\n", "line 2.*'four'.*a number from 0 to 6"),
        ("h.csv", RATED + "1,a,x,nan\n", "'nan'.*a number from 0 to 6"),
        ("h.csv", RATED + "1,,x,4\n", "line 2: system is ''"),
        ("h.csv", RATED + "1,a,x\n", "line 2 has 3 cells; the header has 4"),
        ("h.csv", RATED + "1,a,x,4\n1,a,x,5\n", "line 3: 1 of a .*'x'.* h.csv line 2"),
        ("h.csv", RATED, "holds no row"),
        ("h.csv", "", "holds no row"),
        ("h.csv", "id,system,id\n", "named twice"),
        ("h.csv", "id,system,grade\n1,a,4\n", "one of score.*grade, id, system"),
        ("h.csv", "id,score\n1,4\n", "columns id, system.* it has id, score"),
        ("h.csv", "id,system,score,vote\n1,a,4,a\n", "exactly one of"),
        ("h.csv", "id,system,vote\n1,a,maybe\n", "'maybe'; valid: .*unable to decide"),
        ("h.csv", "id,system,preference\n1,a,3\n", "'3'.* from -2 to 2"),
        ("h.csv", CRITERIA + "1,a,\n2,a,1;1;1\n3,a,1;1\n", "line 4.*'1;1'.* line 3 has 3"),
        ("h.csv", GROUPED + "1,a,x,1,SA\n1,a,y,1,PBL\n", "line 3.*another group"),
        ("h.csv", SCALED + "1,a,1,0-6\n2,a,1,0-10\n", "line 3.*on one scale, 0-6"),
        ("h.csv", SCALED + "1,a,1,six\n", "'six'.*LOW-HIGH"),
        ("h.xlsx", "", "unknown kind of file.*.csv"),
        ("h.jsonl", '{"id": 1}\nx\n', "line 2 is not valid JSON"),
        ("h.json", "{", "not valid JSON"),
        ("h.json", "[1]", "entry 1 is 1"),
        ("h.json", '[{"id": [1], "system": "a", "score": 1}]', r"id is \[1\].* text"),
        ("h.json", ENTRY % '"score": true', "score is True"),
        ("h.json", ENTRY % '"score": 1, "repeat": 0.5', "repeat is 0.5.* whole"),
        ("h.json", ENTRY % '"score": 1, "kind": "robot"', "'robot'.*interleaved"),
        ("h.json", ENTRY % '"criteria": 1', "criteria is 1; .* 0 or 1"),
        ("h.json", ENTRY % '"criteria": [0, 2]', r"criteria is \[0, 2\]; .* 0 or 1"),
        ("h.json", ENTRY % '"criteria": [1, 1, 1, 1, 1, 1, 1]', "sum to 7.* scale 0-6"),
    ],
)
def test_errors_name_the_row_the_value_and_the_rule(tmp_path, name, content, said):
    with pytest.raises(UsageError, match=said):
        human(write(tmp_path, name, content))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_rows(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes("id,system\n\xe9".encode("latin-1"))
    with pytest.raises(UsageError, match="utf-8"):
        read_rows(tmp_path / "latin.csv")
