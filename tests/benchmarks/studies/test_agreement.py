"""`plait agreement SCORES HUMAN`: annotations are read, matched, measured and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_helpers import fill
from cli_helpers import plait
from report_helpers import Judge, board, evaluation
from report_helpers import sample as query

from plait.benchmarks.results.table import csv_text
from plait.benchmarks.studies.agreement import (
    AgreementSettings,
    agreement_report,
    brief_tables,
    compare,
    tables,
)
from plait.benchmarks.studies.annotations import (
    RatedDocuments,
    Unit,
    of_board,
    of_criterion,
    read_ratings,
    read_scores,
)
from plait.generators.base import Failure, Fault, NotApplicable, Skip, Unscored
from plait.generators.errors import UsageError
from plait.scorers.judging.rubrics import OWN
from plait.scorers.statistics.agreement import COEFFICIENTS
from plait.scorers.statistics.alpha import krippendorff

pytestmark = pytest.mark.contract

FEW = AgreementSettings(draws=50)
IDS = [f"SA-{i}" for i in range(8)]
SCORED = [1, 2, 3, 4, 5, 6, 0, 2]
RATED = [2, 2, 3, 5, 5, 6, 1, 0]


def plain(name: str, x: Any, y: Any) -> Any:
    """A coefficient of two lists, to the digits that are written."""
    x, y = np.array(x, dtype=float), np.array(y, dtype=float)
    value = COEFFICIENTS[name].function(x, y, np.ones((1, len(x))))[0]
    return pytest.approx(float(value), abs=1e-6)


def write(folder: Path, name: str, content: Any) -> Path:
    """A file of that name: text as it is, anything else as CSV or JSON."""
    path = folder / name
    if path.suffix == ".csv" and not isinstance(content, str):
        columns = list(dict.fromkeys(key for row in content for key in row))
        content = csv_text(columns, ([row.get(c) for c in columns] for row in content))
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def human(path: Path, **options: Any) -> RatedDocuments:
    """People's ratings, read with the usual settings."""
    usual = {"rater": "annotator", "unnamed": "people", "scale": "0-6"}
    return read_ratings(path, **(usual | options))


def both(tmp_path: Path, scores: Any, people: Any) -> Mapping[str, Any]:
    """What the report says of these scores and these people."""
    judges = write(tmp_path, "scores.json", scores)
    return agreement_report(judges, write(tmp_path, "human.json", people), FEW)


def rows(
    ids: Sequence[str], system: str = "anole", **columns: Sequence[Any]
) -> list[dict[str, Any]]:
    """One row per id, with a column per keyword."""
    made = zip(ids, *columns.values(), strict=True)
    return [
        {"id": i, "system": system, **dict(zip(columns, v, strict=True))} for i, *v in made
    ]


@pytest.mark.parametrize("name", ["human.csv", "human.json", "human.jsonl", "human.tsv"])
def test_one_content_in_every_kind_of_file(tmp_path, name):
    content: Any = [
        {"id": "SA-1", "system": "anole", "annotator": "ann", "score": 4},
        {"id": "SA-1", "system": "anole", "annotator": "bo", "score": 5.5},
        {"id": "PBL-2", "system": "a+b", "annotator": "ann", "score": 0},
    ]
    if name == "human.jsonl":
        content = "\n".join(json.dumps(row) for row in content) + "\n\n"
    elif name == "human.tsv":
        table = [content[0], *(row.values() for row in content)]
        content = "\n".join("\t".join(map(str, row)) for row in table)
    found = human(write(tmp_path, name, content))
    assert found.form == "score"
    assert found.values == {
        "ann": {Unit("SA-1", "anole"): 4.0, Unit("PBL-2", "a+b"): 0.0},
        "bo": {Unit("SA-1", "anole"): 5.5},
    }


