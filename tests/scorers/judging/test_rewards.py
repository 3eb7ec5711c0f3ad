"""Judges of single images that were trained on what people prefer."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from contents import document, query_of
from judging_helpers import chat_spec, converse, picture, shown

from plait.generators.base import NotApplicable, Result, Unread, Unscored
from plait.generators.errors import UsageError
from plait.scorers.base import AnswerForm
from plait.scorers.judging.replies import Unreadable
from plait.scorers.judging.resolve import resolve_judge
from plait.scorers.judging.rewards import (
    FACETS,
    EditScoreJudge,
    ImageJudge,
    QJudger,
    UnifiedRewardJudge,
)

KINDS: dict[str, type[ImageJudge]] = {
    "unified-reward": UnifiedRewardJudge,
    "editscore": EditScoreJudge,
    "q-judger": QJudger,
}
ONE = document(picture("a"))
TWO = document("First.", picture("a"), "Then.", picture("b"))
DRAW = query_of("A red {hat}.")
EDIT = query_of("Make it red.", picture("q"))


def judge_of(name: str, **settings: Any) -> ImageJudge:
    made = resolve_judge(f"{name}:any", "tiny", settings, chat=lambda _: chat_spec())
    assert isinstance(made, KINDS[name])
    return made


def axes(alignment: float, coherence: float, style: float) -> str:
    return (
        f"Alignment Score (1-5): {alignment}\nCoherence Score (1-5): {coherence}\n"
        f"Style Score (1-5): {style}"
    )


def pair(first: float, second: float) -> str:
    return json.dumps({"reasoning": "so", "score": [first, second]})


# ---------------------------------------------------------------- UnifiedReward 2.0


@pytest.mark.parametrize(
    ("reply", "mean"),
    [
        (axes(2, 3, 4), 3.0),
        # As the authors print one.
        (axes(2.694700002670288, 2.371500015258789, 2.802500009536743), 2.6229000091552734),
        (f"<think>{axes(5, 5, 5)}</think>\n{axes(1, 1, 1)}", 1.0),
        ("**Alignment Score (1-5):** 2\nCoherence Score: 2\nStyle Score: 5", 3.0),
        (axes(2, 3, 5).replace("-", "\u2013").replace(":", "\uff1a"), 10 / 3),
        ('{"Alignment Score": 2, "Coherence Score": "3", "Style Score": 5}', 10 / 3),
        (axes(2, 3, 5).replace(": ", " | "), 10 / 3),
        (axes(2, 3, 5).replace(": ", ": ["), 10 / 3),
        ("Alignment Score: 1-5\nCoherence Score: 1\u20135\nStyle Score: 1 \u2013 5", None),
        (axes(2, 3, 6), None),
        (axes(0.9, 3, 4), None),
        (axes(2, 3, 4) + "\nStyle Score (1-5): 5", None),
        ("Alignment Score (1-5): 4\nCoherence Score (1-5): 4", None),
        ("Very good: 5 of 5.", None),
    ],
)
def test_three_scores_and_their_mean(reply: str, mean: float | None) -> None:
    replies = [reply] if mean is not None else [reply, reply]
    judge: Any = judge_of("unified-reward")
    jobs, outcome = converse(judge, DRAW, ONE, replies)
    if mean is None:
        assert isinstance(outcome, Unread)
        assert len(jobs) == 2
        return
    assert isinstance(outcome, Result)
    assert outcome.value.value == pytest.approx(mean)
    assert set(outcome.value.parts["axes"]) == {"alignment", "coherence", "style"}


def test_an_answer_has_the_mean_of_its_images_and_none_without_all() -> None:
    judge: Any = judge_of("unified-reward")
    _, outcome = converse(judge, DRAW, TWO, [axes(1, 1, 1), axes(5, 4, 3)])
    assert outcome.value.value == pytest.approx(2.5)
    assert outcome.value.parts["axes"]["alignment"] == 3
    _, outcome = converse(judge, DRAW, TWO, [axes(1, 1, 1), "no", "no"])
    assert isinstance(outcome, Unread)
    assert isinstance(judge.refusal(DRAW, AnswerForm(text=True, images=0)), Unscored)


# ------------------------------------------------------------------------ EditScore


@pytest.mark.parametrize(
    ("edit", "quality"), [((25, 25), (25, 25)), ((20, 10), (5, 25)), ((0, 25), (25, 9))]
)
def test_edits_count_as_in_the_released_formula(edit: Any, quality: Any) -> None:
    """`EditScore.evaluate`: sqrt(min(SC) / 2.5 * min(PQ) / 2.5)."""
    judge: Any = judge_of("editscore")
    jobs, outcome = converse(judge, EDIT, ONE, [pair(*edit), pair(*quality)])
    expected = math.sqrt(min(edit) / 2.5 * min(quality) / 2.5)
    assert outcome.value.value == pytest.approx(expected)
    assert outcome.value.parts["axes"] == {
        "success": edit[0],
        "restraint": edit[1],
        "naturalness": quality[0],
        "artifacts": quality[1],
    }
    texts = [shown(job.input) for job in jobs]
    assert texts[0].startswith("[q][a]")
    assert "Make it red." in texts[0]
    assert texts[1].startswith("[a]")


@pytest.mark.parametrize(
    "reply",
    [
        *("", "nice", pair(26, 3), pair(-1, 3), '{"score": [1]}', '{"score": 7}', "[8]"),
        *("[8, 26]", '{"score": null} [8, 9]', "[8, 9] or [7, 9]"),
    ],
)
def test_an_edit_without_two_scores_is_asked_for_again(reply: str) -> None:
    judge: Any = judge_of("editscore")
    question = judge.ask(EDIT, ONE.images[0])[0]
    assert isinstance(judge.read_about(question, reply), Unreadable)


@pytest.mark.parametrize("reply", ["[20, 9.5]", "<think>[1, 1]</think>\n**[20, 9.5]**"])
def test_an_edit_may_be_scored_by_the_list_alone(reply: str) -> None:
    """As `mllm_output_to_dict` and `parse_vlm_output_to_dict` of the program read it."""
    judge: Any = judge_of("editscore")
    question = judge.ask(EDIT, ONE.images[0])[0]
    assert judge.read_about(question, reply) == {"success": 20, "restraint": 9.5}


def test_an_edit_needs_one_image_to_start_from() -> None:
    judge = judge_of("editscore")
    assert isinstance(judge.query_refusal(DRAW), NotApplicable)
    several = query_of("Join.", picture("q"), picture("r"))
    assert isinstance(judge.query_refusal(several), NotApplicable)
    assert judge.query_refusal(EDIT) is None


# ------------------------------------------------------------------------- Q-Judger


def ratings(dimension: str, rating: Any) -> dict[str, Any]:
    groups = FACETS[dimension].items()
    return {g: {f: {"score": rating} for f in own} for g, own in groups}


def test_facets_are_averaged_by_group_and_dimension() -> None:
    """By hand: 0, 1, 2 count 0, 60, 100, and N/A is left out (the model card)."""
    quality = ratings("Quality", 1)
    quality["Realism"] = {"Physical Logic": {"score": 0}, "Material Texture": {"score": 2}}
    quality["Resolution"] = {"Resolution": {"score": "N/A"}}
    told = {name: ratings(name, 2) for name in FACETS} | {"Quality": quality}
    told["Alignment"] = ratings("Alignment", "N/A")
    judge: Any = judge_of("q-judger")
    replies = [f"<think>hm</think>{json.dumps(told[name])}" for name in FACETS]
    jobs, outcome = converse(judge, DRAW, ONE, replies)
    assert len(jobs) == judge.jobs(DRAW, 1) == 5
    realism, detail = (0 + 100) / 2, 60
    expected = [(realism + detail) / 2, 100, 100, 100]
    assert outcome.value.value == pytest.approx(sum(expected) / 4)
    assert "Alignment" not in outcome.value.parts["axes"]
    none = [json.dumps(ratings(name, "N/A")) for name in FACETS]
    assert isinstance(converse(judge, DRAW, ONE, none)[1], Unscored)


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        ({"Noise": {"score": 2}}, {"Noise": 100}),
        ({"Realism": {"Noise": {"score": "1"}}}, {"Noise": 60}),
        ({"Resolution": {"Resolution": {"score": 0}}}, {"Resolution": 0}),
        ({"Detail": {"Noise": 2}}, {"Noise": 100}),
        ({"Noise": {"score": 3}}, None),
        ({"Noise": {"score": True}}, None),
        ({"Other": {"score": 1}}, None),
        ("all well", None),
    ],
)
def test_facets_are_known_by_their_names(reply: Any, read: Any) -> None:
    judge: Any = judge_of("q-judger")
    question = judge.ask(DRAW, ONE.images[0])[0]
    text = reply if isinstance(reply, str) else json.dumps(reply)
    found = judge.read_about(question, text)
    assert isinstance(found, Unreadable) if read is None else found == read


@pytest.mark.parametrize(
    "told",
    [
        {"Feature Mapping": {"Feature Mapping": {"score": 1}}},
        {"Feature Matching": {"Feature Mapping": {"score": 1}}},
        {"Feature Mapping": {"score": 1}},
    ],
)
def test_a_facet_that_the_judge_misnames_counts(told: Any) -> None:
    """`fix_score_json` of the released program renames it in its one dimension."""
    judge: Any = judge_of("q-judger")
    asked = {question.about: question for question in judge.ask(DRAW, ONE.images[0])}
    reply = json.dumps(told)
    found = judge.read_about(asked["Creative Generation"], reply)
    assert found == {"Feature Matching": 60}
    assert isinstance(judge.read_about(asked["Quality"], reply), Unreadable)


def test_there_are_56_facets_in_23_groups() -> None:
    """Model card and abstract of Qwen-Image-Bench."""
    groups = [group for own in FACETS.values() for group in own.values()]
    assert (len(FACETS), len(groups), sum(map(len, groups))) == (5, 23, 56)


# ------------------------------------------------------------------- released texts

FILES = {
    "unified-reward": 'x = 1\nproblem = ("Rate it. " f"Caption: [{x}]")\n',
    "editscore": 'a = "ctx"\nb = "rule"\nc = "0 to 10: <instruction>"\nd = "10 best"\n',
    "q-judger": "\n".join(
        ['s = "sys"', 'h = "# {prompt}"', 'b = "{level1_dim}: {format_checklist} {{}}"']
        + [f"c{i} = {name + ' list'!r}" for i, name in enumerate(FACETS)]
    ),
}
TEXTS = {
    "unified-reward": {"scores": "Rate it. Caption: ["},
    "editscore": {"context": "ctx", "rule": "rule"}
    | {"scored": "0 to 10: <instruction>", "quality": "10 best"},
    "q-judger": {"system": "sys", "header": "# {prompt}"}
    | {"body": "{level1_dim}: {format_checklist} {{}}"}
    | {name: f"{name} list" for name in FACETS},
}
ASKED = {
    "unified-reward": ["[a]Rate it. Caption: [A red {hat}.]"],
    "editscore": ["[q][a]ctx\nrule\n0 to 25: Make it red.", "[a]ctx\n25 best"],
    "q-judger": [f"sys# A red {{hat}}.[a]{name}: {name} list {{}}" for name in FACETS],
}


@pytest.mark.parametrize("name", KINDS)
def test_released_texts_are_asked_as_the_program_joins_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {k: hashlib.sha256(t.encode()).hexdigest() for k, t in TEXTS[name].items()}
    file = tmp_path / "released.py"
    file.write_text(FILES[name])
    with pytest.raises(UsageError, match="published prompts"):
        judge_of(name, rubric=f"official:{file}")
    monkeypatch.setattr(KINDS[name], "released", texts)
    judge: Any = judge_of(name, rubric=f"official:{file}")
    assert judge.manner.startswith("released wording")
    query = EDIT if name == "editscore" else DRAW
    asked = [
        "".join(shown(turn.content) for turn in question.turns)
        for question in judge.ask(query, ONE.images[0])
    ]
    assert asked == ASKED[name]


@pytest.mark.parametrize("name", KINDS)
def test_the_form_that_is_asked_for_names_what_is_read(name: str) -> None:
    judge = judge_of(name)
    question = judge.ask(EDIT, ONE.images[0])[0]
    form = judge.form_of(question)
    filled = form.replace("X", "3").replace("<success>", "3").replace("<restraint>", "4")
    facet = next(iter(FACETS["Quality"]["Detail"]))
    filled = filled.replace("<group>", "g").replace("<facet>", facet)
    filled = filled.replace('0, 1, 2 or "N/A"', "1")
    assert not isinstance(judge.read_about(question, filled), Unreadable)


@pytest.mark.parametrize(
    "settings", [{"max_images": 1}, {"structured": True}, {"mode": "official"}]
)
@pytest.mark.parametrize("name", KINDS)
def test_what_these_judges_do_not_have_is_refused(name: str, settings: Any) -> None:
    settings = {"rubric": "official:nowhere"} | settings
    with pytest.raises(UsageError, match="leave it out"):
        judge_of(name, **settings)


def test_a_trained_judge_is_not_asked_in_our_words() -> None:
    model = "CodeGoat24/UnifiedReward-2.0-qwen3vl-8b"
    spec = chat_spec(settings={"model": model})
    with pytest.raises(UsageError, match=r"trained.*official:PATH"):
        resolve_judge("unified-reward:x", "tiny", {}, chat=lambda _: spec)
