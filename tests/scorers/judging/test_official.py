"""Official mode against the released scorer's own output, and its rubrics read as data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from judging_helpers import (
    STAND_IN,
    STAND_IN_TEXTS,
    content,
    document,
    judge_of,
    picture,
    sample,
    shown,
    stand_in_digests,
)
from judging_upstream_helpers import AVERAGED, REPLIES, figures, scored, write_folder

from benchmarks.tasks.mmie.official import Output, read_outputs
from generators.base import Unscored
from generators.document import Image
from generators.errors import UsageError
from scorers.judging import sources
from scorers.judging.released import Released, averages, find_score, flattened, percent
from scorers.judging.replies import RubricQuestion, RubricVerdict, Unreadable
from scorers.judging.rubrics import Rubric
from scorers.judging.sources import DIGESTS, RubricSource, read_published

RUBRICS = {k: Rubric(f"official:{k}", t, "") for k, t in STAND_IN_TEXTS.items()}
RELEASED = Released(RUBRICS)
FIGURES = figures()


def file_name(image: Image) -> str:
    return Path(str(image.place)).name


def test_every_prompt_is_that_of_the_released_scorer(tmp_path):
    """240 rows; through our reader of the official format, as `plait score` goes."""
    folder = write_folder(tmp_path / "rows")
    result = []
    for row in read_outputs(folder, cache=tmp_path / "cache"):
        assert isinstance(row, Output)
        question = RELEASED.ask(row.sample, row.document)
        if isinstance(question, Unscored):
            result.append(None)
            continue
        named = [
            f"[{file_name(s)}]" if isinstance(s, Image) else s.text
            for s in question.content
        ]
        result.append(hashlib.sha256("".join(named).encode()).hexdigest()[:16])
    assert result == FIGURES["prompts"]
    assert result.count(None) == 11


def test_every_reply_is_read_as_by_the_released_scorer():
    result = [find_score(reply) for reply in REPLIES]
    assert result == FIGURES["found"]
    read = [RELEASED.read(reply, RUBRICS["SA"]) for reply in REPLIES]
    scores = [v.raw if isinstance(v, RubricVerdict) else None for v in read]
    assert scores == FIGURES["kept"]


@pytest.mark.parametrize("i", range(len(AVERAGED)))
def test_averages_are_those_of_the_released_scorer(i):
    result = averages(scored(*AVERAGED[i]))
    assert result.n == AVERAGED[i][0]
    assert [result.average, *result.kinds.values()] == FIGURES["averages"][i]


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("### Score\n5", 5),
        ("### Score\nScore: 5/6", 5),
        ("### Score\n4.5", 4),
        ("### Score\n5.5", 6),
        ("### Score 1) text: good 5", 1),
        ("### Score\nI assign 0-6 scale: 4", 0),
        ("### Score\n-0.5", 0),
        ("### Score\n6.5", 6),
    ],
)
def test_what_the_release_reads(reply, score):
    assert RELEASED.read(reply, RUBRICS["SA"]) == RubricVerdict(
        score, "score", stated=score
    )


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("### Score\n-1", "drops the score -1"),
        ("### Score\n7", "drops the score 7"),
        ("### Score\nfive", "no number after '### Score'"),
        ("Score: 5", "no number after '### Score'"),
        ("5", "no number after '### Score'"),
        ("### Score\n" + "9" * 400, "stops at a number beyond all floats"),
    ],
)
def test_what_the_release_drops_has_a_reason(reply, why):
    result = RELEASED.read(reply, RUBRICS["SA"])
    assert isinstance(result, Unreadable)
    assert why in result.reason


def test_rounded_averages_in_percent_lie_on_the_paper_s_grid():
    """All numbers of the paper's Tables 3 and 4 are multiples of 1/60."""
    result = averages([("SA-1", 2), ("SA-2", 3), ("SA-3", 3)])
    assert result.average == 2.667
    assert percent(result.average) == pytest.approx(44.45)
    assert result.kinds == {"SA": 2.667, "PBL": None, "MSR": None}
    assert averages([]).average is None


# ------------------------------------------------------------------- the request


def question_of(sample, *answer) -> RubricQuestion:
    result = RELEASED.ask(sample, document(*answer))
    assert isinstance(result, RubricQuestion)
    return result


def test_the_answer_ends_after_the_third_picture():
    a = [picture(f"a{i}") for i in range(4)]
    result = question_of(sample(), "x", a[0], "y", a[1], "z", a[2], "end")
    assert shown(result.content) == (
        "Story. Reply with ### Score\nand a number."
        "# Q\nOnce upon a time.\nImage-0: [q0]\n\n"
        "# A\nx\nImage-1: [a0]\ny\nImage-2: [a1]\n\n# F\n"
    )
    assert (result.images, result.left_out, result.cut) == (3, 1, True)


def test_with_three_pictures_in_the_question_one_text_of_the_answer_is_read():
    q = [picture(f"q{i}") for i in range(3)]
    result = question_of(sample("PBL-1", *q), "x", picture("a"), "y")
    assert shown(result.content).endswith("# A\nx\n\n# F\n")
    assert (result.left_out, result.cut) == (1, True)
    result = question_of(sample("PBL-1", *q), picture("a"), "y")
    assert shown(result.content).endswith("# A\n\n# F\n")


def test_four_pictures_are_kept_and_five_dropped():
    q = [picture(f"q{i}") for i in range(5)]
    assert question_of(sample("SA-1", *q[:4]), "x").images == 4
    result = RELEASED.ask(sample("SA-1", *q), document("x"))
    assert result == Unscored("the released scorer drops samples with more than 4 pictures")