@pytest.mark.parametrize(
    ("header", "scores"),
    [
        ("id,system,score,rater", {"ann": 4.0, "bo": 5.0}),
        ("Query,System,SCORE,Annotator", {"ann": 4.0, "bo": 5.0}),
        # The usual name goes before another, wherever it stands.
        ("id,system,score,rater,annotator", {"x": 4.0, "y": 5.0}),
        ("id,system,score,Rater,rater", {"ann": 4.0, "bo": 5.0}),
        ("id,system,score,Note", {"people": 4.0}),
    ],
)
def test_columns_have_the_names_that_people_give_them(header, scores, tmp_path):
    lines = ["SA-1,anole,4,ann,x", "SA-1,anole,5,bo,y"][: len(scores)]
    width = header.count(",") + 1
    cells = [",".join(line.split(",")[:width]) for line in lines]
    found = human(write(tmp_path, "human.csv", "\n".join([header, *cells])))
    expected = {name: {Unit("SA-1", "anole"): value} for name, value in scores.items()}
    assert found.values == expected


def test_spreadsheets_csv(tmp_path):
    """A byte order mark, semicolons, blank lines, blanks around names, quoted breaks."""
    text = '\ufeffid; system ;score;comment\nSA-1;anole; 3 ;"so\nso"\n\n;;;\n'
    found = human(write(tmp_path, "human.csv", text))
    assert found.values == {"people": {Unit("SA-1", "anole"): 3.0}}


TABLE = "id\tsystem\tscore\nSA-1\ta\t0.5\nSA-2\ta\t+3\n"


def joined_by(separator: str) -> str:
    return TABLE.replace("\t", separator)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("h.csv", f"\ufeff{joined_by(',')}".replace("\n", "\r\n")),
        ("h.CSV", f"sep=;\r\n{joined_by(';')}"),
        ("h.csv", f'"sep=|"\n{joined_by("|")}'),
        ("h.csv", TABLE),
        ("h.csv", joined_by(",").replace("\n", ",\n")),
        ("h.csv", joined_by(";").replace("\n", ";;\n")),
        ("h.csv", joined_by(",").replace("SA-1", ' "SA-1"')),
        ("h.csv", joined_by(",").replace("\n", "\r")),
        ("h.tsv", TABLE),
        ("h.tsv", TABLE.replace("SA-1", '"SA-1"')),
        ("h.tsv", 'id\tnote\tsystem\tscore\nSA-1\t"so\ta\t0.5\nSA-2\tsaid "x"\ta\t3\n'),
        ("h.tsv", 'id\tnote\tsystem\tscore\nSA-1\t"so\nso"\ta\t.5\nSA-2\t\ta\t3\n'),
        ("h.csv", 'id,note,system,score\nSA-1,"so\u2028\nso",a,0.5\nSA-2,\u2029,a,3e0\n'),
        (
            "h.jsonl",
            '{"id": "SA-1", "system": "a", "score": 0.5, "note": "so\u2028\x85so"}\r\n'
            '\n{"id": "SA-2", "system": "a", "score": "3.0"}',
        ),
        (
            "h.ndjson",
            '\ufeff{"id": "SA-1", "system": "a", "score": 5e-1}\n'
            '{"id": "SA-2", "system": "a", "score": 3, "note": "\u2029"}\n',
        ),
    ],
)
def test_ratings_as_programs_save_them(tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode())
    wanted = {Unit("SA-1", "a"): 0.5, Unit("SA-2", "a"): 3.0}
    assert human(tmp_path / name).values == {"people": wanted}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *(
            (joined_by(",").replace("0.5", number).encode(), f"line 2: score is {number!r}")
            for number in ("0_5", "\uff15", "nan", "inf", "1e999", "0x1", "1 2", "--1")
        ),
        (joined_by(";").replace("0.5", "0,5").encode(), "line 2: score is '0,5'"),
        (TABLE.encode("utf-16"), "save it as UTF-8"),
        (TABLE.encode("utf-16-be"), "save it as UTF-8"),
        (
            TABLE.replace("SA-2", "ca\xe9").encode("latin-1"),
            "line 3 has the byte 0xe9.*UTF-8",
        ),
        (b"id,system,score\nSA-1,a,1,5\n", "line 2 has 4 cells; the header has 3"),
        (b"id,system,score\nSA-1,a,1,\n", "line 2 has 4 cells; the header has 3"),
        (b'id,system,score\n"SA-1,a,1\nSA-2,a,2\n', "h.csv, after line 1"),
        (b'id,system,score\n"SA"-1,a,1\n', "h.csv, after line 1"),
        (b"id,score\nSA-1,1\n", "lacks system"),
        (b"name,score\nSA-1,1\n", "lacks id and system"),
        (b"id,system,score,\nSA-1,a,1,x\n", "named twice or not at all"),
        (b"", "needs the columns|holds no row|not at all"),
    ],
)
def test_tables_that_cannot_be_read_say_what_to_do(tmp_path, content, said):
    (tmp_path / "h.csv").write_bytes(content)
    with pytest.raises(UsageError, match=said) as refused:
        human(tmp_path / "h.csv")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("columns", "value"),
    [
        ({"criteria": [1, True, False]}, 2.0),
        ({"criteria": {"Text": 1, "Image": 0, "Style": 0}}, 1.0),
        ({"criteria": "1;0;1;1;0;1"}, 4.0),
        ({"criteria": [1, 1, 0], "penalty": 1}, 1.0),
        ({"criteria": [0, 0, 0], "penalty": -1}, 0.0),
        ({"criteria": [0, 0, 0], "score": 3}, 3.0),
        *(({"criteria": blank, "penalty": 1}, None) for blank in ([], {}, "", " ; ", None)),
    ],
)
def test_criteria_are_summed_less_the_penalty(tmp_path, columns, value):
    """No criteria are a blank and no score of 0."""
    found = human(write(tmp_path, "h.json", [{"id": "SA-1", "system": "x"} | columns]))
    unit = Unit("SA-1", "x")
    assert found.values.get("people", {}) == ({} if value is None else {unit: value})
    assert bool(found.missing) == (value is None)


