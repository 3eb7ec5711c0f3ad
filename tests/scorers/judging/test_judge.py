"""The judge as a scorer: what it asks, what it makes of replies, what names a record."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

import pytest
from judging_helpers import (
    STAND_IN,
    chat_spec,
    converse,
    document,
    judge_of,
    picture,
    reply_of,
    sample,
    shown,
    stand_in_digests,
)

from cluster.plan import Plan
from generators.base import (
    Failure,
    Fault,
    Kind,
    NotApplicable,
    Result,
    Skip,
    StageSpec,
    Unscored,
)
from generators.document import Draft, Score, Text
from generators.errors import UsageError
from generators.names import unknown
from generators.settings import ModelSettings, unkeyed
from generators.system import System
from scorers import resolve_scorer
from scorers.judging import sources
from scorers.judging.corrected import Corrected
from scorers.judging.judge import RubricJudge, profile
from scorers.judging.released import Released
from scorers.judging.resolve import JudgeSettings
from scorers.judging.rubrics import OWN, Rubric

NAMES = [*OWN["SA"].criteria, "Emotional Impact"]
GOOD = reply_of(NAMES, [1, 1, 1, 0, 0, 1, 0], 4)
STORY = document("So it went.", picture("a0"))


def ended(replies, judge: RubricJudge | None = None, id: str = "SA-1"):
    return converse(judge or judge_of(), sample(id), STORY, replies)


def test_a_reply_becomes_a_score_in_percent():
    jobs, result = ended([GOOD])
    assert isinstance(result, Result)
    assert result.value.value == pytest.approx(400 / 6)
    parts = result.value.parts
    assert parts["raw"] == parts["stated"] == parts["summed"] == 4
    assert parts["criteria"]["Context Consistency"] == 0
    assert parts["penalty"] == 0
    assert (parts["rubric"], parts["prompt_sha256"]) == ("own:SA", OWN["SA"].sha256)
    assert (parts["images"], parts["images_left_out"], parts["attempts"]) == (2, 0, 1)
    (job,) = jobs
    assert (job.spec, job.label, job.input.seed) == (chat_spec(), "SA-1", None)


def test_pictures_left_out_are_counted():
    _, result = ended([GOOD], judge_of(max_images=1))
    assert (result.value.parts["images"], result.value.parts["images_left_out"]) == (1, 1)


def test_what_the_stage_noted_of_the_request_stands_beside_the_score():
    notes = {"over_context": True, "image_sizes": [[512, 512]], "tiles": [7], "prompt": "x"}
    usage = {"input_tokens": 4100, "output_tokens": 90, "cost": 1}
    _, result = ended([Result(Draft((Text(GOOD),)), usage, notes)])
    parts = result.value.parts
    assert parts["over_context"] is True
    assert parts["image_sizes"] == [[512, 512]]
    assert (parts["input_tokens"], parts["output_tokens"]) == (4100, 90)
    assert not {"prompt", "cost"} & set(parts)


def test_an_unreadable_reply_is_asked_about_once_and_stays():
    jobs, result = ended(["A fine story.", GOOD])
    assert result.value.parts["attempts"] == 2
    first, second = (job.input for job in jobs)
    assert jobs[0].key != jobs[1].key
    assert second.turns[:1] == first.turns
    assert second.turns[1].content == (Text("A fine story."),)
    assert "there is no score" in shown(second)


def test_a_judge_that_cannot_be_read_leaves_the_answer_unscored():
    jobs, result = ended(["A fine story.", "Very fine."])
    assert len(jobs) == 2
    assert isinstance(result, Unscored)
    message = "the reply cannot be read: there is no score; there are no verdicts"
    assert result.reason == message


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_as_many_questions_as_retries_allow(retries):
    jobs, result = ended(["?"] * (retries + 1), judge_of(retries=retries))
    assert len({job.key for job in jobs}) == retries + 1
    assert isinstance(result, Unscored)


@pytest.mark.parametrize(
    "outcome",
    [
        Failure("the model refused", Fault.REFUSED),
        Failure("HTTP 500", Fault.ENDPOINT),
        Skip("the model reads 1 image(s) per request; this one has 2"),
    ],
)
@pytest.mark.parametrize("before", [[], ["unreadable"]])
def test_what_the_stage_fails_or_skips_is_no_judgement(outcome, before):
    _, result = ended([*before, outcome])
    assert result is outcome


def test_queries_without_a_rubric_are_not_asked_about():
    jobs, result = ended([], id="XYZ-1")
    assert jobs == []
    assert isinstance(result, NotApplicable)


def test_only_a_stage_that_draws_at_random_is_given_a_seed():
    jobs, _ = ended(["?", "?"], judge_of(chat_spec(seeded=True)))
    seeds = [job.input.seed for job in jobs]
    assert None not in seeds
    assert len(set(seeds)) == 2
    again, _ = ended(["?", "?"], judge_of(chat_spec(seeded=True)))
    assert [job.key for job in again] == [job.key for job in jobs]
    other, _ = ended(["?", "?"], judge_of(chat_spec(seeded=True), seed=1))
    assert not {j.key for j in other} & {j.key for j in jobs}


# --------------------------------------------------------- judgements are records


def test_one_word_of_a_rubric_judges_only_its_category_again():
    changed = dict(OWN)
    wording = OWN["SA"].template.replace("clear", "lucid", 1)
    changed["SA"] = replace(OWN["SA"], template=wording)
    old, new = judge_of(), replace(judge_of(), examiner=Corrected(changed))
    keys = {
        (who, id): converse(judge, sample(id), STORY, ["?", "?"])[0][0].key
        for who, judge in (("old", old), ("new", new))
        for id in ("SA-1", "PBL-1", "MSR-1")
    }
    assert keys["old", "SA-1"] != keys["new", "SA-1"]
    assert keys["old", "PBL-1"] == keys["new", "PBL-1"]
    assert keys["old", "MSR-1"] == keys["new", "MSR-1"]


def test_answers_to_one_question_are_judged_together():
    """Their prompts begin with the same rubric and question."""

    def group(id: str, text: str, replies=(GOOD,)) -> set[str]:
        jobs, _ = converse(judge_of(), sample(id), document(text), list(replies))
        return {job.group for job in jobs}

    (one,) = group("SA-1", "So it went.")
    assert group("SA-1", "And then?") == {one}
    assert group("SA-1", "So it went.", ("unreadable", GOOD)) == {one}
    (another,) = group("SA-2", "So it went.")
    assert len({one, another, ""}) == 3
    assert one.startswith("own:SA ")


def test_a_new_reader_asks_nobody():
    class Lenient(Corrected):
        def read(self, reply: str, rubric: Rubric) -> Any:
            return super().read(f"### Score\n{reply}", rubric)

    jobs, result = ended(["5", "5"])
    assert isinstance(result, Unscored)
    lenient = replace(judge_of(), examiner=Lenient(OWN))
    again, scored = ended(["5"], lenient)
    assert [job.key for job in again] == [jobs[0].key]
    assert scored.value.parts["raw"] == 5


def test_one_document_of_two_systems_is_judged_once():
    asking = sample(truth=STORY)
    systems = [
        System(name="gt", draft=None),
        System(name="copy", draft=None, answers={asking.id: STORY}),
        System(name="other", draft=None, answers={asking.id: document("Not so.")}),
    ]
    plan = Plan(systems=systems, samples=[asking], scorers=[judge_of()], prompt=None)
    jobs = [next(walk)[0] for walk in plan.walks()]
    assert jobs[0].key == jobs[1].key
    assert len({job.key for job in jobs}) == 2
    assert plan.stages == [chat_spec()]


# ---------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rubric": "mine"}, "a rubric is 'own' or 'official:PATH'"),
        ({"rubric": "official:"}, "must be followed by the path"),
        ({"mode": "strict"}, "'corrected' or 'official'"),
        ({"mode": "official"}, "needs the released rubrics"),
        ({"mode": "official", "rubric": "official:x", "retries": 1}, "retries must be 0"),
        (
            {"mode": "official", "rubric": "official:x", "max_images": 3},
            "leave max_images out",
        ),
        ({"retries": 6}, "less than or equal to 5"),
        ({"max_images": 0}, "greater than or equal to 1"),
        ({"retires": 1}, "did you mean 'retries'"),
        ({"rubric": "official:/nowhere/prompts.py"}, "No such file"),
    ],
)
def test_wrong_settings_are_refused(options, why):
    with pytest.raises(UsageError, match=why):
        resolve_scorer("judge:chatty", "tiny", options, chat=lambda name: chat_spec())


def test_defaults():
    options = JudgeSettings()
    assert (options.rubric, options.mode, options.most_retries) == ("own", "corrected", 1)
    assert JudgeSettings(mode="official", rubric="official:x").most_retries == 0


# --------------------------------------------------------------------- resolving


def test_any_chat_stage_of_the_caller_s_is_a_judge():
    model_names: list[str] = []

    def chat(name: str) -> StageSpec:
        model_names.append(name)
        return chat_spec(name=name)

    for name in ("gpt-4o", "hf:org/name", "openai:gpt-4.1", "anole"):
        result = resolve_scorer(f"judge:{name}", "tiny", {"retries": 2}, chat=chat)
        assert isinstance(result, RubricJudge)
        assert (result.name, result.scale) == (f"judge:{name}", "0-100")
        assert result.stages == (chat_spec(name=name),)
        assert result.retries == 2
    assert model_names == ["gpt-4o", "hf:org/name", "openai:gpt-4.1", "anole"]


def test_a_chat_model_that_the_caller_does_not_know():
    def chat(name: str) -> StageSpec:
        raise unknown("LVLM", name, ["gpt-4o"])

    nearest = r"judge 'judge:gtp-4o'.*did you mean 'judge:gpt-4o'"
    with pytest.raises(UsageError, match=nearest):
        resolve_scorer("judge:gtp-4o", "tiny", {}, chat=chat)


@pytest.mark.parametrize("name", ["judge:gpt-4o", "judge:", "judge:mmie-scor"])
def test_without_chat_models_only_judges_of_our_own_are_known(name):
    with pytest.raises(UsageError, match=r"unknown judge .*judge:mmie-score"):
        resolve_scorer(name, "tiny", {})


def test_a_stage_that_does_not_write_is_no_judge():
    with pytest.raises(UsageError, match=r"of kind 'draft'.*'render'"):
        resolve_scorer("judge:x", "tiny", {}, chat=lambda n: chat_spec(kind=Kind.RENDER))


@pytest.fixture
def own_model(monkeypatch) -> None:
    """A stand-in for the settings of the MMIE-Score model."""

    class MmieScoreSettings(ModelSettings):
        kind: ClassVar[Kind] = Kind.DRAFT
        stage: ClassVar[str] = "stand-in"
        target: ClassVar[str] = "x:Y"
        model: str = unkeyed("m")
        max_tiles: int = 12
        fit_context: bool = True

    def mmie_score(weights, overrides, gpu_gib):
        return MmieScoreSettings(**overrides).spec("mmie-score", weights, gpu_gib)

    module = ModuleType("scorers.internvl.settings")
    module.MmieScoreSettings = MmieScoreSettings
    module.mmie_score = mmie_score
    monkeypatch.setitem(sys.modules, "scorers.internvl.settings", module)


@pytest.mark.usefixtures("own_model")
def test_mmie_score_takes_settings_of_judge_and_model():
    result = resolve_scorer("judge:mmie-score", "tiny", {"retries": 0, "max_tiles": 6})
    assert result.retries == 0
    assert result.stage.settings["max_tiles"] == 6
    assert result.stage.settings["fit_context"] is True
    assert result.stage.weights == "tiny"
    with pytest.raises(UsageError, match="did you mean 'retries'"):
        resolve_scorer("judge:mmie-score", "tiny", {"retrys": 0})
    with pytest.raises(UsageError, match="did you mean 'max_tiles'"):
        resolve_scorer("judge:mmie-score", "tiny", {"max_tile": 0})


@pytest.mark.usefixtures("own_model")
def test_official_mode_does_not_make_pictures_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "DIGESTS", stand_in_digests())
    (tmp_path / "prompts.py").write_text(STAND_IN)
    options = {"mode": "official", "rubric": f"official:{tmp_path}"}
    result = resolve_scorer("judge:mmie-score", "tiny", options)
    assert isinstance(result.examiner, Released)
    assert result.stage.settings["fit_context"] is False
    overridden = resolve_scorer("judge:mmie-score", "tiny", options | {"fit_context": True})
    assert overridden.stage.settings["fit_context"] is True


# ----------------------------------------------------------------------- profile


def test_the_profile_counts_only_verdicts_that_were_given():
    def score(values, penalty):
        return Score(0.0, {"criteria": values, "penalty": penalty})

    result = profile(
        [
            score({"Text Quality": 1, "Innovation": 0}, 0),
            score({"Text Quality": 1, "Innovation": None}, None),
            score({"Text Quality": 0, "Innovation": 1}, 1),
            Score(0.0, {}),
        ]
    )
    assert list(result) == ["Text Quality", "Innovation", "penalty"]
    assert result["Text Quality"] == pytest.approx((2 / 3, 3))
    assert result["Innovation"] == (0.5, 2)
    assert result["penalty"] == (0.5, 2)