def test_letters_that_look_like_a_picture_shift_all_after_them():
    result = question_of(
        sample("SA-1", "an <image> of", picture("q0")), "and", picture("a0")
    )
    assert "an [q0] of\nImage-0: [a0]\n" in shown(result.content)
    assert "Image-1: <image>\n" in shown(result.content)
    assert result.neutralised == ()


@pytest.mark.parametrize(
    ("id", "kind"), [("SA-1", "SA"), ("PBL-9", "PBL"), ("MSR-2", "MSR"), ("MSR-SAT", "SA")]
)
def test_the_rubric_is_chosen_by_letters_anywhere_in_the_id(id, kind):
    assert question_of(sample(id), "x").rubric.id == f"official:{kind}"


def test_an_id_without_those_letters_is_unscored():
    result = RELEASED.ask(sample("XYZ-1"), document("x"))
    assert isinstance(result, Unscored)
    assert "stops at ids" in result.reason


@pytest.mark.parametrize(
    ("truth", "line"),
    [
        (document("four", "4"), "four"),
        (document(picture("t"), "four"), "None"),
        (document(), "None"),
        (None, "None"),
    ],
)
def test_the_truth_is_the_text_of_the_first_item(truth, line):
    assert f"# T\n{line}\n# F" in shown(
        question_of(sample("MSR-1", truth=truth), "x").content
    )


@pytest.mark.parametrize(("text", "written"), [(None, "None"), ("", ""), ("7", "7")])
def test_the_first_item_of_the_truth_counts_even_without_text(tmp_path, text, written):
    """As dataset.py takes `gt_answer[0]["text"]`, and `str.format` writes null."""
    items = [{"text": text, "image": None}, {"text": "4", "image": None}]
    asks = [{"text": "How many?", "image": None}]
    row = {"id": "MSR-1", "question": asks, "answer": "5", "model": "m", "gt_answer": items}
    (tmp_path / "data.json").write_text(json.dumps([row]))
    (output,) = read_outputs(tmp_path, cache=tmp_path / "cache")
    result = RELEASED.ask(output.sample, output.document)
    assert f"# T\n{written}\n# F" in shown(result.content)


def test_flattening_counts_what_it_leaves_out():
    a, b, c, d = (picture(n) for n in "abcd")
    flat = flattened(content("q", a), content(b, "x", c, d, "y", d))
    assert (flat.question, flat.answer) == (
        "q\nImage-0: <image>\n",
        "Image-1: <image>\nx\nImage-2: <image>\n",
    )
    assert (flat.images, flat.left_out, flat.cut) == ((a, b, c), 2, True)


# ------------------------------------------------------------------- the rubrics


@pytest.fixture
def stand_in(tmp_path, monkeypatch) -> Path:
    """A copy of the stand-in, taken for the released file."""
    monkeypatch.setattr(sources, "DIGESTS", stand_in_digests())
    (tmp_path / "prompts.py").write_text(STAND_IN)
    return tmp_path


@pytest.mark.parametrize("name", ["", "prompts.py"])
def test_the_file_or_its_folder_is_read(stand_in, name):
    result = read_published(RubricSource(stand_in / name).file())
    assert {k: r.template for k, r in result.items()} == STAND_IN_TEXTS
    assert result["SA"].id == "official:SA"
    assert result["SA"].sha256 == stand_in_digests()["SA"]
    assert (result["SA"].criteria, result["SA"].penalty) == ((), None)


def test_nothing_of_the_file_is_executed(stand_in):
    trap = stand_in / "sprung"
    file = stand_in / "prompts.py"
    file.write_text(f"open({str(trap)!r}, 'w')\nimport nowhere\n{STAND_IN}")
    assert read_published(file)["PBL"].template == STAND_IN_TEXTS["PBL"]
    assert not trap.exists()


def test_another_text_is_refused_with_both_digests(stand_in):
    file = stand_in / "prompts.py"
    file.write_text(STAND_IN.replace("Method.", "Methods."))
    with pytest.raises(UsageError) as error:
        read_published(file)
    expected = stand_in_digests()["PBL"]
    other = STAND_IN_TEXTS["PBL"].replace("Method.", "Methods.")
    result = hashlib.sha256(other.encode()).hexdigest()
    assert f"sha256 is {result}, expected {expected}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("def get_prompt(:", "is not Python"),
        ("x = 1", "returns no text for 'SA'"),
        (STAND_IN.replace('"MSR" in', '"OTHER" in'), "returns no text for 'MSR'"),
        (STAND_IN.replace("PBL_SYSTEM_PROMPT +", "str() +"), "returns no text for 'PBL'"),
    ],
)
def test_a_file_without_the_texts_is_refused(stand_in, text, why):
    file = stand_in / "other.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=why):
        read_published(file)


def test_the_released_digests_are_those_of_the_facts():
    assert {k: d[:8] for k, d in DIGESTS.items()} == {
        "SA": "e49cdc6b", "PBL": "c7d412ee", "MSR": "2af55d36",
    }  # fmt: skip


def test_a_judge_of_each_mode_reads_the_same_file(stand_in):
    official = judge_of(rubric=f"official:{stand_in}", mode="official")
    assert isinstance(official.examiner, Released)
    assert official.retries == 0
    corrected = judge_of(rubric=f"official:{stand_in}")
    assert not isinstance(corrected.examiner, Released)
    assert corrected.examiner.rubrics == official.examiner.rubrics