def test_the_authors_annotation_tool(tmp_path):
    """Its keys are `<id>_<model>`, where models have underlines too."""
    content = {
        "PBL-1_gpt_4o": {"criteria": [True] * 4 + [False] * 2, "score": 4},
        "SA-9_my_model": {"criteria": [False] * 6, "score": 1},
    }
    known = {Unit("PBL-1", "gpt_4o")}
    found = human(write(tmp_path, "vist.json", content), scale="1-5", known=known)
    (rated,) = found.values.values()
    assert rated == {Unit("PBL-1", "gpt_4o"): 4.0, Unit("SA-9", "my_model"): 1.0}


def test_votes_and_preferences(tmp_path):
    votes = "1,A,b,h1,a\n1,A,b,h2,B\n2,A,b,h1,baseline\n2,A,b,h2,unable to decide: one\n"
    votes = f"id,system,baseline,annotator,vote\n{votes}3,A,b,h1,Tie\n3,A,b,h2,system\n"
    found = human(write(tmp_path, "v.csv", votes))
    assert found.form == "vote"
    assert list(found.values["h1"].values()) == ["system", "baseline", "undecided"]
    assert list(found.values["h2"].values()) == ["baseline", "undecided", "system"]
    assert set(found.values["h1"]) == {Unit(i, "A", 0, "b") for i in "123"}
    found = human(write(tmp_path, "p.csv", "id,system,preference\n1,a,-2\n2,a,1.5\n"))
    assert found.form == "preference"
    assert list(found.values["people"].values()) == [-2.0, 1.5]


