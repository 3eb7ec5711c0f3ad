"""Official mode against the released scorer's own output, and its rubrics read as data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from judging_helpers import (
    STAND_IN,
    STAND_IN_TEXTS,
    chat_spec,
    judge_of,
    shown,
    stand_in_digests,
)
from judging_upstream_helpers import AVERAGED, REPLIES, figures, scored, write_folder

from plait.benchmarks.tasks.mmie.official import Output, read_outputs
from plait.generators.base import Unscored
from plait.generators.document import Image
from plait.generators.errors import UsageError
from plait.scorers import resolve_scorer
from plait.scorers.judging import aspects, criteria, isg, mmie
from plait.scorers.judging.mmie import Released, find_score, read_released_rubrics
from plait.scorers.judging.replies import RubricVerdict, Unreadable
from plait.scorers.judging.rubrics import Rubric
from plait.scorers.judging.sources import OWN_WORDING, RubricSource, parse_rubric
from plait.scorers.judging.summaries import averages

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
        question = RELEASED.ask(row.query, row.document)
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
    # Where the released scorer ends in an error, the judgement has no value.
    assert isinstance(RELEASED.read(f"### Score\n{'9' * 400}", RUBRICS["SA"]), Unreadable)


@pytest.mark.parametrize("i", range(len(AVERAGED)))
def test_averages_are_those_of_the_released_scorer(i):
    result = averages(scored(*AVERAGED[i]))
    assert result.n == AVERAGED[i][0]
    assert [result.average, *result.kinds.values()] == FIGURES["averages"][i]


# ------------------------------------------------------------------- the request


@pytest.mark.parametrize(("text", "written"), [(None, "None"), ("", ""), ("7", "7")])
def test_the_first_item_of_the_truth_counts_even_without_text(tmp_path, text, written):
    """As dataset.py takes `gt_answer[0]["text"]`, and `str.format` writes null."""
    items = [{"text": text, "image": None}, {"text": "4", "image": None}]
    asks = [{"text": "How many?", "image": None}]
    row = {"id": "MSR-1", "question": asks, "answer": "5", "model": "m", "gt_answer": items}
    (tmp_path / "data.json").write_text(json.dumps([row]))
    (output,) = read_outputs(tmp_path, cache=tmp_path / "cache")
    result = RELEASED.ask(output.query, output.document)
    assert f"# T\n{written}\n# F" in shown(result.content)


# ------------------------------------------------------------------- the rubrics


@pytest.fixture
def stand_in(tmp_path, monkeypatch) -> Path:
    """A copy of the stand-in, taken for the released file."""
    monkeypatch.setattr(mmie, "DIGESTS", stand_in_digests())
    (tmp_path / "prompts.py").write_text(STAND_IN)
    return tmp_path


@pytest.mark.parametrize("name", ["", "prompts.py"])
def test_the_file_or_its_folder_is_read(stand_in, name):
    result = read_released_rubrics(RubricSource(stand_in / name).file)
    assert {k: r.template for k, r in result.items()} == STAND_IN_TEXTS
    assert result["SA"].id == "official:SA"
    assert result["SA"].sha256 == stand_in_digests()["SA"]
    assert (result["SA"].criteria, result["SA"].penalty) == ((), None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("def get_prompt(:", "is not Python"),
        ("x = '\\ud800'", r"not hold .* 'SA' \(sha256 \w{12}\.\.\.\), 'PBL'"),
        (STAND_IN.replace("Problem", "problem"), "not hold the published prompts 'MSR'"),
        (STAND_IN.replace("PBL_SYSTEM_PROMPT +", "str() +"), "prompts 'PBL'"),
    ],
)
def test_a_file_without_the_texts_is_refused(stand_in, text, why):
    file = stand_in / "other.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=why):
        read_released_rubrics(file)


def test_a_judge_of_each_mode_reads_the_same_file(stand_in):
    official = judge_of(rubric=f"official:{stand_in}", mode="official")
    assert isinstance(official.examiner, Released)
    assert official.retries == 0
    corrected = judge_of(rubric=f"official:{stand_in}")
    assert not isinstance(corrected.examiner, Released)
    assert corrected.examiner.rubrics == official.examiner.rubrics


def test_official_mode_does_not_make_images_fit(stand_in):
    options = {"mode": "official", "rubric": f"official:{stand_in}"}
    for more, expected in (({}, False), ({"fit_context": True}, True)):
        judge = resolve_scorer("judge:mmie-score", "tiny", options | more)
        assert isinstance(judge.examiner, Released)
        assert judge.stage.settings["fit_context"] is expected


def test_absolute_means_the_same_in_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_rubric("official:a/b.py").absolute == RubricSource(tmp_path / "a/b.py")
    assert parse_rubric("own").absolute == OWN_WORDING


def test_a_run_keeps_a_copy_and_falls_back_to_it(tmp_path: Path) -> None:
    users, run = tmp_path / "MMIE", tmp_path / "run"
    users.mkdir()
    run.mkdir()
    (users / "prompts.py").write_text("x = 1")
    source = RubricSource(users)
    source.keep(run)
    assert source.or_copy_in(run) == source
    (users / "prompts.py").unlink()
    assert source.or_copy_in(run) == RubricSource(run / "prompts.py")
    assert source.or_copy_in(tmp_path) == source
    assert (run / "prompts.py").read_text() == "x = 1"
    assert OWN_WORDING.or_copy_in(run) == OWN_WORDING


@pytest.mark.parametrize(
    ("name", "module", "file", "scale"),
    [
        ("criteria", criteria, "ueval_eval.py", "0-100"),
        *((f"isg-{n}", isg, "get_judge_prompt.py", "unbounded") for n in isg.SCALES),
        ("aspects", aspects, aspects.FILE, "unbounded"),
    ],
)
def test_other_judges_read_released_texts_from_the_users_copy(
    name, module, file, scale, tmp_path, monkeypatch
):
    settings = {"rubric": f"official:{tmp_path / file}", "mode": "official"}

    def judge(given):
        return resolve_scorer(f"{name}:chatty", "tiny", given, chat=lambda _: chat_spec())

    own, place = judge({}), tmp_path / file
    assert (own.scale, own.mode) == (isg.SCALES.get(name[4:], "0-100"), "corrected")
    with pytest.raises(UsageError, match=f"copy of .*{place.name}"):
        judge({"mode": "official"})
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(b"Judge\r\nit.")
    with pytest.raises(UsageError, match=place.name):
        judge(settings)
    if module is aspects:
        texts = {"system": "Judge\nit."}
        monkeypatch.setattr(aspects, "_DIGEST", digest_of(texts["system"]))
    else:
        texts = {n: f"{n} {{question}}" for n in module._DIGESTS}
        place.write_text(f"TEXTS = {list(texts.values())!r}")
        digests = {n: digest_of(text) for n, text in texts.items()}
        monkeypatch.setattr(module, "_DIGESTS", digests)
    made = judge(settings)
    assert (made.stage, made.mode, made.retries) == (chat_spec(), "official", 0)
    assert (made.scale, made.manner.partition(",")[0]) == (scale, "released wording")
    wording = made.wording if module is aspects else asdict(made.wording).values()
    for text in texts.values():
        assert any(text in given for given in wording) or text == wording


def digest_of(text):
    return hashlib.sha256(text.encode()).hexdigest()