GIVEN = "id,system,annotator,score\n"
SCALED = "id,system,score,scale\n"
CRITERIA = "id,system,criteria\n"
GROUPED = "id,system,annotator,score,category\n"
ENTRY = '[{"id": "1", "system": "a", %s}]'


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("h.csv", GIVEN + "1,a,x,4\n1,b,x,7\n", "h.csv line 3: score is '7'.* 0 to 6"),
        ("h.csv", GIVEN + "1,,x,4\n", "line 2: system is ''"),
        ("h.csv", GIVEN + "1,a,x\n", "line 2 .*3.*4"),
        ("h.csv", GIVEN + "1,a,x,4\n1,a,x,5\n", "line 3: 1 of a .*'x'.* h.csv line 2"),
        ("h.csv", GIVEN, "no row"),
        ("h.csv", "id,system,id\n", "twice"),
        ("h.csv", "id,system,grade\n1,a,4\n", "score.*grade, id, system"),
        ("h.csv", "id,system,vote\n1,a,maybe\n", "'maybe'.* unable to decide"),
        ("h.csv", "id,system,preference\n1,a,3\n", "'3'.* -2 to 2"),
        ("h.csv", CRITERIA + "1,a,\n2,a,1;1;1\n3,a,1;1\n", "line 4.*'1;1'.* line 3 has 3"),
        ("h.csv", GROUPED + "1,a,x,1,SA\n1,a,y,1,PBL\n", "line 3.*group"),
        ("h.csv", SCALED + "1,a,1,0-6\n2,a,1,0-10\n", "line 3.* 0-6"),
        ("h.csv", SCALED + "1,a,1,six\n", "'six'.*LOW-HIGH"),
        ("h.xlsx", "", "h.xlsx.*.csv"),
        ("h.jsonl", '{"id": 1}\nx\n', "line 2 .*JSON"),
        ("h.json", '[{"id": [1], "system": "a", "score": 1}]', r"id is \[1\]"),
        ("h.json", ENTRY % '"score": 1, "repeat": 0.5', "repeat is 0.5"),
        ("h.json", ENTRY % '"score": 1, "kind": "robot"', "'robot'.*interleaved"),
        ("h.json", ENTRY % '"criteria": [0, 2]', r"criteria is \[0, 2\]; .* 0 or 1"),
        ("h.json", ENTRY % '"criteria": [1, 1, 1, 1, 1, 1, 1]', "sum to 7.* 0-6"),
    ],
)
def test_errors_name_the_row_the_value_and_the_rule(tmp_path, name, content, said):
    with pytest.raises(UsageError, match=said):
        human(write(tmp_path, name, content))
    (tmp_path / "latin.csv").write_bytes("id,system\n\xe9".encode("latin-1"))
    with pytest.raises(UsageError, match="latin"):
        human(tmp_path / "latin.csv")


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
    (judge,) = both(tmp_path, rows(IDS, score=[None] * 8), rows(IDS, score=RATED))["judges"]
    assert judge["counts"]["no_score"] == {"left blank": 8}
    assert judge["groups"] == []


def test_several_annotators_are_averaged_and_compared(tmp_path):
    higher = [min(6, v + 1) for v in RATED]
    people = [
        row | {"annotator": name}
        for name, values in (("ann", RATED), ("bo", higher))
        for row in rows(IDS, score=values)
    ]
    content = both(tmp_path, rows(IDS, score=SCORED), people)
    mean = [(a + b) / 2 for a, b in zip(RATED, higher, strict=True)]
    whole = content["judges"][0]["groups"][0]["coefficients"]
    assert whole["mae"]["value"] == plain("mae", SCORED, mean)
    assert content["annotators"] == ["ann", "bo"]
    assert content["people"]["ann"]["mae"]["value"] == pytest.approx(7 / 8)
    assert content["people"]["bo"] == content["people"]["ann"]
    assert both(tmp_path, rows(IDS, score=SCORED), people[:8])["people"] == {}


def test_scores_are_mapped_onto_the_scale_of_people(tmp_path):
    people, percent = rows(IDS, score=RATED), [v / 6 * 100 for v in SCORED]
    shifted = [1 + v / 1.5 for v in SCORED]

    def found(scores: Any, scale: str = "0-6") -> Any:
        given = [row | {"scale": scale} for row in rows(IDS, score=scores)]
        return both(tmp_path, given, people)["judges"][0]

    same = found(SCORED)
    assert (found(percent, "0-100")["rescaled"], same["rescaled"]) == (True, False)
    assert found(percent, "0-100")["groups"] == same["groups"]
    assert found(shifted, "1-5")["groups"] == same["groups"]


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


def test_preferences_and_votes_are_measured_as_their_benchmarks_do(tmp_path):
    scores = rows(IDS, preference=[2, 1, 0, -1, -2, 0, 1, 2])
    people = rows(IDS, preference=[1.5, 2, 1.5, 0, -2, -0.5, 0, 1])
    content = both(tmp_path, scores, people)
    # gaps .5 1 1.5 1 0 .5 1 1
    found = content["judges"][0]["agreement"]
    assert found["mae"]["value"] == pytest.approx(6.5 / 8)
    assert found["consistency"]["value"] == pytest.approx(100 * 7 / 8)
    assert content["human_scale"] is None
    scores = rows(IDS[:3], vote=["system", "baseline", "anole"])
    voted = rows(IDS[:3], vote=["anole"] * 3)
    content = both(tmp_path, scores, [r | {"annotator": n} for n in "xyz" for r in voted])
    found = content["judges"][0]["agreement"]["majority"]["decided"]
    assert (found["value"], found["n"]) == (pytest.approx(200 / 3), 3)
    assert content["people"]["x and y"]["all"]["value"] == 100.0
    assert len(tables(content)[0].columns) == 3


def test_alpha_of_scores_and_of_each_criterion(tmp_path):
    """By the ratings' own numbers, whoever rated them; a blank is no rating."""
    given = {
        "ann": ["101010", "111111", "000000", "101101", "110011", ""],
        "bo": ["111010", "111011", "100000", "100101", "010011", "111111"],
    }
    people = [
        row | {"annotator": name, "penalty": 0, "criteria": ";".join(row["criteria"])}
        for name, verdicts in given.items()
        for row in rows(IDS[:6], criteria=verdicts)
    ]
    alpha = both(tmp_path, rows(IDS, score=SCORED), people)["alpha"]
    assert list(alpha) == ["score", *OWN["SA"].criteria, "penalty"]
    pairs = [
        (IDS[i], {name: float(own[i].count("1")) for name, own in given.items()})
        for i in range(5)
    ]
    expected = krippendorff(pairs, "interval", FEW.draws)
    assert alpha["score"] == {"level": "interval"} | expected.as_json()
    # Of ten verdicts two are 0, and two of five answers are disputed.
    text = alpha["Text Quality"]
    assert (text["level"], text["n"]) == ("nominal", 5)
    assert text["value"] == pytest.approx(1 - 9 * 2 * 2 / (2 * 2 * 8))
    assert alpha["penalty"]["reason"]


def test_scores_are_votes_where_people_compared(tmp_path):
    """The better score is the vote, the lower one where less is better; ties are none."""
    found = []
    for i, (one, other) in enumerate([(5, 1), (2, 3), (4, 4), (6, Unscored("?"))]):
        found += [evaluation("a", query(i), one), evaluation("b", query(i), other)]
    made = board(found)
    ids = [f"Q-{i:04d}" for i in range(4)]
    votes = ["a", "b", "a", "b"]
    people = rows(ids, "a", baseline=["b"] * 4, vote=votes) + rows(["Q-9"], "a", vote=["a"])
    people[-1]["baseline"] = "b"
    read = human(write(tmp_path, "h.json", people))
    (judge,) = compare(of_board(made), read, FEW)["judges"]
    assert judge["counts"]["no_score"] == {"unscored": 1}
    assert judge["counts"]["unmatched"] == {"unknown id": 1}
    assert judge["agreement"]["majority"]["all"]["value"] == pytest.approx(200 / 3)
    assert judge["agreement"]["majority"]["decided"]["value"] == 100.0
    lower = board(found, scorers=[Judge(direction="lower")])
    (judge,) = compare(of_board(lower), read, FEW)["judges"]
    assert judge["agreement"]["majority"]["decided"]["value"] == 0.0


def test_nothing_in_common_and_other_forms_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"SA-9 of anole / SA-0 of"):
        both(tmp_path, rows(IDS, score=SCORED), rows(["SA-9"], score=[1]))
    with pytest.raises(UsageError, match=r"vote needs the column baseline"):
        both(tmp_path, rows(IDS, score=SCORED), rows(IDS[:1], vote=["tie"]))


def test_a_run_gives_scores_and_why_there_are_none(tmp_path):
    name, found = "judge:x", []
    for i, value in enumerate([0.0, 50.0, 100.0, 25.0, 75.0, 60.0]):
        asked = query(i, "SA" if i % 2 else "PBL", "art")
        found.append(evaluation("w+t", asked, value, scorer=name))
        found.append(evaluation("w+t", asked, value / 2, scorer=name, repeat=1))
    lost = [Unscored("?"), NotApplicable("no"), Failure("broke", Fault.ERROR), Skip("no")]
    for i, outcome in enumerate(lost, 10):
        found.append(evaluation("w+t", query(i, "SA"), outcome, scorer=name))
    found.append(evaluation("w+t", query(20, "SA"), None, document=Skip("one picture")))
    judges = of_board(board(found, scorers=[Judge(name, "0-100")]))
    ids = [f"Q-{i:04d}" for i in (*range(6), 10, 11, 12, 13, 20)]
    people = rows(ids, "w+t", score=[1, 3, 6, 2, 4, 4, *[3] * 5])
    people = human(write(tmp_path, "h.json", people))
    (judge,) = compare(judges, people, FEW)["judges"]
    why = ("answer skipped", "failed scores", "not applicable", "skipped scores")
    assert judge["counts"]["no_score"] == dict.fromkeys((*why, "unscored"), 1)
    assert (judge["counts"]["matched"], judge["counts"]["not_annotated"]) == (6, 6)
    scores = np.array([0, 50, 100, 25, 75, 60]) * 0.06
    mae = judge["groups"][0]["coefficients"]["mae"]["value"]
    assert mae == plain("mae", scores, [1, 3, 6, 2, 4, 4])
    assert [g["category"] for g in judge["groups"]] == [None, "PBL", "SA"]


def test_tables_show_the_numbers_and_reasons_once(tmp_path):
    people = [r | {"annotator": n} for n in "ab" for r in rows(IDS, score=RATED)]
    for scores, told in ((SCORED, 0), ([3] * 8, 1)):
        content = both(tmp_path, rows(IDS, score=scores), people)
        judged, among, alpha = tables(content)
        assert [row[0].text for row in judged.rows] == ["all categories", "SA"]
        assert [row[0].text for row in among.rows] == ["a", "b"]
        assert [cell.text for cell in alpha.rows[0]] == ["score", "1.000", "8"]
        found = content["judges"][0]["groups"][0]["coefficients"].values()
        values = [cell.value for cell in judged.rows[0][1:]]
        assert values == [estimate["value"] for estimate in found]
        assert sum("one score to all" in note for note in judged.notes) == told


def test_a_brief_table_has_a_row_of_each_judge_and_what_has_an_interval(tmp_path):
    """Ten answers of one category have an interval, three of another have none."""
    ids = [f"SA-{i}" for i in range(10)] + [f"PBL-{i}" for i in range(3)]
    rated = [i % 4 for i in range(13)]
    people = [
        row | {"annotator": name}
        for name, values in {"a": rated, "b": [*rated[:-1], 5]}.items()
        for row in rows(ids, score=values)
    ]
    scores = [
        row | {"scorer": name}
        for name, values in {"x": rated[::-1], "y": [*rated[:4], *[None] * 9]}.items()
        for row in rows(ids, score=values)
    ]
    content = both(tmp_path, scores, people)
    table, alpha = brief_tables(content)
    shown = [[cell.text for cell in row[:3]] for row in table.rows]
    assert shown == [
        ["x", "all categories", "13"],
        ["x", "SA", "10"],
        ["y", "all categories", "4"],
        ["people", "a", "13"],
        ["people", "b", "13"],
    ]
    found = content["judges"][0]["groups"][0]["coefficients"]
    headings = [column.heading for column in table.columns[3:]]
    assert headings == ["MAE", "Pearson", "Spearman", "quadratic kappa"]
    assert [cell.value for cell in table.rows[0][3:]] == [
        found[name]["value"] for name in ("mae", "pearson", "spearman", "kappa")
    ]
    notes = " ".join(table.notes)
    assert "9 left blank: y" in notes, "what a judge did not score is counted"
    assert [row[0].text for row in alpha.rows] == ["score"]


SCORER, UNSCALED = "comparing_helpers:Pictures", "stages:Constant"
"""Both count the images of an answer; the second on no scale of numbers."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose truth is known, scored without a model."""
    root = tmp_path_factory.mktemp("agreement") / "run"
    scorers = ["truth:match", "truth:answer", SCORER, UNSCALED]
    asked = {"data": "miniature:12", "systems": ["gt", "gt:shuffled-images"]}
    fill(root, **asked, weights="tiny", scorers=scorers)
    return root


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


def test_a_run_or_a_file_beside_annotations(root: Path, tmp_path: Path) -> None:
    """The mean absolute error by hand, Pearson's r by numpy; every answer accounted for."""
    scored = read_scores(root, scale="0-6").values[SCORER]
    scores = [float(value) for value in scored.values()]
    rated = [value + (1 if n else 2) for n, value in enumerate(scores)]
    units = [{"id": unit.id, "system": unit.system} for unit in scored]
    annotated = [u | {"score": v} for u, v in zip(units, rated, strict=True)]
    annotated.append({"id": "SA-nowhere", "system": "gt", "score": 3})
    people = write(tmp_path, "human.csv", annotated)
    words = (root, people, "--scorer", SCORER, "--scorer", UNSCALED)
    content = agreement(*words, out=tmp_path / "o.json")
    counts = content["judges"][0]["counts"]
    assert (counts["annotated"], counts["matched"]) == (len(rated) + 1, len(rated))
    assert counts["unmatched"] == {"unknown id": 1}
    found = whole(content)
    mae = (len(rated) + 1) / len(rated)
    assert found[SCORER]["mae"] == pytest.approx(mae, abs=1e-6)
    r = np.corrcoef([scores, rated])[0, 1]
    assert found[SCORER]["pearson"] == pytest.approx(r, abs=1e-6)
    assert found[UNSCALED] == found[SCORER] | dict.fromkeys(("mae", "mse", "kappa"))
    file = [u | {"score": v} for u, v in zip(units, scores, strict=True)]
    file = write(tmp_path, "scores.json", file)
    beside = whole(agreement(file, people, out=tmp_path / "o.json"))
    assert beside == {"scores": found[SCORER]}


def test_options_reach_the_comparison(tmp_path: Path) -> None:
    """Percent on people's scale of 1 to 5, mapped and as it is; one scorer of two."""
    people = write(tmp_path, "h.csv", rows(IDS[:3], "gt", score=[1, 3, 5]))
    scores = [
        row | {"scorer": name, "scale": "0-100"}
        for name, values in {"a": [0, 50, 75], "b": [0, 0, 0]}.items()
        for row in rows(IDS[:3], "gt", score=values)
    ]
    words = [write(tmp_path, "s.json", scores), people, "--scale", "1-5", "--scorer", "a"]
    for more, wanted in (([], 1 / 3), (["--no-rescale"], (1 + 47 + 70) / 3)):
        found = whole(agreement(*words, *more, out=tmp_path / "o.json"))
        assert found.keys() == {"a"}
        assert found["a"]["mae"] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{run}", "{tmp}/none.csv"], ["none.csv"]),
        (["{tmp}", "{tmp}/human.csv"], ["run directory"]),
        (["{run}", "{tmp}/human.csv"], ["1 annotated", "SA-404"]),
        (["{run}", "{tmp}/human.csv", "--scorer", "bleu"], ["'bleu'"]),
        (["{run}", "{tmp}/human.csv", "--scale", "0-1"], ["line 2", "0 to 1"]),
    ],
)
def test_wrong_use_is_explained(
    root: Path, tmp_path: Path, words: Sequence[str], said: Sequence[str]
) -> None:
    write(tmp_path, "human.csv", rows(["SA-404"], "gt", score=[5]))
    done = plait("agreement", *(word.format(run=root, tmp=tmp_path) for word in words))
    assert done.returncode == 2, done.stdout
    for part in said:
        assert part in done.stderr


def test_a_run_whose_scorers_have_no_criteria_has_none_to_compare():
    made = board([evaluation("a", query(0), 3)])
    with pytest.raises(UsageError, match="no scorer of the run judges by criteria"):
        of_criterion(made, "Layout")


def test_known_truth_in_the_place_of_people(root: Path) -> None:
    content = agreement_report(root, Path("truth:match"), FEW)
    assert (content["truth"], content["human_scale"]) == ("truth:match", "0-100")
    assert list(whole(content)) == [SCORER, UNSCALED, "truth:answer"]
    assert (content["annotated"], content["blank"]) == (16, 8)
    ratings = read_scores(root, scale="0-6").values
    errors = [
        abs(float(value) - float(ratings["truth:answer"][unit]))
        for unit, value in ratings["truth:match"].items()
    ]
    assert len(errors) == 16
    assert whole(content)["truth:answer"]["mae"] == pytest.approx(sum(errors) / 16)
    for name, scorers, reason in (
        ("truth:image", (), "--scorer truth:image"),
        ("truth:match", ("truth:match",), "no other scorer"),
        ("truth:match", ("blue",), "'blue'"),
    ):
        with pytest.raises(UsageError, match=reason):
            agreement_report(root, Path(name), FEW, scorers)
